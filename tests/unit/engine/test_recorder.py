"""Rows recorded through the engine's recorder are the digests that the trace module defines."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from repro_audit.trace.digest import row_digests
from repro_audit.trace.record import Point
from repro_audit.trace.recorder import SMALL_BYTES, Recorder, Span

POINTS = (Point("a", "tok"), Point("kv", "kv"))


@pytest.mark.parametrize("salt", [None, bytes(range(32))])
@pytest.mark.parametrize("width", [3, SMALL_BYTES])
def test_rows_are_the_defined_digests(width: int, salt: bytes | None) -> None:
    recorder = Recorder(POINTS, 2, salt)
    tensor = torch.randn(5, width)
    recorder.take(0, tensor, [Span(1, 4, 0, 2), Span(0, 0, 3, 5)])
    recorder.flush()
    expected = row_digests(tensor.numpy(), "float32", salt=salt)
    assert (recorder.rows(1)[0].digests == expected[:2]).all()
    assert recorder.rows(1)[0].first == 4
    assert (recorder.rows(0)[0].digests == expected[3:]).all()
    assert recorder.rows(0)[0].header.shape == (width,)


def test_a_small_tensor_may_change_before_the_flush() -> None:
    recorder = Recorder(POINTS, 1)
    tensor = torch.ones(2, 3)
    recorder.take(0, tensor, [Span(0, 0, 0, 2)])
    tensor.zero_()
    recorder.flush()
    assert (recorder.rows(0)[0].digests == row_digests(np.ones((2, 3), np.float32), "float32")).all()


def test_cache_rows_by_token_then_head_and_what_changed() -> None:
    recorder = Recorder(POINTS, 1)
    stored = torch.randn(2, 7, 4)  # [heads, positions, size]
    rows = stored.transpose(0, 1)
    recorder.take(1, rows[:3], [Span(0, 0, 0, 3)])
    recorder.flush()
    recorder.take(1, rows[3:], [Span(0, 3, 0, 4)])
    recorder.flush()
    found = recorder.rows(0)[1].digests
    assert found.shape == (7, 2, 32)
    assert (found[5, 1] == row_digests(stored[1, 5:6].numpy(), "float32")[0]).all()
    assert recorder.changes([(1, 0, rows)]) == [[]]
    stored[1, 5, 2] += 1
    assert recorder.changes([(1, 0, rows)]) == [[5]]


def test_values_are_kept_on_request() -> None:
    recorder = Recorder(POINTS, 1, save_values=True)
    tensor = torch.randn(2, 3).bfloat16()
    recorder.take(0, tensor, [Span(0, 0, 0, 2)])
    recorder.flush()
    assert (recorder.values()["s0/a"] == tensor.view(torch.int16).numpy()).all()
