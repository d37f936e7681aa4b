"""Normalisations (numerics.md, "Ground rules": sums, means, norms).

Each function takes one group of elements that share their statistics, flattened in logical C order. With
16-bit input everything inside is binary32 on exact upcasts and the result is rounded to 16 bits once, at the
end; a *module* that writes its own casts keeps them (:func:`rms_norm_module`).
"""

from __future__ import annotations

from repro_kernels.spec import elementary
from repro_kernels.spec.dot import Vector
from repro_kernels.spec.floats import BINARY32, Format, add, mul, rn, rn32
from repro_kernels.spec.reduce import deviations, mean_square


def _affine(xs: Vector, w: Vector | None, b: Vector | None, out: Format) -> list[float]:
    """RN_out(RN(RN(x * w) + b)); an absent w or b is an absent step."""
    scaled = xs if w is None else [mul(x, w[i]) for i, x in enumerate(xs)]
    return [rn(x if b is None else add(x, b[i]), out) for i, x in enumerate(scaled)]


def _inverse_deviation(variance: float, eps: float) -> float:
    """rsqrt(RN(var + RN(eps)))."""
    return elementary.rsqrt(add(variance, rn32(eps)))


def layer_norm(
    xs: Vector, w: Vector | None, b: Vector | None, eps: float, out: Format = BINARY32
) -> list[float]:
    """RN(RN(RN(d * rsqrt(RN(var + eps))) * w) + b), d = RN(x - mean), correction 0; rounded to `out` once.

    Args:
        xs: the elements of the normalised axes.
        w: one factor per element, or None.
        b: one summand per element, or None.
        eps: a double, used as its RN.
        out: the result's format.
    """
    d = deviations(xs)
    r = _inverse_deviation(mean_square(d), eps)
    return _affine([mul(x, r) for x in d], w, b, out)


def group_norm(
    xs: Vector, w: Vector | None, b: Vector | None, eps: float, *, channels: int, out: Format = BINARY32
) -> list[float]:
    """:func:`layer_norm` over one sample's group of channels, with w and b given per channel.

    Args:
        xs: the group's elements, channel-major: `channels` runs of equal length.
        w: one factor per channel of the group, or None.
        b: one summand per channel of the group, or None.
        eps: a double, used as its RN.
        channels: how many channels the group has.
        out: the result's format.
    """
    run = len(xs) // channels
    spread = [None if p is None else [x for x in p for _ in range(run)] for p in (w, b)]
    return layer_norm(xs, spread[0], spread[1], eps, out)


def batch_norm(
    xs: Vector,
    *,
    mean: float,
    variance: float,
    w: float | None,
    b: float | None,
    eps: float,
    out: Format = BINARY32,
) -> list[float]:
    """Evaluation mode, one channel: RN(RN(RN(RN(x - mean) * rsqrt(RN(var + eps))) * w) + b).

    Args:
        xs: the channel's elements.
        mean: the channel's running mean.
        variance: the channel's running variance.
        w: the channel's factor, or None.
        b: the channel's summand, or None.
        eps: a double, used as its RN.
        out: the result's format.
    """
    r = _inverse_deviation(variance, eps)
    n = len(xs)
    normed = [mul(add(x, -mean), r) for x in xs]
    return _affine(normed, None if w is None else [w] * n, None if b is None else [b] * n, out)


def _rms_normed(xs: Vector, eps: float) -> list[float]:
    """RN(x * rsqrt(RN(mean(RN(x*x)) + eps)))."""
    r = _inverse_deviation(mean_square(xs), eps)
    return [mul(x, r) for x in xs]


def rms_norm(xs: Vector, w: Vector | None, eps: float | None, out: Format = BINARY32) -> list[float]:
    """aten rms_norm: RN(RN(x * rsqrt(RN(mean(RN(x*x)) + eps))) * w), rounded to the input's format once.

    Args:
        xs: the elements of the normalised axes, of format `out`.
        w: one factor per element, or None.
        eps: a double, used as its RN; None is finfo(x.dtype).eps.
        out: the format of input and result.
    """
    return _affine(_rms_normed(xs, out.epsilon if eps is None else eps), w, None, out)


def rms_norm_module(
    xs: Vector,
    w: Vector,
    eps: float,
    *,
    fmt: Format = BINARY32,
    w_fmt: Format = BINARY32,
    one_plus: bool = False,
) -> list[float]:
    """The RMSNorm module of decoder models, with its own casts.

    Llama's tree: h = RN_a(RN(x * rsqrt(RN(mean(RN(x*x)) + eps)))), then w * h in the promoted type of both.
    Gemma's (`one_plus`): RN_a(RN(RN(x * rsqrt(...)) * RN(1 + w))), binary32 until its one cast.

    Args:
        xs: one token's elements, of format `fmt`.
        w: the weight, one factor per element, of format `w_fmt` as model code sees it.
        eps: a double, used as its RN.
        fmt: the activation format a, of input and (for Gemma's tree) result.
        w_fmt: the weight's format; Llama's result is of `fmt` if both agree, else binary32.
        one_plus: Gemma's tree.
    """
    normed = _rms_normed(xs, eps)
    if one_plus:
        return [rn(mul(x, add(1.0, factor)), fmt) for x, factor in zip(normed, w, strict=True)]
    result = fmt if fmt == w_fmt else BINARY32
    return [rn(mul(factor, rn(x, fmt)), result) for x, factor in zip(normed, w, strict=True)]
