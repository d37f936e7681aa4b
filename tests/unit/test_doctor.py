"""What doctor concludes from the probe; its known answers have their own tests."""

from __future__ import annotations

import pytest
import torch
from repro_kernels import probe

from repro_audit.cli.doctor import diagnose
from repro_audit.progress import NullObserver
from repro_audit.verdict import Verdict
from repro_audit.verify import known_answers


@pytest.fixture(autouse=True)
def only_the_probe(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """No other known answers, and shapes that are only counted; the list of those asked for."""
    asked: list[tuple[int, int, int]] = []

    def run(shape: tuple[int, int, int], device: torch.device) -> probe.Digests:
        assert device.type == "cpu"
        asked.append(shape)
        return probe.Digests(*probe.DIGESTS[probe.name(shape)])

    monkeypatch.setattr(known_answers, "cases", lambda: iter(()))
    monkeypatch.setattr(probe, "run", run)
    return asked


def test_two_cheap_shapes_by_default(only_the_probe: list[tuple[int, int, int]]) -> None:
    result = diagnose(NullObserver(), "cpu")
    assert only_the_probe == [(1, 4096, 4096), (100, 1000, 1000)]
    assert result.verdict is Verdict.VALID
    assert result.counts == (("known answers", 2), ("right", 2))


def test_all_seven_on_demand(only_the_probe: list[tuple[int, int, int]]) -> None:
    assert diagnose(NullObserver(), "cpu", whole_probe=True).verdict is Verdict.VALID
    assert only_the_probe == list(probe.SHAPES)


def test_another_digest_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    committed = probe.DIGESTS["1x4096x4096"]
    monkeypatch.setitem(probe.DIGESTS, "1x4096x4096", (*committed[:3], "0" * 64))
    monkeypatch.setattr(probe, "run", lambda shape, device: probe.Digests(*committed))
    monkeypatch.setattr(probe, "QUICK", ((1, 4096, 4096),))
    result = diagnose(NullObserver(), "cpu")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert [finding.code for finding in result.findings] == ["RA501"]
    assert "probe 1x4096x4096 gives wrong bits on this machine" in result.findings[0].message
    assert result.findings[0].details == (("got", "other whole"),)
