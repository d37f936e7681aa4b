"""Ranges are exact before their one rounding: the product with the step is not rounded on its own."""

from __future__ import annotations

from fractions import Fraction

import torch
from repro_kernels.cpu import convert
from repro_kernels.spec import convert as spec


def test_a_step_that_cancels_the_start() -> None:
    start, step = -0.3, 0.1
    exact = Fraction(start) + 3 * Fraction(step)
    want = torch.tensor(float(exact), dtype=torch.float64).to(torch.float32)
    assert 0 < want < 1e-15
    assert spec.arange(start, step, 4)[3] == float(want)
    assert convert.arange(start, 0.05, step, dtype=torch.float32)[3] == want
