"""Softmax, masks and attention as a composition (numerics.md, "Profile fp32 (v1)")."""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro_kernels.errors import NonFiniteError
from repro_kernels.spec import elementary
from repro_kernels.spec.dot import Matrix, Vector, dot
from repro_kernels.spec.floats import BINARY32, NAN, Format, div, mul, rn, rn32, sub
from repro_kernels.spec.reduce import segment_sum


def _maximum(xs: Vector) -> float:
    """max of a row: NaN if there is one, else the greatest; -inf for an empty row."""
    return NAN if any(math.isnan(x) for x in xs) else max(xs, default=-math.inf)


def _exponentials(xs: Vector, allowed: Sequence[bool], start: int) -> tuple[list[float], float]:
    """e_i = exp(RN(x_i - m)) at allowed entries, +0 elsewhere, and s by the segment rule."""
    m = _maximum([x for x, a in zip(xs, allowed, strict=True) if a])
    if m == -math.inf:
        return [0.0] * len(xs), 0.0
    e = [elementary.exp(sub(x, m)) if a else 0.0 for x, a in zip(xs, allowed, strict=True)]
    return e, segment_sum(e, start)  # a masked +0 leaves p, which is never -0, as it is


def softmax(
    xs: Vector, allowed: Sequence[bool] | None = None, out: Format = BINARY32, start: int = 0
) -> list[float]:
    """y_i = RN_out(RN(e_i / s)), m = max, e_i = exp(RN(x_i - m)), s the segment-rule sum.

    Args:
        xs: one row; softmax(x, dtype=d) casts x to d first, which is the caller's step.
        allowed: True where the entry takes part. An entry that does not has y_i = +0 and enters neither m nor
            s, whatever its score. None: all take part.
        out: the result's format.
        start: position of the first element; 0 unless the axis is a position axis.

    Returns:
        The row. Without an allowed entry above -inf every y_i is +0.
    """
    everyone = [True] * len(xs) if allowed is None else list(allowed)
    e, s = _exponentials(xs, everyone, start)
    if s == 0:
        return [0.0] * len(xs)
    return [rn(div(e_i, s), out) if a else 0.0 for e_i, a in zip(e, everyone, strict=True)]


def log_softmax(xs: Vector, out: Format = BINARY32) -> list[float]:
    """RN_out(RN(RN(x_i - m) - log(s))), m and s as in :func:`softmax`; a row of -inf only gives -inf."""
    m = _maximum(xs)
    if m == -math.inf:
        return [-math.inf] * len(xs)
    _, s = _exponentials(xs, [True] * len(xs), 0)
    log_s = elementary.log(s)
    return [rn(sub(sub(x, m), log_s), out) for x in xs]


def may_attend(
    key: int, query: int, *, causal: bool, window: int | None, key_length: int | None, mask: bool
) -> bool:
    """Whether the key at position `key` is unmasked for the query at position `query`.

    Args:
        key: the key's position, from the sequence's first real token.
        query: the query's.
        causal: only key <= query.
        window: and query - key < window.
        key_length: the sequence's real keys are 0 .. key_length - 1.
        mask: the model's own boolean mask here, True = may attend.
    """
    if key_length is not None and key >= key_length:
        return False
    if causal and key > query:
        return False
    if window is not None and query - key >= window:
        return False
    return mask


def attention(
    q: Matrix,
    k: Matrix,
    v: Matrix,
    *,
    scale: float,
    out: Format = BINARY32,
    allowed: Sequence[Sequence[bool]] | None = None,
    softcap: float | None = None,
) -> list[list[float]]:
    """One head: matmul, * scale, soft cap, mask, softmax, matmul, each step with its result type.

    score = RN_a(dot(q, k)); RN_a(score * RN(scale)); with a soft cap c, RN_a(x / c), RN_a(tanh), RN_a(x * c);
    y = RN_a(softmax); out = RN_a(dot over j of (y_j, v_j)). The mask's addend is 0 or excludes the key, and
    adding 0 can only turn a -0 into a +0, which no later step can see. The index of a key is its position.

    Args:
        q: [Sq, D]. With fewer key heads than query heads (GQA), query head h reads key head h // (H // Hkv).
        k: [Sk, D].
        v: [Sk, Dv].
        scale: a double, used as its RN.
        out: the activation type a.
        allowed: [Sq, Sk], True where :func:`may_attend`; None: every key.
        softcap: a double, used as its RN, or None.

    Raises:
        NonFiniteError: a query with something to attend to, a key or value it may attend to, or their score
            is not finite.
    """
    result = []
    for i, query in enumerate(q):
        row = [True] * len(k) if allowed is None else list(allowed[i])
        used = [j for j, a in enumerate(row) if a]
        read = {"q": [query] if used else [], "k": [k[j] for j in used], "v": [v[j] for j in used]}
        for name, rows in read.items():
            if not all(math.isfinite(x) for values in rows for x in values):
                raise NonFiniteError(f"attention {name}")
        scores = [0.0] * len(k)
        for j in used:
            scores[j] = _score(query, k[j], scale, softcap, out)
            if not math.isfinite(scores[j]):
                raise NonFiniteError("attention score")
        y = softmax(scores, row, out)
        # a masked value is read as +0: its y is +0, and the value itself may be anything
        columns = ([v[j][d] if row[j] else 0.0 for j in range(len(k))] for d in range(len(v[0]) if v else 0))
        result.append([rn(dot(y, column), out) for column in columns])
    return result


def _score(query: Vector, key: Vector, scale: float, softcap: float | None, a: Format) -> float:
    """One scaled, soft-capped score, each step rounded to the activation type."""
    score = rn(mul(rn(dot(query, key), a), rn32(scale)), a)
    if softcap is None:
        return score
    capped = rn(elementary.tanh(rn(div(score, rn32(softcap)), a)), a)
    return rn(mul(capped, rn32(softcap)), a)
