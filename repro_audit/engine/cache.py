"""The engine's own key-value cache: key index = position, one slot per sequence, nothing evicted.

Since the index of a key is its position from the sequence's first token, the segments floor(position / 128)
of numerics.md need no bookkeeping. A sliding window is a mask over the full cache. Rows are hashed when they
are written and again at the end: what was read is then what was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from repro_kernels.ops import positions
from transformers.cache_utils import Cache

from repro_audit.errors import InconclusiveError
from repro_audit.trace.recorder import Span

#: ``written(layer, key, value)``: both [rows, kv heads, head size], called with the dispatch mode off.
Written = Callable[[int, torch.Tensor, torch.Tensor], None]


@dataclass(frozen=True)
class SingleRows:
    """A step of one row per sequence whose positions only the device knows; row r belongs to slot r.

    Attributes:
        positions: int64 [rows].
        lengths: int64 [rows], positions + 1.
        bucket: a bound of the lengths: how many keys of the cache attention looks at.
    """

    positions: torch.Tensor
    lengths: torch.Tensor
    bucket: int


class PositionCache(Cache):
    """Keys and values [slots, kv heads, capacity, head size] per layer, made when a layer first writes.

    Args:
        slots: sequences of the batch.
        capacity: most positions of any of them.
        layers: layers of the model.
        packed: whether a step carries rows of several sequences side by side, which only the engine's own
            attention can read; otherwise :meth:`update` returns the one sequence's keys and values.
        written: called for every write, to record it.
    """

    def __init__(
        self, slots: int, capacity: int, layers: int, *, packed: bool, written: Written | None
    ) -> None:
        self.layers: list[Any] = []
        self.slots = slots
        self.capacity = capacity
        self.packed = packed
        self.keys: list[torch.Tensor | None] = [None] * layers
        self.values: list[torch.Tensor | None] = [None] * layers
        self.spans: Sequence[Span] = ()
        self.single: SingleRows | None = None
        self.slot_of: dict[int, int] = {}
        self._written = written

    def begin(self, spans: Sequence[Span], single: SingleRows | None = None) -> None:
        """Say which rows of the coming step are which positions of which sequence.

        Args:
            spans: by sequence; with ``single``, span r is row r and its first position means nothing.
            single: where the rows go, if the device alone knows.
        """
        self.spans = spans
        self.single = single
        for span in spans:
            self.slot(span.sequence)

    def slot(self, sequence: int) -> int:
        """The slot of a sequence; a new sequence gets the next one."""
        return self.slot_of.setdefault(sequence, len(self.slot_of))

    def front(self, sequences: Sequence[int]) -> list[int]:
        """Move sequences to slots 0, 1, ... ; returns them by slot. Those in the way take their places."""
        count = len(sequences)
        taken = {self.slot(sequence): sequence for sequence in sequences}
        free = [slot for slot in range(count) if slot not in taken]
        for slot in sorted(slot for slot in taken if slot >= count):
            self._exchange(free.pop(0), slot)
        return sorted(sequences, key=self.slot_of.__getitem__)

    def _exchange(self, first: int, second: int) -> None:
        for held in (*self.keys, *self.values):
            if held is not None:
                moved = held[first].clone()
                held[first] = held[second]
                held[second] = moved
        for sequence, slot in self.slot_of.items():
            if slot in (first, second):
                self.slot_of[sequence] = first + second - slot

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the step's rows [1, kv heads, rows, head size]; see ``packed`` for what comes back."""
        with torch._C._DisableTorchDispatch():
            keys, values = self._layer(layer_idx, key_states, value_states)
            by_row = key_states[0].transpose(0, 1), value_states[0].transpose(0, 1)
            if self._written is not None:
                self._written(layer_idx, *by_row)
            if self.single is not None:
                positions.write_rows(keys, values, *by_row, self.single.positions)
                return key_states, value_states
            for span in self.spans:
                slot, rows, end = self.slot_of[span.sequence], slice(span.begin, span.end), span.first
                end += span.end - span.begin
                keys[slot, :, span.first : end] = key_states[0, :, rows]
                values[slot, :, span.first : end] = value_states[0, :, rows]
            if self.packed:
                return key_states, value_states
            return keys[slot : slot + 1, :, :end], values[slot : slot + 1, :, :end]

    def rows(self, layer: int, sequence: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What the cache holds of one sequence: key and value views [length, kv heads, head size]."""
        keys, values = self.keys[layer], self.values[layer]
        if keys is None or values is None:
            raise InconclusiveError(
                f"layer {layer} wrote nothing to the cache", hint="report the model's class"
            )
        slot = self.slot_of[sequence]
        return keys[slot, :, :length].transpose(0, 1), values[slot, :, :length].transpose(0, 1)

    def _layer(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self.keys[layer], self.values[layer]
        if keys is None or values is None:
            keys, values = (
                torch.zeros(
                    self.slots, new.shape[1], self.capacity, new.shape[3], dtype=new.dtype, device=new.device
                )
                for new in (key, value)
            )
            self.keys[layer], self.values[layer] = keys, values
        return keys, values

    # What transformers asks a cache, answered for the step at hand.

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions before this step; 0 for a packed step, whose sequences differ."""
        return 0 if self.packed or not self.spans else self.spans[0].first

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Position of the step's first row."""
        return self.get_seq_length(layer_idx)

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """(keys, position of the first key)."""
        return self.get_seq_length(layer_idx) + query_length, 0

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """No maximum."""
        return -1

    def get_max_cache_shape(self, layer_idx: int = 0) -> int:
        """No maximum."""
        return -1

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def is_compileable(self) -> bool:
        """Never compiled."""
        return False

    @property
    def is_initialized(self) -> bool:
        """Always ready."""
        return True

    @property
    def is_sliding(self) -> list[bool]:
        """No layer evicts."""
        return [False] * len(self.keys)

    @property
    def is_linear(self) -> list[bool]:
        """No layer keeps a recurrent state."""
        return [False] * len(self.keys)

    @property
    def is_dummy(self) -> list[bool]:
        """Every layer keeps keys and values."""
        return [False] * len(self.keys)

    def _no_state(self, *args: Any, **kwargs: Any) -> Any:
        raise InconclusiveError(
            "the model keeps a recurrent or convolution state, which profile fp32 does not specify",
            hint="audit a model whose layers keep keys and values",
        )

    has_previous_state = _no_state
    get_conv_state = _no_state
    update_conv_state = _no_state
    get_recurrent_state = _no_state
    update_recurrent_state = _no_state
    update_indexer = _no_state
