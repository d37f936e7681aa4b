"""Sums and what is made of them (numerics.md, "Ground rules": sums, means, cumsum).

A function reduces one row: the elements that torch would reduce together, flattened in logical C order.
"""

from __future__ import annotations

from fractions import Fraction

from repro_kernels.spec.dot import Vector, segments
from repro_kernels.spec.floats import BINARY32, Format, add, div, mul, rn, rn32, sqrt, sub


def segment_sum(ts: Vector, start: int = 0) -> float:
    """The segment rule on elements already rounded: p = RN(p + t), acc = RN(acc + p), both from +0.

    Args:
        ts: the elements.
        start: position of the first element; 0 unless the axis is a position axis.
    """
    acc = 0.0
    for segment in segments(len(ts), start):
        p = 0.0
        for i in segment:
            p = add(p, ts[i])
        acc = add(acc, p)
    return acc


def sum(xs: Vector, out: Format = BINARY32) -> float:
    """RN_out(segment sum)."""
    return rn(segment_sum(xs), out)


def mean(xs: Vector, out: Format = BINARY32) -> float:
    """RN_out(RN(sum / RN(n))); the mean of nothing is NaN."""
    return rn(div(segment_sum(xs), rn32(len(xs))), out)


def deviations(xs: Vector) -> list[float]:
    """d = RN(x - mean), the mean in binary32."""
    center = mean(xs)
    return [sub(x, center) for x in xs]


def mean_square(ts: Vector, correction: float = 0) -> float:
    """RN(sum of RN(t*t) / RN(max(n - correction, 0))), the divisor exact before it is rounded."""
    divisor = max(Fraction(len(ts)) - Fraction(correction), Fraction(0))
    return div(segment_sum([mul(t, t) for t in ts]), rn32(divisor))


def var(xs: Vector, correction: float = 1, out: Format = BINARY32) -> float:
    """RN_out(RN(sum of RN(d*d) / RN(n - correction))), d = RN(x - mean)."""
    return rn(mean_square(deviations(xs), correction), out)


def std(xs: Vector, correction: float = 1, out: Format = BINARY32) -> float:
    """RN_out(RN(sqrt(var))), the variance in binary32."""
    return rn(sqrt(var(xs, correction)), out)


def cumsum(xs: Vector, out: Format = BINARY32) -> list[float]:
    """c_i = RN(c_{i-1} + x_i), i ascending, c from +0 and kept in binary32; each result RN_out(c_i)."""
    c = 0.0
    result = []
    for x in xs:
        c = add(c, x)
        result.append(rn(c, out))
    return result
