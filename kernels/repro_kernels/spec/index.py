"""Writes through an index (numerics.md, "Ground rules": atomics on floats never).

``scatter_add`` and ``scatter`` are these along their axis, one row at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from repro_kernels.spec.dot import Vector
from repro_kernels.spec.floats import BINARY32, Format, add, mul, rn, rn32


def index_add(
    own: Vector, index: Sequence[int], source: Vector, alpha: float = 1.0, fmt: Format = BINARY32
) -> list[float]:
    """own[index_i] = RN_fmt(RN(own[index_i] + RN(alpha * source_i))), i ascending, own's value first.

    With alpha = 1 the product is the source itself, and a sum of two 16-bit numbers rounded to binary32 first
    is the sum rounded once: one rounding to own's type per addition.

    Args:
        own: the row added into, of format `fmt`.
        index: where each source element goes.
        source: elements of format `fmt`.
        alpha: a double, used as its RN.
        fmt: the one rounding per addition is to this format.
    """
    result = list(own)
    for i, s in zip(index, source, strict=True):
        result[i] = rn(add(result[i], mul(rn32(alpha), s)), fmt)
    return result


def scatter(own: Vector, index: Sequence[int], source: Vector) -> list[float]:
    """own[index_i] = source_i, i ascending: of several writes to one place the last wins."""
    result = list(own)
    for i, s in zip(index, source, strict=True):
        result[i] = s
    return result
