"""Maxima, sorting and selection (numerics.md, "Ground rules": NaN, +0 and -0).

+0 and -0 compare equal, and the first operand or the lowest index wins; the winner's own bits, sign of zero
included, are the result. A NaN is the result of any maximum or minimum that meets one, the first if there are
several; for sorting and top-k it counts as greater than every number.
"""

from __future__ import annotations

import math

from repro_kernels.spec.dot import Vector
from repro_kernels.spec.floats import INF


def _rank(x: float) -> tuple[bool, float]:
    """A key that orders values: numbers by value (-0 equals +0), NaN after infinity."""
    return (True, 0.0) if math.isnan(x) else (False, x)


def argmax(xs: Vector) -> int:
    """The lowest index among the greatest elements; the first NaN if there is one."""
    return max(range(len(xs)), key=lambda i: (_rank(xs[i]), -i))


def argmin(xs: Vector) -> int:
    """The lowest index among the least elements; the first NaN if there is one."""
    return argmax([-x for x in xs])


def amax(xs: Vector) -> float:
    """The element at :func:`argmax`; `max(dim)` gives both."""
    return xs[argmax(xs)]


def amin(xs: Vector) -> float:
    """The element at :func:`argmin`; `min(dim)` gives both."""
    return xs[argmin(xs)]


def maximum(x: float, y: float) -> float:
    """The greater of two, the first if they compare equal."""
    return amax([x, y])


def minimum(x: float, y: float) -> float:
    """The lesser of two, the first if they compare equal."""
    return amin([x, y])


def relu(x: float) -> float:
    """maximum(x, +0): -0 stays -0, NaN stays NaN."""
    return maximum(x, 0.0)


def clamp(x: float, low: float = -INF, high: float = INF) -> float:
    """minimum(maximum(x, low), high)."""
    return minimum(maximum(x, low), high)


def argsort(xs: Vector, descending: bool = False) -> list[int]:
    """Indices in order of value, NaN as the greatest, equal values by ascending index in both directions."""
    return sorted(range(len(xs)), key=lambda i: _rank(xs[i]), reverse=descending)


def topk(xs: Vector, k: int, largest: bool = True) -> list[int]:
    """The first k indices of :func:`argsort`, best first; at the edge the lowest indices stay."""
    return argsort(xs, descending=largest)[:k]
