"""Division with a whole quotient under profile ``fp32``, on tensors of any device.

The bit contract is ``repro_kernels.spec.remainder``. The remainder is exact, by long division of the
significands as 64-bit integers; what else there is, are single IEEE-754 operations. Tests:
``tests/kernels/test_remainder.py``.
"""

from __future__ import annotations

import torch

from repro_kernels.cpu.layout import number

_MAGNITUDE, _INFINITY, _HIDDEN = 0x7FFFFFFF, 0x7F800000, 0x800000
_DIGIT = 38
"""Bits of the quotient at a time: a remainder below 2^24, shifted, stays below 2^62."""
_DIGITS = 7
"""Enough of them for the largest difference of two exponents, 253."""


def fmod(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``x - n * y`` for n = x / y cut toward zero, exact, with the sign of x.

    Args:
        x: float32, bfloat16 or float16.
        y: of the same dtype, broadcastable with x.

    Returns:
        The broadcast shape, contiguous, in x's dtype; NaN if x is infinite or y is zero.

    Raises:
        UnsupportedError: another dtype.
    """
    return _result(_fmod(*_operands(x, y, "fmod")), x.dtype)


def remainder(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``fmod``, plus y (rounded) where it is not zero and of the other sign than y; as :func:`fmod`."""
    x32, y32 = _operands(x, y, "remainder")
    rest = _fmod(x32, y32)
    return _result(torch.where(_crosses(rest, y32), rest + y32, rest), x.dtype)


def div_trunc(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``RN(x / y)`` cut toward zero; arguments and errors as in :func:`fmod`."""
    x32, y32 = _operands(x, y, "div")
    return _result((x32 / y32).trunc(), x.dtype)


def div_floor(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The whole number below x / y in the steps of the specification; as :func:`fmod`."""
    x32, y32 = _operands(x, y, "div")
    rest, plain = _fmod(x32, y32), x32 / y32
    quotient = (x32 - rest) / y32
    quotient = torch.where(_crosses(rest, y32), quotient - 1, quotient)
    below = quotient.floor()
    whole = torch.where(quotient - below > 0.5, below + 1, below)
    whole = torch.where(quotient == 0, torch.zeros_like(plain).copysign(plain), whole)
    return _result(torch.where(y32 == 0, plain, whole), x.dtype)


def _operands(x: torch.Tensor, y: torch.Tensor, operation: str) -> tuple[torch.Tensor, torch.Tensor]:
    number(x.dtype, operation), number(y.dtype, operation)
    x, y = torch.broadcast_tensors(x, y)  # type: ignore[no-untyped-call]
    return x.to(torch.float32).contiguous(), y.to(torch.float32).contiguous()


def _result(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    rounded = value.to(dtype)
    return rounded.masked_fill(rounded.isnan(), torch.nan)


def _crosses(rest: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (rest != 0) & ((rest < 0) != (y < 0)) & ~rest.isnan()


def _fmod(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x_bits, y_bits = x.view(torch.int32), y.view(torch.int32)
    x_size, y_size = x_bits & _MAGNITUDE, y_bits & _MAGNITUDE
    x_power, x_digits = _parts(x_size)
    y_power, y_digits = _parts(y_size)
    left = (x_power - y_power).clamp_min(0)
    by = y_digits.clamp_min(1)
    rest = x_digits % by
    for _ in range(_DIGITS):
        step = left.clamp_max(_DIGIT)
        rest = (rest << step) % by
        left = left - step
    found = _float(rest, y_power)
    found = torch.where(x_size < y_size, x_size, found) | (x_bits & ~_MAGNITUDE)
    undefined = (x_size >= _INFINITY) | (y_size == 0) | (y_size > _INFINITY)
    return found.masked_fill(undefined, 0x7FC00000).view(torch.float32)


def _parts(size: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Exponent e and significand m, int64, of a magnitude's bits: m * 2^(e - 150)."""
    field = (size >> 23).to(torch.int64)
    digits = (size & (_HIDDEN - 1)).to(torch.int64)
    return field.clamp_min(1), torch.where(field > 0, digits | _HIDDEN, digits)


def _float(digits: torch.Tensor, power: torch.Tensor) -> torch.Tensor:
    """The bits of digits * 2^(power - 150), digits below 2^24, where that is a float."""
    high = torch.zeros_like(digits)  # how far up the leading bit must go to be the hidden one
    shifted = digits
    for step in (16, 8, 4, 2, 1):
        small = shifted < (_HIDDEN >> (step - 1))
        shifted = torch.where(small, shifted << step, shifted)
        high = torch.where(small, high + step, high)
    high = torch.minimum(high, power - 1)  # no further than a subnormal number's exponent allows
    shifted = digits << high
    field = torch.where(shifted >= _HIDDEN, power - high, torch.zeros_like(power))
    return ((field << 23) | (shifted & (_HIDDEN - 1))).to(torch.int32)
