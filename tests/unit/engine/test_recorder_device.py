"""The recorder on a GPU, played on the CPU: what it keeps back, in which order, when it must not wait."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from repro_kernels.cpu.digest import digest_many

from repro_audit.trace import recorder as module
from repro_audit.trace.device_rows import DeviceRows
from repro_audit.trace.record import Point
from repro_audit.trace.recorder import Recorder, Span

POINTS = (Point("a", "tok"), Point("kv", "kv"), Point("b", "tok"))
CALLS: list[int] = []


def hashed(items: Sequence[tuple[torch.Tensor, bytes, int]]) -> tuple[list[DeviceRows], object]:
    """What the GPU returns: one tensor for all items, here with the last item's digests first."""
    CALLS.append(len(items))
    found = digest_many(items)
    buffer = torch.from_numpy(np.concatenate(found[::-1]))
    ends = np.cumsum([len(part) for part in found[::-1]])[::-1].tolist()
    rows = [
        DeviceRows(buffer, end - len(part), tuple(tensor.shape[:dims]))
        for end, part, (tensor, _, dims) in zip(ends, found, items, strict=True)
    ]
    return rows, object()


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS.clear()
    monkeypatch.setattr(module, "stays", lambda tensor: True)
    monkeypatch.setattr(module, "hash_rows", hashed)


def steps(recorder: Recorder, reference: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps through both, the reference on the CPU's path."""
    torch.manual_seed(7)
    wide = torch.randn(5, 70000)
    for first in range(3):
        small, rows = torch.randn(5, 12), torch.randn(3, 5, 8).transpose(0, 1)
        spans = [Span(1, 10 * first, 0, 2), Span(0, 10 * first, 3, 5)]
        for which, there in ((recorder, True), (reference, False)):
            with monkeypatch.context() as patch:
                patch.setattr(module, "stays", lambda tensor, there=there: there)
                which.take(0, small, spans)
                which.take(2, wide, spans)
                which.take(1, rows, spans)
                which.flush()


def test_the_same_rows_as_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(POINTS, 2, save_values=True)
    reference = Recorder(POINTS, 2, save_values=True)
    steps(recorder, reference, monkeypatch)
    # The large tensor at once, both small ones together.
    assert CALLS == [1, 2] * 3
    for sequence in range(2):
        found, expected = recorder.rows(sequence), reference.rows(sequence)
        assert list(found) == list(expected) == [0, 1, 2]
        for point, rows in expected.items():
            assert (found[point].header, found[point].first) == (rows.header, rows.first)
            assert found[point].digests.shape == rows.digests.shape
            assert (found[point].digests == rows.digests).all()
    kept, values = recorder.values(), reference.values()
    assert kept.keys() == values.keys() and len(kept) == 6
    assert all(kept[name].tobytes() == values[name].tobytes() for name in kept)


def test_digests_leave_in_bounded_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    arrive = module.to_host
    monkeypatch.setattr(module, "to_host", lambda parts: left.append(len(parts)) or arrive(parts))
    monkeypatch.setattr(module, "RESIDENT_BYTES", 100)
    recorder, reference = Recorder(POINTS, 2), Recorder(POINTS, 2)
    steps(recorder, reference, monkeypatch)
    assert left == [6, 6, 6]
    assert (recorder.rows(0)[1].digests == reference.rows(0)[1].digests).all()


def test_many_small_tensors_do_not_wait_for_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES", 100)
    recorder, reference = Recorder(POINTS, 2), Recorder(POINTS, 2)
    steps(recorder, reference, monkeypatch)
    assert CALLS == [1] * 9
    assert (recorder.rows(1)[0].digests == reference.rows(1)[0].digests).all()


def test_what_is_taken_is_no_copy_until_somebody_writes() -> None:
    recorder, reference = Recorder(POINTS, 1), Recorder(POINTS, 1)
    tensor, other, span = torch.ones(2, 3), torch.zeros(2, 3), [Span(0, 0, 0, 2)]
    reference.take(0, tensor.clone(), span)
    reference.take(2, other, span)
    recorder.take(0, tensor, span)
    recorder.unshare()
    tensor.zero_()
    recorder.take(2, tensor, span)
    recorder.flush()
    reference.flush()
    assert (recorder.rows(0)[0].digests == reference.rows(0)[0].digests).all()
    assert (recorder.rows(0)[2].digests == reference.rows(0)[2].digests).all()


def test_discarded_rows_are_gone() -> None:
    recorder = Recorder(POINTS, 1)
    for rows in (torch.ones(2, 3), torch.ones(2, 300000)):
        recorder.take(0, rows, [Span(0, 0, 0, 2)])
        recorder.discard()
    recorder.flush()
    assert recorder.rows(0) == {}


def test_sealed_steps_are_rows_of_each_run() -> None:
    recorder, reference = Recorder(POINTS, 2), Recorder(POINTS, 2)
    spans = [Span(1, 0, 0, 1), Span(0, 0, 1, 2)]
    runs = [(torch.randn(2, 3), torch.randn(2, 300000), torch.randn(2, 4, 6)) for _ in range(3)]
    digests = []
    for run, tensors in enumerate(runs):
        at = [Span(1, 5 + run, 0, 1), Span(0, 9 + run, 1, 2)]
        for point, tensor in zip((0, 2, 1), tensors, strict=True):
            recorder.take(point, tensor, spans)
            reference.take(point, tensor, at)
        sealed = recorder.seal()
        assert len(sealed.held) == 2
        digests.append(sealed.digests.numpy())
        reference.flush()
    recorder.commit(sealed, np.stack(digests), {1: 5, 0: 9})
    for sequence in range(2):
        for point, rows in reference.rows(sequence).items():
            found = recorder.rows(sequence)[point]
            assert found.first == rows.first == (9, 5)[sequence]
            assert (found.digests == rows.digests).all()
    assert recorder.seal().parts == ()


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("bound", [1, 1 << 20])
def test_changed_cache_rows(settled: bool, bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESIDENT_BYTES", bound)
    recorder = Recorder(POINTS, 2)
    stored = torch.randn(2, 2, 7, 4)  # [sequences, heads, positions, size]
    rows = [part.transpose(0, 1) for part in stored]
    for begin, end in ((0, 3), (3, 7)):
        for sequence in range(2):
            recorder.take(1, rows[sequence][begin:end], [Span(sequence, begin, 0, end - begin)])
        recorder.flush()
    if settled:
        recorder.rows(0)
    items = [(1, sequence, rows[sequence]) for sequence in range(2)]
    assert recorder.changes(items) == [[], []]
    stored[1, 1, 5, 2] += 1
    stored[1, 0, 6, 0] += 1
    assert recorder.changes(items) == [[], [5, 6]]
