"""Composites for kernels: the trees of ``repro_kernels.spec.composite``, every step rounded to binary32.

Arguments and results are float32 blocks; parameters float32 scalars. NaN results may have any payload: stores
(:func:`repro_kernels.gpu.language.store`) make them canonical. Where one of two equal operands is chosen
(+0 and -0), it is the first, and a NaN stays.
"""

from __future__ import annotations

import triton
import triton.language as tl

from repro_kernels.gpu.elementary_core import exp_rn, expm1_rn, log1p_rn, tanh_rn
from repro_kernels.gpu.hyperbolic import erf_rn


@triton.jit
def f32(value: tl.constexpr):
    """A binary32 scalar."""
    return tl.full([], value, tl.float32)


@triton.jit
def negative(x):
    """-x by the sign bit (Triton's minus subtracts from +0)."""
    return (x.to(tl.int32, bitcast=True) ^ -0x80000000).to(tl.float32, bitcast=True)


@triton.jit
def maximum(x, y):
    """y where x < y, else x."""
    return tl.where(x < y, y, x)


@triton.jit
def minimum(x, y):
    """y where x > y, else x."""
    return tl.where(x > y, y, x)


@triton.jit
def sigmoid_rn(x):
    """RN(1 / RN(1 + exp(-x)))."""
    return tl.div_rn(f32(1.0), 1.0 + exp_rn(negative(x)))


@triton.jit
def silu_rn(x):
    """RN(x / RN(1 + exp(-x)))."""
    return tl.div_rn(x, 1.0 + exp_rn(negative(x)))


@triton.jit
def gelu_rn(x):
    """RN(RN(0.5 * x) * RN(1 + erf(RN(x * 0x1.6a09e6p-1))))."""
    return (0.5 * x) * (1.0 + erf_rn(x * 0.7071067690849304))


@triton.jit
def gelu_tanh_rn(x):
    """RN(RN(0.5 * x) * RN(1 + tanh(RN(0x1.988454p-1 * RN(x + RN(0x1.6e4e26p-5 * RN(RN(x*x)*x)))))))."""
    inner = x + 0.044714998453855515 * ((x * x) * x)
    return (0.5 * x) * (1.0 + tanh_rn(0.7978845834732056 * inner))


@triton.jit
def softplus_rn(x, beta, threshold):
    """t = RN(x * beta); x where t > threshold, else RN(log1p(exp(t)) / beta)."""
    t = x * beta
    return tl.where(t > threshold, x, tl.div_rn(log1p_rn(exp_rn(t)), beta))


@triton.jit
def elu_rn(x, alpha, scale, input_scale):
    """RN(RN(alpha * scale) * expm1(RN(x * input_scale))) where x <= 0, else RN(x * scale)."""
    return tl.where(x <= 0.0, (alpha * scale) * expm1_rn(x * input_scale), x * scale)


@triton.jit
def mish_rn(x):
    """RN(x * tanh(log1p(exp(x))))."""
    return x * tanh_rn(log1p_rn(exp_rn(x)))


@triton.jit
def log_sigmoid_rn(x):
    """RN((x where x < 0, else +0) - log1p(exp(-|x|)))."""
    magnitude = (x.to(tl.int32, bitcast=True) | -0x80000000).to(tl.float32, bitcast=True)
    return tl.where(x < 0.0, x, 0.0) - log1p_rn(exp_rn(magnitude))


@triton.jit
def hardsigmoid_rn(x):
    """RN(min(max(RN(x + 3), 0), 6) / 6)."""
    return tl.div_rn(minimum(maximum(x + 3.0, 0.0), 6.0), f32(6.0))


@triton.jit
def hardswish_rn(x):
    """RN(RN(x * min(max(RN(x + 3), 0), 6)) / 6)."""
    return tl.div_rn(x * minimum(maximum(x + 3.0, 0.0), 6.0), f32(6.0))


@triton.jit
def hardtanh_rn(x, low, high):
    """min(max(x, low), high)."""
    return minimum(maximum(x, low), high)


@triton.jit
def relu_rn(x):
    """max(x, 0): -0 stays -0."""
    return maximum(x, 0.0)


@triton.jit
def leaky_relu_rn(x, slope):
    """x where x > 0, else RN(x * slope)."""
    return tl.where(x > 0.0, x, x * slope)
