"""Elementary functions and composites over CUDA tensors: the names, arguments, errors and bits of
``repro_kernels.cpu.elementary``.

A float32 result is the real function's value rounded to nearest even, or the composite's tree, each step
rounded; a 16-bit result is one more rounding of it, on the operand upcast exactly. The functions themselves,
their error bounds and their cost are in ``elementary_core.py``, ``hyperbolic.py``, ``trigonometric.py``,
``inverse_trigonometric.py``, ``composite.py`` and ``pow.py``. Tests: ``tests/gpu/cases_elementary.py``.
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl

from repro_kernels.arguments import composite_parameters
from repro_kernels.cpu.elementary import ALIASES, COMPOSITE, ELEMENTARY, SUPPORTED
from repro_kernels.errors import UnsupportedError
from repro_kernels.gpu import composite as trees
from repro_kernels.gpu import elementary_core as core
from repro_kernels.gpu import hyperbolic, inverse_trigonometric, trigonometric
from repro_kernels.gpu.language import load, store
from repro_kernels.gpu.pow import pow_rn
from repro_kernels.gpu.runtime import POINTERS, Build, device_of, launch
from repro_kernels.spec.floats import rn32

__all__ = ["BUILDS", "COMPOSITE", "ELEMENTARY", "SUPPORTED", "composite", "div_scalar", "pow", "unary"]

_BLOCK: Final = 512
"""Elements of a program of four warps: four a thread, so that the second step needs few registers."""

_POW_BLOCK: Final = 128
"""One element a thread: the second step of pow is some 3,000 instructions long."""

_FLOATS: Final = (torch.float32, torch.bfloat16, torch.float16)


@triton.jit
def _function(x, p0, p1, p2, NAME: tl.constexpr):
    """The function NAME of a float32 block; p0, p1, p2 the parameters of a composite in ATen's order."""
    if NAME == "exp":
        return core.exp_rn(x)
    elif NAME == "exp2":
        return core.exp2_rn(x)
    elif NAME == "expm1":
        return core.expm1_rn(x)
    elif NAME == "log":
        return core.log_rn(x)
    elif NAME == "log2":
        return core.log2_rn(x)
    elif NAME == "log10":
        return core.log10_rn(x)
    elif NAME == "log1p":
        return core.log1p_rn(x)
    elif NAME == "sin":
        return trigonometric.sin_rn(x)
    elif NAME == "cos":
        return trigonometric.cos_rn(x)
    elif NAME == "tan":
        return trigonometric.tan_rn(x)
    elif NAME == "asin":
        return inverse_trigonometric.asin_rn(x)
    elif NAME == "acos":
        return inverse_trigonometric.acos_rn(x)
    elif NAME == "atan":
        return inverse_trigonometric.atan_rn(x)
    elif NAME == "sinh":
        return hyperbolic.sinh_rn(x)
    elif NAME == "cosh":
        return hyperbolic.cosh_rn(x)
    elif NAME == "tanh":
        return core.tanh_rn(x)
    elif NAME == "erf":
        return hyperbolic.erf_rn(x)
    elif NAME == "erfc":
        return hyperbolic.erfc_rn(x)
    elif NAME == "rsqrt":
        return core.rsqrt_rn(x)
    elif NAME == "sqrt":
        return core.sqrt_rn(x)
    elif NAME == "reciprocal":
        return core.reciprocal_rn(x)
    else:
        return _composite(x, p0, p1, p2, NAME)


@triton.jit
def _composite(x, p0, p1, p2, NAME: tl.constexpr):
    if NAME == "sigmoid":
        return trees.sigmoid_rn(x)
    elif NAME == "silu":
        return trees.silu_rn(x)
    elif NAME == "gelu":
        return trees.gelu_rn(x)
    elif NAME == "gelu_tanh":
        return trees.gelu_tanh_rn(x)
    elif NAME == "softplus":
        return trees.softplus_rn(x, p0, p1)
    elif NAME == "elu":
        return trees.elu_rn(x, p0, p1, p2)
    elif NAME == "mish":
        return trees.mish_rn(x)
    elif NAME == "log_sigmoid":
        return trees.log_sigmoid_rn(x)
    elif NAME == "hardsigmoid":
        return trees.hardsigmoid_rn(x)
    elif NAME == "hardswish":
        return trees.hardswish_rn(x)
    elif NAME == "hardtanh":
        return trees.hardtanh_rn(x, p0, p1)
    elif NAME == "relu":
        return trees.relu_rn(x)
    elif NAME == "leaky_relu":
        return trees.leaky_relu_rn(x, p0)
    elif NAME == "square":
        return x * x
    elif NAME == "power_half":
        # pow(-0, 1/2) = +0, pow(-infinity, 1/2) = +infinity
        return tl.where(x == float("-inf"), float("inf"), tl.sqrt_rn(x) + 0.0)
    else:
        tl.static_assert(NAME == "div_scalar")
        return tl.div_rn(x, p0)


@triton.jit
def _unary(x, y, n, p0, p1, p2, NAME: tl.constexpr, BLOCK: tl.constexpr):
    """y[i] = NAME(x[i]) for n contiguous elements; y may be x."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v = load(x + i, inside)
    if NAME == "identity":
        store(y + i, v, inside)
    else:
        store(y + i, _function(v, p0, p1, p2, NAME), inside)


@triton.jit
def _pow(x, y, z, n, BLOCK: tl.constexpr):
    """z[i] = x[i] to the power y[i] for n contiguous elements."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    store(z + i, pow_rn(load(x + i, inside), load(y + i, inside)), inside)


