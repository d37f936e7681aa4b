"""One rounding in every multiply-add, where two roundings through binary64 give another result.

c is odd in its last place and a * b half a unit of it, less 2^-70: the exact sum is just below the midpoint.
Rounded to binary64 first it becomes the midpoint, which then goes to even, upwards. Random operands meet this
once in 2^28.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
import torch
from kernel_support import assert_bits, instruction_sets, output_under
from repro_kernels.cpu import attention, gemm
from repro_kernels.spec import dot
from repro_kernels.spec.floats import add, div, fma, mul, rn32

A, B, C = 2.0**-12 * (1 + 2.0**-23), 2.0**-12 * (1 - 2.0**-23), 1 + 2.0**-23
#: sign and scale of the whole; the last one has its product far below the smallest normal number
CASES = [
    (sign * A, B * scale, sign * C * scale) for sign in (1.0, -1.0) for scale in (1.0, 2.0**100, 2.0**-100)
]
DEPTH, WIDTH = 16, 32


def operands(a: float, b: float, c: float) -> tuple[torch.Tensor, torch.Tensor]:
    """A row and a weight whose every dot product is fma(a, b, fma(c, 1, +0)), then zeros."""
    x, w = torch.zeros(1, DEPTH), torch.zeros(WIDTH, DEPTH)
    x[0, :2] = torch.tensor([c, a])
    w[:, :2] = torch.tensor([1.0, b])
    return x, w


def products(rows: int) -> torch.Tensor:
    """linear of every case, each row repeated: [cases, rows, WIDTH]."""
    return torch.stack([gemm.linear(x.repeat(rows, 1), w) for x, w in (operands(*case) for case in CASES)])


def test_the_cases_are_what_they_say() -> None:
    for a, b, c in CASES:
        assert fma(a, b, c) == c
        assert add(mul(a, b), c) != c, "two binary32 roundings show too"
        assert float(torch.tensor(a * b + c, dtype=torch.float64).to(torch.float32)) != c, (
            "and so does binary64"
        )


def test_the_specification() -> None:
    for case in CASES:
        x, w = operands(*case)
        assert dot.dot(x[0].tolist(), w[0].tolist()) == case[2]


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_products(rows: int) -> None:
    expected = []
    for case in CASES:
        x, w = operands(*case)
        expected += [dot.dot(x[0].tolist(), w[0].tolist())] * (rows * WIDTH)
    assert_bits(products(rows), expected)


def weighted() -> list[tuple[int, float, float, float]]:
    """(keys, v0, v1, result): equal scores give y = RN(1 / keys), and fma(y, v1, fma(y, v0, 0)) is a case."""
    found = []
    for keys in range(3, 200):
        y = div(1.0, float(keys))
        v0 = div(C, y)
        p = fma(y, v0, 0.0)
        v1 = div(2.0**-24, y)
        exact = Fraction(p) + Fraction(y) * Fraction(v1)
        if rn32(exact) != rn32(float(exact)):
            found.append((keys, v0, v1, rn32(exact)))
    return found


def attended(keys: int, v0: float, v1: float, *, infinite: bool) -> torch.Tensor:
    """Attention over equal scores; `infinite` adds a masked key with an infinite value, which is not read."""
    q, k = torch.zeros(1, 1, 2, DEPTH), torch.zeros(1, 1, keys + 1, DEPTH)
    v = torch.zeros(1, 1, keys + 1, DEPTH)
    v[0, 0, 0], v[0, 0, 1] = v0, v1
    v[0, 0, 2] = float("inf") if infinite else 1.0
    mask = torch.ones(1, 1, 2, keys + 1, dtype=torch.bool)
    mask[..., 2] = False
    return attention.attention(q, k, v, scale=1.0, out_dtype=torch.float32, mask=mask)


def attended_all() -> list[float]:
    """One element of each case, with and without the infinity."""
    cases = weighted()
    return [float(attended(n, a, b, infinite=x)[0, 0, 1, 3]) for x in (False, True) for n, a, b, _ in cases]


def test_attention() -> None:
    cases = weighted()
    assert len(cases) > 2
    for keys, v0, v1, result in cases:
        for infinite in (False, True):
            assert_bits(attended(keys, v0, v1, infinite=infinite), [result] * (2 * DEPTH))


@pytest.mark.parametrize("isa", instruction_sets())
def test_every_instruction_set(isa: str) -> None:
    here = str(Path(__file__).parent)
    code = (
        f"import sys; sys.path.insert(0, {here!r})\n"
        "from test_fma_rounding import attended_all, products\n"
        "print([products(rows).view(-1).tolist() for rows in (1, 3)], attended_all())\n"
    )
    expected = [[c for _, _, c in CASES for _ in range(rows * WIDTH)] for rows in (1, 3)]
    assert output_under(code, isa=isa).strip() == f"{expected} {[case[3] for case in weighted()] * 2}"
