"""Casts to integers and float ranges under profile ``fp32`` on CPU tensors.

The bit contract (``repro_kernels.spec.convert``): a float becomes an integer by truncation, saturated at
the ends of the type, NaN to 0; ranges are exact expressions rounded once. Tests:
``tests/kernels/test_convert.py``.
"""

from __future__ import annotations

import math

import torch

from repro_kernels.cpu.layout import number
from repro_kernels.errors import UnsupportedError
from repro_kernels.spec import convert
from repro_kernels.spec.floats import FORMATS

_FORMATS = {
    torch.float32: FORMATS["fp32"],
    torch.bfloat16: FORMATS["bf16"],
    torch.float16: FORMATS["fp16"],
}


def to_integer(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A floating tensor as integers.

    Args:
        x: float32, bfloat16 or float16.
        dtype: an integer dtype of at most 64 bits (bool is a comparison with zero, and not this).

    Raises:
        UnsupportedError: another dtype on either side.
    """
    number(x.dtype, "a cast to integers")
    if dtype.is_floating_point or dtype.is_complex or dtype in (torch.bool, torch.uint64):
        raise UnsupportedError(f"a saturating cast to {dtype}")
    info = torch.iinfo(dtype)
    wide = x.to(torch.float64)
    # 2^63 - 1 is no double, so the ends are tested as powers of two, and the values between converted
    above, below = wide >= float(info.max + 1), wide <= float(info.min)
    inside = wide.masked_fill(above | below | wide.isnan(), 0.0)
    result = inside.to(torch.int64)
    return result.masked_fill(above, info.max).masked_fill(below, info.min).to(dtype)


def arange(start: float, end: float, step: float = 1, *, dtype: torch.dtype) -> torch.Tensor:
    """``RN(start + i * step)``, exact before its one rounding.

    Args:
        start: the first element, a double.
        end: not reached; the count is torch's, ``ceil((end - start) / step)`` in binary64.
        step: a double, not 0.
        dtype: float32, bfloat16 or float16.

    Raises:
        UnsupportedError: another dtype.
        ValueError: no finite count comes of the arguments.
    """
    number(dtype, "arange")
    if step == 0 or not all(math.isfinite(v) for v in (start, end, step)):
        raise ValueError(f"arange from {start} to {end} by {step} has no length")
    count = math.ceil((end - start) / step)
    if count < 0:
        raise ValueError(f"arange: {end} does not lie in the direction of {step} from {start}")
    whole = float(start).is_integer() and float(step).is_integer()
    if whole and abs(start) + count * abs(step) <= 1 << 24:
        # float32 holds these integers, so a conversion to any of the types rounds once at most
        return (torch.arange(count, dtype=torch.int64) * int(step) + int(start)).to(torch.float32).to(dtype)
    return torch.tensor(convert.arange(start, step, count, _FORMATS[dtype]), dtype=dtype)


def linspace(start: float, end: float, count: int, *, dtype: torch.dtype) -> torch.Tensor:
    """``RN(start + i * (end - start) / (count - 1))``, exact before its one rounding.

    Args:
        start: the first element, a finite double.
        end: the last, a finite double.
        count: how many, at least 0; with 1 it is start.
        dtype: float32, bfloat16 or float16.

    Raises:
        UnsupportedError: another dtype.
        ValueError: a negative count, or an end that is not finite.
    """
    number(dtype, "linspace")
    if count < 0 or not (math.isfinite(start) and math.isfinite(end)):
        raise ValueError(f"linspace from {start} to {end} in {count} steps is not defined")
    return torch.tensor(convert.linspace(start, end, count, _FORMATS[dtype]), dtype=dtype)
