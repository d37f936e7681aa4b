"""Operators whose PyTorch kernel gives the specified bits, and what keeps it so.

Evidence for each is ``tests/unit/engine/test_exact.py``, which compares them with the spec on inputs that
hurt. A 16-bit tensor with a number, in Python or in a 0-dimensional tensor, is computed in float32 and
rounded once (numerics.md: a 16-bit operator is RN16 of the fp32 operator); PyTorch rounds the number to 16
bits first or does not, by where it lies.
"""

from __future__ import annotations

from typing import Any

import torch
from repro_kernels.ops import elementary

#: Floating types the profile defines.
FLOATS = frozenset({torch.float32, torch.bfloat16, torch.float16})
_HALVES = frozenset({torch.bfloat16, torch.float16})
_OUTSIDE = frozenset({torch.float64, torch.complex32, torch.complex64, torch.complex128})

_Tensor = torch.Tensor


def is_float(value: Any) -> bool:
    """Whether ``value`` is a tensor of a floating type of the profile."""
    return isinstance(value, _Tensor) and value.dtype in FLOATS


def checked(mode: Any, func: Any, result: Any) -> Any:
    """``result``, unless its type lies outside the profile.

    Raises:
        InconclusiveError: for float64 and complex results, with operator and module.
    """
    if result.dtype in _OUTSIDE:
        name = str(result.dtype).removeprefix("torch.")
        raise mode.refuse(
            f"operator {func} gives {name}, which profile fp32 does not define", "compute in float32"
        )
    return result


def plain(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """PyTorch's kernel as it is."""
    return checked(mode, func, func(*args, **kwargs))


def _half_with_number(first: Any, second: Any) -> torch.dtype | None:
    """The 16-bit type of one operand, if the other is a number of another type."""
    for tensor, number in ((first, second), (second, first)):
        if not isinstance(tensor, _Tensor) or tensor.dtype not in _HALVES:
            continue
        if type(number) in (int, float):
            return tensor.dtype
        scalar = isinstance(number, _Tensor) and number.dim() == 0 < tensor.dim()
        if scalar and number.dtype is not tensor.dtype and not number.is_complex():
            return tensor.dtype
    return None


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, _Tensor) else value


def arithmetic(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """add, sub, mul and their kin of two operands: one rounding, in the promoted type."""
    half = _half_with_number(args[0], args[1])
    if half is not None:
        return func(_widened(args[0]), _widened(args[1]), **kwargs).to(half)
    return checked(mode, func, func(*args, **kwargs))


def add_like(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """add, sub, rsub: with alpha other than 1, RN(x + RN(alpha * y)), each step in its result type."""
    alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
    if alpha == 1:
        return arithmetic(mode, func, args[:2], {})
    if not any(is_float(value) or type(value) is float for value in (*args[:2], alpha)):
        return plain(mode, func, args, kwargs)
    name = func._schema.name.removeprefix("aten::")
    first, second = args[1::-1] if name == "rsub" else args[:2]
    product = mode.call("mul.Tensor", second, alpha) if isinstance(second, _Tensor) else second * alpha
    if not isinstance(first, _Tensor):
        return mode.call("rsub.Scalar", product, first)
    return mode.call("add.Tensor" if name == "add" else "sub.Tensor", first, product)


def divide(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """x / y; by a scalar c it is RN(x / RN(c)), never a product with 1/c."""
    first, second = args
    if isinstance(second, _Tensor):
        if second.device != first.device and second.dim() == 0:
            # By a number that lies on the host, PyTorch's GPU kernel multiplies with its reciprocal.
            second = second.to(first.device)
        return arithmetic(mode, func, (first, second), {})
    if first.dtype not in FLOATS:
        first = checked(mode, func, first.to(torch.get_default_dtype()) if not first.is_complex() else first)
    return elementary.div_scalar(first, second)


def integer_only(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Operators specified for integers and bools alone."""
    if any(isinstance(value, _Tensor) and value.dtype.is_floating_point for value in args) or any(
        type(value) is float for value in args
    ):
        raise mode.refuse(
            f"operator {func} on floats is outside profile fp32", "ask for the operator to be specified"
        )
    return func(*args, **kwargs)


def compare(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Comparisons: exact, with a scalar used as its RN in float32."""
    first, second = args
    if _half_with_number(first, second) is not None:
        return func(_widened(first), _widened(second))
    return func(first, second)
