"""The known answer is the specification's, and every way of getting the arithmetic wrong gives another."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
from repro_kernels.cpu import known_answer, native
from repro_kernels.errors import BuildMismatchError
from repro_kernels.spec import dot, floats
from repro_kernels.spec.floats import add, fma, mul, value

LEFT, RIGHT = known_answer.operands()
X, ROWS = [value(bits) for bits in LEFT], [[value(bits) for bits in row] for row in RIGHT]


def flush(x: float) -> float:
    return x if abs(x) >= 2.0**-126 else 0.0 * x


def answer(
    length: int,
    step: Callable[[float, float, float], float],
    *,
    down: bool = False,
    read: Callable[[float], float] = float,
) -> str:
    """The digest with segments of another length, another step, k descending or flushed inputs."""
    results = []
    for row in ROWS:
        acc = 0.0
        for start in range(0, len(X), length):
            p = 0.0
            indices = range(start, min(start + length, len(X)))
            for k in reversed(indices) if down else indices:
                p = step(read(X[k]), read(row[k]), p)
            acc = add(acc, p)
        results.append(floats.bits(acc))
    return known_answer.digest(results)


def test_the_answer_is_the_specification() -> None:
    assert known_answer.digest([floats.bits(dot.dot(X, row)) for row in ROWS]) == known_answer.ANSWER
    assert answer(dot.SEGMENT, fma) == known_answer.ANSWER


@pytest.mark.parametrize(
    ("length", "step", "options"),
    [
        (dot.SEGMENT, lambda x, w, p: add(mul(x, w), p), {}),
        (dot.SEGMENT, fma, {"down": True}),
        (dot.SEGMENT, fma, {"read": flush}),
        (dot.SEGMENT, lambda x, w, p: flush(fma(x, w, p)), {}),
        (64, fma, {}),
        (256, fma, {}),
        (300, fma, {}),
    ],
    ids=["two roundings", "descending", "inputs flushed", "results flushed", "64", "256", "one chain"],
)
def test_other_arithmetic_gives_another_answer(
    length: int, step: Callable[[float, float, float], float], options: dict[str, bool]
) -> None:
    assert answer(length, step, **options) != known_answer.ANSWER


@pytest.mark.parametrize("isa", native.available())
def test_every_variant_knows_it(isa: str) -> None:
    assert known_answer.compute(native.library(), isa) == known_answer.ANSWER


def test_wrong_bits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_answer, "compute", lambda library, isa: "0" * 16)
    with pytest.raises(BuildMismatchError, match="give wrong bits"):
        known_answer.check(ctypes.CDLL(None), "base")
