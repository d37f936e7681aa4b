"""The benchmark takes turns, and refuses to time wrong bits."""

from __future__ import annotations

import pytest
import torch

from repro_audit.bench import gemm
from repro_audit.bench.timing import milliseconds, race
from repro_audit.errors import InconclusiveError


def test_contenders_take_turns():
    order: list[str] = []
    times = race({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=3, warmups=1)
    assert order == ["a", "b"] * 4
    assert times["a"].rounds == 3
    assert 0 <= times["a"].best <= times["a"].median


def test_wrong_bits_are_not_timed():
    x, w = torch.randn(3, 200), torch.randn(5, 200).to(torch.bfloat16)
    y = gemm.linear(x, w)
    gemm._check(x, w, y)
    y.view(torch.int32)[0, 0] ^= 1
    with pytest.raises(InconclusiveError, match="specification says"):
        gemm._check(x, w, y)


def test_units():
    assert milliseconds(0.01234) == "12.3 ms"
    assert milliseconds(2.5) == "2.50 s"
