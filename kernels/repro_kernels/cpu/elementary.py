"""Elementary functions and composites over CPU tensors: correctly rounded, the same bits everywhere.

The bit contract (``repro_kernels.spec.elementary`` and ``.composite``): a float32 result is the real
function's value rounded to nearest even, or the composite's tree, each step rounded; a 16-bit result is one
more rounding of it, on the operand upcast exactly. Subnormals are kept, NaN results are the canonical one,
specials follow C Annex F. The bits depend on the operand alone: not on strides, thread count or instruction
set. Tests: ``tests/kernels/test_elementary*.py``, ``test_composite*.py``.

Operands: float32, bfloat16, float16 on the CPU, any strides, any size down to 0. Results have the operand's
layout where it is dense, as PyTorch's do. Up to 16,384 values run on the calling thread.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Final

import torch

from repro_kernels.arguments import composite_parameters
from repro_kernels.cpu import native
from repro_kernels.errors import UnsupportedError

ELEMENTARY: Final = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "erf", "erfc", "rsqrt", "sqrt", "reciprocal",
)  # fmt: skip
"""Functions of one argument, correctly rounded, in the order of ``RK_UNARY`` (``csrc/elementary.h``)."""

COMPOSITE: Final[dict[str, dict[str, float]]] = {
    "sigmoid": {},
    "silu": {},
    "gelu": {},
    "gelu_tanh": {},
    "softplus": {"beta": 1.0, "threshold": 20.0},
    "elu": {"alpha": 1.0, "scale": 1.0, "input_scale": 1.0},
    "mish": {},
    "log_sigmoid": {},
    "hardsigmoid": {},
    "hardswish": {},
    "hardtanh": {"min_val": -1.0, "max_val": 1.0},
    "relu": {},
    "leaky_relu": {"negative_slope": 0.01},
}
"""Composite -> its parameters in ATen's order, with ATen's names and defaults; each is used as its RN."""

ALIASES: Final[dict[str, tuple[str, tuple[float, ...]]]] = {
    "selu": ("elu", (1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0)),
    "relu6": ("hardtanh", (0.0, 6.0, 0.0)),
}
"""Another name -> the composite it is, with these parameters; hardtanh has no third."""

SUPPORTED: Final = frozenset(ELEMENTARY) | frozenset(COMPOSITE) | frozenset(ALIASES)
"""Names that :func:`unary` takes."""

_INTERNAL: Final = ("identity", "div_scalar", "pow_scalar")
_NUMBERS: Final = {name: number for number, name in enumerate([*ELEMENTARY, *COMPOSITE, *_INTERNAL])}
_DTYPES: Final = {getattr(torch, name): number for name, number in native.DTYPES.items()}
_Parameters = ctypes.c_double * 3

# Name -> (number in the C table, its parameters at their defaults).
_CALLS: Final[dict[str, tuple[int, Any]]] = {
    name: (_NUMBERS[name], _Parameters(*COMPOSITE.get(name, {}).values()))
    for name in (*ELEMENTARY, *COMPOSITE)
}
_CALLS.update({name: (_NUMBERS[target], _Parameters(*values)) for name, (target, values) in ALIASES.items()})


def unary(name: str, x: torch.Tensor, *, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """The function ``name`` of every element, parameters of a composite at their defaults.

    Args:
        name: one of :data:`SUPPORTED`.
        x: operand, any shape.
        out_dtype: result type; default that of x.

    Raises:
        UnsupportedError: an unknown name, another device, a dtype other than float32, bfloat16, float16.
    """
    call = _CALLS.get(name)
    if call is None:
        raise UnsupportedError(f"elementwise function {name}")
    return _run(name, call[0], x, out_dtype, call[1])


def composite(
    name: str, x: torch.Tensor, *parameters: float, out_dtype: torch.dtype | None = None, **named: float
) -> torch.Tensor:
    """A composite with parameters, given in ATen's order or by ATen's names.

    Args:
        name: a key of :data:`COMPOSITE`.
        x: operand, any shape.
        parameters: the leading ones; the rest have their defaults.
        out_dtype: result type; default that of x.
        named: parameters by name.

    Raises:
        UnsupportedError: as :func:`unary`, or a parameter that the composite does not have.
    """
    values = composite_parameters(name, COMPOSITE.get(name), parameters, named)
    return _run(name, _NUMBERS[name], x, out_dtype, _Parameters(*map(float, values)))


def div_scalar(x: torch.Tensor, c: float, *, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """``RN(x / RN(c))``, never a product with 1/c. Arguments and errors as :func:`unary`."""
    return _run("division", _NUMBERS["div_scalar"], x, out_dtype, _Parameters(float(c)))


def pow(
    x: torch.Tensor | float, y: torch.Tensor | float, *, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    """x to the power y, correctly rounded for every exponent, specials as C Annex F.

    Args:
        x: base, a tensor or a number (used as its RN).
        y: exponent, likewise; at least one of the two is a tensor. Tensors broadcast.
        out_dtype: result type; default what PyTorch's promotion gives.

    Raises:
        UnsupportedError: as :func:`unary`, or no tensor.
    """
    if isinstance(x, torch.Tensor) and not isinstance(y, torch.Tensor):
        return _run("pow", _NUMBERS["pow_scalar"], x, out_dtype, _Parameters(float(y)))
    if not isinstance(x, torch.Tensor) and not isinstance(y, torch.Tensor):
        raise UnsupportedError("pow of two numbers")
    kind = out_dtype or torch.result_type(x, y)
    base, exponent = torch.broadcast_tensors(_operand(x), _operand(y))  # type: ignore[no-untyped-call]
    result = torch.empty(base.shape, dtype=torch.float32)
    base, exponent = base.contiguous(), exponent.contiguous()
    _functions()[1](base.data_ptr(), exponent.data_ptr(), result.data_ptr(), result.numel())
    if kind is torch.float32:
        return result
    return _run("pow", _NUMBERS["identity"], result, kind, None)


def _operand(value: torch.Tensor | float) -> torch.Tensor:
    """As float32: an exact upcast, or RN of a number."""
    if isinstance(value, torch.Tensor):
        return _run("pow", _NUMBERS["identity"], value, torch.float32, None)
    return torch.tensor(value, dtype=torch.float64).to(torch.float32)


@functools.cache
def _functions() -> tuple[Any, Any]:
    """The C entry points ``unary`` and ``pow``."""
    unary_entry, pow_entry = native.fn("unary"), native.fn("pow")
    unary_entry.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    pow_entry.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    unary_entry.restype = pow_entry.restype = None
    return unary_entry, pow_entry


def _run(
    name: str, number: int, x: torch.Tensor, out_dtype: torch.dtype | None, parameters: Any
) -> torch.Tensor:
    source = _DTYPES.get(x.dtype)
    target = source if out_dtype is None else _DTYPES.get(out_dtype)
    if source is None or target is None or not x.is_cpu:
        raise UnsupportedError(f"{name} of {x.dtype} to {out_dtype or x.dtype} on {x.device.type}")
    out = torch.empty_like(x) if target == source else torch.empty_like(x, dtype=out_dtype)
    code = number | source << 8 | target << 12
    # A dense operand's layout is that of `out`; both are then plain runs of memory in the same order.
    if x.is_contiguous() or out.stride() == x.stride():
        _functions()[0](code, x.data_ptr(), out.data_ptr(), x.numel(), parameters)
        return out
    packed = x.contiguous()
    result = torch.empty_like(packed, dtype=out.dtype)
    _functions()[0](code, packed.data_ptr(), result.data_ptr(), x.numel(), parameters)
    return out.copy_(result)
