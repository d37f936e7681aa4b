"""Composites: fixed trees of rounded steps (numerics.md, "Composites"). Specified is only what is here.

Every ``add``, ``sub``, ``mul``, ``div`` and elementary function below rounds once to binary32; constants
are hexadecimal, so no decimal conversion stands between the text and the bits. Arguments and results are
binary32 numbers carried as Python floats. Parameters (beta, slope, ...) are given as binary64 and used as
their RN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from repro_kernels.spec.elementary import erf, exp, expm1, log1p, tanh
from repro_kernels.spec.floats import add, div, mul, rn32, sub

_HALF: Final = 0.5
_SQRT_HALF: Final = float.fromhex("0x1.6a09e6p-1")
_SQRT_TWO_OVER_PI: Final = float.fromhex("0x1.988454p-1")
_GELU_CUBIC: Final = float.fromhex("0x1.6e4e26p-5")
_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946


def maximum(x: float, y: float) -> float:
    """The greater; x if they are equal (+0 and -0 are), and a NaN x stays; y is a constant."""
    return y if x < y else x


def minimum(x: float, y: float) -> float:
    """The lesser, likewise."""
    return y if x > y else x


def sigmoid(x: float) -> float:
    """RN(1 / RN(1 + exp(-x)))."""
    return div(1.0, add(1.0, exp(-x)))


def silu(x: float) -> float:
    """RN(x / RN(1 + exp(-x)))."""
    return div(x, add(1.0, exp(-x)))


def gelu(x: float) -> float:
    """RN(RN(0.5 * x) * RN(1 + erf(RN(x * 0x1.6a09e6p-1))))."""
    return mul(mul(_HALF, x), add(1.0, erf(mul(x, _SQRT_HALF))))


def gelu_tanh(x: float) -> float:
    """RN(RN(0.5 * x) * RN(1 + tanh(RN(0x1.988454p-1 * RN(x + RN(0x1.6e4e26p-5 * RN(RN(x*x)*x)))))))."""
    inner = add(x, mul(_GELU_CUBIC, mul(mul(x, x), x)))
    return mul(mul(_HALF, x), add(1.0, tanh(mul(_SQRT_TWO_OVER_PI, inner))))


def softplus(x: float, beta: float = 1.0, threshold: float = 20.0) -> float:
    """t = RN(x * beta); x where t > threshold, else RN(log1p(exp(t)) / beta)."""
    b = rn32(beta)
    t = mul(x, b)
    return x if t > rn32(threshold) else div(log1p(exp(t)), b)


def elu(x: float, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> float:
    """RN(RN(alpha * scale) * expm1(RN(x * input_scale))) where x <= 0, else RN(x * scale)."""
    a, s, i = rn32(alpha), rn32(scale), rn32(input_scale)
    return mul(mul(a, s), expm1(mul(x, i))) if x <= 0 else mul(x, s)


def selu(x: float) -> float:
    """elu with alpha = 1.67326..., scale = 1.05070... (the doubles that PyTorch has)."""
    return elu(x, _SELU_ALPHA, _SELU_SCALE, 1.0)


def mish(x: float) -> float:
    """RN(x * tanh(log1p(exp(x))))."""
    return mul(x, tanh(log1p(exp(x))))


def log_sigmoid(x: float) -> float:
    """RN((x where x < 0, else +0) - log1p(exp(-|x|)))."""
    return sub(x if x < 0 else 0.0, log1p(exp(-abs(x))))


def hardsigmoid(x: float) -> float:
    """RN(min(max(RN(x + 3), 0), 6) / 6)."""
    return div(minimum(maximum(add(x, 3.0), 0.0), 6.0), 6.0)


def hardswish(x: float) -> float:
    """RN(RN(x * min(max(RN(x + 3), 0), 6)) / 6)."""
    return div(mul(x, minimum(maximum(add(x, 3.0), 0.0), 6.0)), 6.0)


def hardtanh(x: float, min_val: float = -1.0, max_val: float = 1.0) -> float:
    """min(max(x, min_val), max_val)."""
    return minimum(maximum(x, rn32(min_val)), rn32(max_val))


def relu6(x: float) -> float:
    """min(max(x, 0), 6)."""
    return hardtanh(x, 0.0, 6.0)


def relu(x: float) -> float:
    """max(x, 0): -0 stays -0, the first of two equal operands."""
    return maximum(x, 0.0)


def leaky_relu(x: float, negative_slope: float = 0.01) -> float:
    """x where x > 0, else RN(x * negative_slope)."""
    return x if x > 0 else mul(x, rn32(negative_slope))


def div_scalar(x: float, c: float) -> float:
    """RN(x / RN(c))."""
    return div(x, rn32(c))


FUNCTIONS: Final[dict[str, Callable[..., float]]] = {
    f.__name__: f
    for f in (
        sigmoid, silu, gelu, gelu_tanh, softplus, elu, selu, mish, log_sigmoid, hardsigmoid, hardswish,
        hardtanh, relu6, relu, leaky_relu,
    )
}  # fmt: skip
"""Name -> tree, further parameters at ATen's defaults."""
