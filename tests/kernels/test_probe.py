"""The seven-shape probe: inputs by the specification's Philox, committed digests of its cheap shapes."""

from __future__ import annotations

import pytest
import torch
from repro_kernels import probe
from repro_kernels.errors import UnsupportedError
from repro_kernels.probe_digests import DIGESTS
from repro_kernels.spec.philox import philox4x32

CPU = torch.device("cpu")


def test_operands_are_philox_words_read_as_bfloat16() -> None:
    found = probe.operand(7, 11, 5, CPU).view(torch.int16).view(-1).tolist()
    expected = []
    for block in range(10):
        for word in philox4x32((block, 0, 5, 0), (0x5250524F, 0x42453031)):
            for half in (word & 0xFFFF, word >> 16):
                exponent = 119 + ((half >> 11) & 15)
                bits = (half & 0x8000) | exponent << 7 | (half & 0x7F)
                expected.append(bits - (1 << 16) if bits >> 15 else bits)
    assert found == expected[:77]


def test_operands_are_finite_and_of_both_signs() -> None:
    values = probe.operand(64, 64, 0, CPU).float()
    assert bool(values.isfinite().all())
    assert float(values.abs().min()) >= 2**-8
    assert float(values.abs().max()) < 2**8
    assert 1500 < int((values < 0).sum()) < 2600


def test_a_long_operand_is_cut_into_chunks_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = probe.operand(10, 100, 3, CPU)
    monkeypatch.setattr(probe, "_CHUNK", 7)
    assert bool((probe.operand(10, 100, 3, CPU).view(torch.int16) == whole.view(torch.int16)).all())


@pytest.mark.parametrize("shape", probe.QUICK, ids=probe.name)
def test_cheap_shapes_have_the_committed_digests(shape: tuple[int, int, int]) -> None:
    assert probe.problems(probe.run(shape, CPU), shape) == []


def test_a_sample_has_the_committed_digest() -> None:
    found = probe.run(probe.SHAPES[6], CPU, sampled=True)
    assert found.whole == ""
    assert probe.problems(found, probe.SHAPES[6]) == []


def test_a_changed_product_is_noticed() -> None:
    shape = probe.SHAPES[6]
    found = probe.run(shape, CPU, sampled=True)
    x, w = probe.operand(100, 1000, 12, CPU), probe.operand(1000, 1000, 13, CPU)
    other = torch.nn.functional.linear(x[probe.sampled_rows(100)].float(), w.float())
    assert probe.problems(found._replace(sampled=probe.digest(other)), shape) == ["sampled"]


def test_every_shape_is_committed() -> None:
    assert list(DIGESTS) == [probe.name(shape) for shape in probe.SHAPES]
    assert all(len(value) == 64 for entry in DIGESTS.values() for value in entry)
    assert DIGESTS["1x4096x4096"][2] == DIGESTS["1x4096x4096"][3]  # one row: the sample is the whole


def test_sampled_rows() -> None:
    assert probe.sampled_rows(1) == [0]
    assert probe.sampled_rows(2048) == [0, 292, 584, 877, 1169, 1462, 1754, 2047]


def test_another_shape_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="a probe of 2x3x4"):
        probe.run((2, 3, 4), CPU)
