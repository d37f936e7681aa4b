"""The token that one row of logits gives (numerics.md, "Ground rules": sampling)."""

from __future__ import annotations

import math

from repro_kernels.errors import NonFiniteError
from repro_kernels.spec import order
from repro_kernels.spec.attention import softmax
from repro_kernels.spec.dot import Vector
from repro_kernels.spec.floats import add, div, mul, rn32
from repro_kernels.spec.philox import uniform


def sample(
    logits: Vector,
    *,
    temperature: float,
    seed: int,
    position: int,
    sequence_id: int,
    top_k: int = 0,
    top_p: float = 1.0,
) -> int:
    """Pick a token.

    Temperature 0 is greedy: the greatest logit, ties to the lowest id, nothing drawn, top-k and top-p without
    effect. Otherwise z = RN(logits / RN(T)); top-k keeps the k greatest z, ties to the lowest ids;
    y = softmax of the kept z, +0 elsewhere; top-p keeps a prefix (:func:`nucleus`); c = ascending cumsum over
    all ids of y, dropped ids counting +0; the token is the first with c > RN(u * c_last).

    Args:
        logits: one row, upcast exactly to binary32; -inf is a token that cannot be drawn.
        temperature: a finite double >= 0, used as its RN.
        seed: see :func:`repro_kernels.spec.philox.philox`.
        position: see there.
        sequence_id: see there.
        top_k: how many ids to keep; 0 keeps all.
        top_p: a double in (0, 1], used as its RN; 1 keeps all.

    Raises:
        NonFiniteError: a NaN logit; or, when drawing, a z of +inf or no z above -inf.
    """
    if any(math.isnan(x) for x in logits):
        raise NonFiniteError("logits")
    if temperature == 0:
        return order.argmax(logits)
    z = [div(x, rn32(temperature)) for x in logits]
    if not math.isfinite(max(z)):
        raise NonFiniteError("logits / temperature")
    kept = set(order.topk(z, top_k)) if top_k else set(range(len(z)))
    y = softmax(z, [i in kept for i in range(len(z))])
    if top_p < 1:
        kept &= nucleus(y, top_p)
    c = 0.0
    sums = []
    for i, y_i in enumerate(y):
        c = add(c, y_i if i in kept else 0.0)
        sums.append(c)
    threshold = mul(uniform(seed, position, sequence_id), c)
    return next(i for i, c_i in enumerate(sums) if c_i > threshold)


def nucleus(y: Vector, top_p: float) -> set[int]:
    """The ids that top-p keeps: by descending y, ties to the lowest id, the shortest prefix that reaches p.

    The prefix's sum is the running sum p = RN(p + y) in that order from +0, compared with RN(top_p); when
    rounding keeps every prefix below it, all are kept.
    """
    total = 0.0
    kept = set()
    for i in order.argsort(y, descending=True):
        kept.add(i)
        total = add(total, y[i])
        if total >= rn32(top_p):
            break
    return kept
