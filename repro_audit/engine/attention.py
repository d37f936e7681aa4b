"""The engine's attention: one kernel over the position cache, for a step that carries rows of several
sequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from repro_kernels.errors import KernelError
from repro_kernels.ops import attention
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from repro_audit.engine.cache import PositionCache
from repro_audit.engine.dispatch import ProfileMode
from repro_audit.errors import InconclusiveError

#: Name under which transformers finds it. No mask function has that name, so transformers makes no mask:
#: the kernel masks by position.
IMPLEMENTATION = "repro_audit"


class StepAttention:
    """Attention of one session; ``cache`` is set before every step.

    Args:
        mode: whose coverage and scalars the kernel is counted in.
        queries: ``id(attention module)`` to the index of its query site.
        take: called with that index and the query, if there is one.
    """

    def __init__(
        self, mode: ProfileMode, queries: dict[int, int], take: Any, windows: dict[int, int]
    ) -> None:
        self.mode = mode
        self.queries = queries
        self.take = take
        self.windows = windows
        self.cache: PositionCache | None = None
        #: int32 [1] on the device, set where something is not finite; None: that is an error at once.
        self.flag: torch.Tensor | None = None
        self.count = mode.fused("repro_kernels.attention", "attention.attention")
        self._positions: tuple[Any, list[torch.Tensor], torch.Tensor | None] | None = None

    def __call__(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        scaling: float,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """query [1, heads, rows, head size] against the cache; returns [1, rows, heads, head size].

        Raises:
            InconclusiveError: dropout, a mask that is not ours, or a non-finite score or row.
        """
        cache = self.cache
        if cache is None or attention_mask is not None or dropout:
            raise InconclusiveError(
                "attention was called with a mask or dropout that the engine did not make"
            )
        with torch._C._DisableTorchDispatch():
            layer: int = module.layer_idx  # type: ignore[assignment]
            if (index := self.queries.get(id(module))) is not None:
                self.take(index, query)
            self.count.calls += 1
            self.mode.note("aten.mul.Tensor", "other", scaling)
            try:
                return self._attend(cache, layer, query, scaling), None
            except KernelError as error:
                name = self.mode.names.get(id(module), "attention")
                raise InconclusiveError(
                    f"{error} in {name}", hint="profile fp32 cannot audit this run"
                ) from error

    def _attend(self, cache: PositionCache, layer: int, query: torch.Tensor, scaling: float) -> Any:
        keys, values = cache.keys[layer], cache.values[layer]
        assert keys is not None and values is not None
        window, kind = self.windows.get(layer), query.dtype
        positions, lengths = self._step(cache, query.device)
        spans = cache.spans
        if lengths is not None:
            if cache.single is not None:
                slots, longest = slice(0, len(spans)), cache.single.bucket
            else:
                slots = slice(cache.slot_of[spans[0].sequence], cache.slot_of[spans[-1].sequence] + 1)
                longest = max(span.first for span in spans) + 1
            out = attention.attention(
                query[0].transpose(0, 1).unsqueeze(2),
                keys[slots, :, :longest],
                values[slots, :, :longest],
                scale=scaling,
                out_dtype=kind,
                q_positions=positions[0],
                k_length=lengths,
                window=window,
                flag=self.flag,
            )
            return out.squeeze(2).unsqueeze(0)
        parts = []
        for span, position in zip(spans, positions, strict=True):
            slot, end = cache.slot_of[span.sequence], span.first + span.end - span.begin
            out = attention.attention(
                query[:, :, span.begin : span.end],
                keys[slot : slot + 1, :, :end],
                values[slot : slot + 1, :, :end],
                scale=scaling,
                out_dtype=kind,
                q_positions=position,
                window=window,
                flag=self.flag,
            )
            parts.append(out.transpose(1, 2))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _step(
        self, cache: PositionCache, device: torch.device
    ) -> tuple[list[torch.Tensor], torch.Tensor | None]:
        """Query positions per call, made once per step; lengths when every sequence of adjacent slots has one
        row.
        """
        if cache.single is not None:
            return [cache.single.positions[:, None]], cache.single.lengths
        spans = cache.spans
        if self._positions is not None and self._positions[0] is spans:
            return self._positions[1], self._positions[2]
        slots = [cache.slot_of[span.sequence] for span in spans]
        single = all(span.end - span.begin == 1 for span in spans)
        if single and slots == list(range(slots[0], slots[0] + len(slots))):
            firsts = torch.tensor([span.first for span in spans], device=device)
            positions, lengths = [firsts[:, None]], firsts + 1
        else:
            positions = [
                torch.arange(span.first, span.first + span.end - span.begin, device=device)[None]
                for span in spans
            ]
            lengths = None
        self._positions = (spans, positions, lengths)
        return positions, lengths


@contextmanager
def registered(attend: StepAttention) -> Iterator[None]:
    """Let transformers find ``attend`` under :data:`IMPLEMENTATION` while the context lasts."""
    ALL_ATTENTION_FUNCTIONS[IMPLEMENTATION] = attend
    try:
        yield
    finally:
        del ALL_ATTENTION_FUNCTIONS[IMPLEMENTATION]  # type: ignore[no-untyped-call]