@triton.jit
def _pow_scalar(x, exponent, z, n, BLOCK: tl.constexpr):
    """z[i] = x[i] to one float32 power for n contiguous elements."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v = load(x + i, inside)
    store(z + i, pow_rn(v, tl.zeros([BLOCK], tl.float32) + exponent), inside)


def unary(name: str, x: torch.Tensor, *, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """The function ``name`` of every element, parameters of a composite at their defaults.

    Args:
        name: one of :data:`SUPPORTED`.
        x: operand, any shape.
        out_dtype: result type; default that of x.

    Raises:
        UnsupportedError: an unknown name, another device, a dtype other than float32, bfloat16, float16.
    """
    if name not in SUPPORTED:
        raise UnsupportedError(f"elementwise function {name}")
    function, parameters = ALIASES.get(name, (name, tuple(COMPOSITE.get(name, {}).values())))
    return _run(name, function, x, out_dtype, parameters)


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
    return _run(name, name, x, out_dtype, values)


def div_scalar(x: torch.Tensor, c: float, *, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """``RN(x / RN(c))``, never a product with 1/c. Arguments and errors as :func:`unary`."""
    return _run("division", "div_scalar", x, out_dtype, (c,))


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
        return _run("pow", "pow_scalar", x, out_dtype, (y,))
    if not isinstance(y, torch.Tensor):
        raise UnsupportedError("pow of two numbers")
    kind = out_dtype or torch.result_type(x, y)
    if not isinstance(x, torch.Tensor):
        x = torch.full((), rn32(x), dtype=torch.float32, device=y.device)
    for operand in (x, y):
        if operand.dtype not in _FLOATS or kind not in _FLOATS:
            raise UnsupportedError(f"pow of {operand.dtype} to {kind} on {operand.device.type}")
    device_of(x, y)
    base, exponent = torch.broadcast_tensors(x, y)
    base, exponent = base.contiguous(), exponent.contiguous()
    out = torch.empty(base.shape, dtype=kind, device=base.device)
    n = out.numel()
    launch(_pow, -(-n // _POW_BLOCK), base, exponent, out, n, BLOCK=_POW_BLOCK)
    return out


# Exponents that have an operation of their own whose result is the correctly rounded power.
_POWERS: Final = {2.0: "square", 1.0: "identity", -1.0: "reciprocal", 0.5: "power_half"}


def _run(
    name: str, function: str, x: torch.Tensor, out_dtype: torch.dtype | None, parameters: tuple[float, ...]
) -> torch.Tensor:
    kind = out_dtype or x.dtype
    if x.dtype not in _FLOATS or kind not in _FLOATS:
        raise UnsupportedError(f"{name} of {x.dtype} to {kind} on {x.device.type}")
    device_of(x)
    out = torch.empty_like(x, dtype=kind)
    # A dense operand's layout is that of `out`; both are then plain runs of memory in the same order.
    plain = x.is_contiguous() or out.stride() == x.stride()
    source = x if plain else x.contiguous()
    result = out if plain else torch.empty_like(source, dtype=kind)
    n = x.numel()
    values = [rn32(float(p)) for p in parameters]
    if function == "pow_scalar":
        function = _POWERS.get(values[0], function)
    if function == "pow_scalar":
        launch(_pow_scalar, -(-n // _POW_BLOCK), source, values[0], result, n, BLOCK=_POW_BLOCK)
    else:
        p0, p1, p2 = [*values, 0.0, 0.0, 0.0][:3]
        launch(_unary, -(-n // _BLOCK), source, result, n, p0, p1, p2, NAME=function, BLOCK=_BLOCK)
    return result if plain else out.copy_(result)


_PLAIN: Final = frozenset({
    "sqrt", "reciprocal", "hardsigmoid", "hardswish", "hardtanh", "relu", "leaky_relu", "div_scalar",
    "square", "power_half", "identity",
})  # fmt: skip
"""What is made of binary32 operations alone, none of them a fused one."""


def _build(function: str, source: torch.dtype, target: torch.dtype) -> Build:
    signature = {"x": POINTERS[source], "y": POINTERS[target], "n": "i32"}
    signature.update({"p0": "fp32", "p1": "fp32", "p2": "fp32"})
    return Build(
        _unary, signature, {"NAME": function, "BLOCK": _BLOCK}, divisible=("x", "y", "n"),
        fma=function not in _PLAIN,
    )  # fmt: skip


BUILDS: Final = (
    *(_build(name, torch.float32, torch.float32) for name in ELEMENTARY),
    *(_build(name, torch.bfloat16, torch.bfloat16) for name in COMPOSITE if name != "mish"),
    _build("div_scalar", torch.float16, torch.float32),
    _build("square", torch.float32, torch.bfloat16),
    _build("power_half", torch.float32, torch.float32),
    _build("identity", torch.float32, torch.float16),
    Build(
        _pow,
        {"x": "*fp32", "y": "*fp32", "z": "*fp32", "n": "i32"},
        {"BLOCK": _POW_BLOCK},
        divisible=("x", "y", "z", "n"),
    ),
    Build(
        _pow_scalar,
        {"x": "*bf16", "exponent": "fp32", "z": "*bf16", "n": "i32"},
        {"BLOCK": _POW_BLOCK},
        divisible=("x", "z", "n"),
    ),
)
"""Specialisations that the compile test looks at."""
