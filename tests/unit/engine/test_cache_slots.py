"""Slots of the position cache: sequences move to the front with what they hold."""

from __future__ import annotations

import pytest
import torch
from repro_kernels.ops import positions

from repro_audit.engine.cache import PositionCache, SingleRows
from repro_audit.trace.recorder import Span


def filled(slots: int) -> PositionCache:
    """Sequence 10 + s in slot s, all its keys s and its values -s."""
    cache = PositionCache(slots, 4, 2, packed=True, written=None)
    spans = [Span(10 + s, 0, s, s + 1) for s in range(slots)]
    cache.begin(spans)
    rows = torch.arange(float(slots)).reshape(1, 1, slots, 1).expand(1, 3, slots, 5)
    for layer in range(2):
        cache.update(rows, -rows, layer)
    return cache


@pytest.mark.parametrize(
    "kept", [[], [10], [13], [11, 12], [10, 12], [13, 11], [12, 13, 11], [10, 11, 12, 13]]
)
def test_the_kept_come_to_the_front_and_nothing_is_lost(kept: list[int]) -> None:
    cache = filled(4)
    order = cache.front(kept)
    assert sorted(order) == sorted(kept)
    assert [cache.slot(sequence) for sequence in order] == list(range(len(kept)))
    for sequence in range(10, 14):
        for layer in range(2):
            keys, values = cache.rows(layer, sequence, 1)
            assert keys.tolist() == [[[sequence - 10.0] * 5] * 3]
            assert values.tolist() == [[[10.0 - sequence] * 5] * 3]


def test_new_sequences_get_the_next_slots() -> None:
    cache = PositionCache(3, 4, 1, packed=True, written=None)
    assert cache.front([7, 5]) == [7, 5]
    assert cache.slot(6) == 2


def test_rows_are_written_where_the_tensor_says() -> None:
    cache = filled(3)
    new = torch.arange(100.0, 130.0).reshape(1, 3, 2, 5)
    at = torch.tensor([2, 0])
    cache.begin([Span(10, 0, 0, 1), Span(11, 0, 1, 2)], SingleRows(at, at + 1, 4))
    before = cache.keys[0]
    assert before is not None
    expected = before.clone()
    cache.update(new, new, 0)
    expected[0, :, 2] = new[0, :, 0]
    expected[1, :, 0] = new[0, :, 1]
    assert torch.equal(before.view(torch.int32), expected.view(torch.int32))


def test_what_does_not_fit_is_refused() -> None:
    held, new, at = torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 5), torch.zeros(2, dtype=torch.int64)
    for arguments in (
        (held, held, new[:, :2], new, at),
        (held, held, new, new.half(), at),
        (held, held.transpose(1, 2), new, new, at),
        (held[:1], held[:1], new, new, at),
        (held, held, new, new, at.int()),
    ):
        with pytest.raises(ValueError, match="write_rows"):
            positions.write_rows(*arguments)
