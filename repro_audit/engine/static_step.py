"""One decode step as work of the device alone: what a CUDA graph can hold.

Token ids and positions lie in tensors that the step itself moves on: it feeds one row per sequence, writes
the cache by position, attends to a bucket of keys, draws the next tokens, hashes the points, and leaves ids
and positions ready for the following step. The host reads one run of bytes per step, :class:`Outcome`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from repro_kernels.ops import sampling

from repro_audit.engine.cache import PositionCache, SingleRows
from repro_audit.engine.session import Session
from repro_audit.settings import Decoding
from repro_audit.trace.record import Digests
from repro_audit.trace.recorder import Recorder, Sealed, Span


@dataclass(frozen=True)
class Outcome:
    """What one step left, on the host.

    Attributes:
        sound: nothing non-finite was met; if not, the rest means nothing.
        tokens: int64 [rows], drawn.
        top2: uint32 [rows, 2, 2].
        digests: uint8 [row digests, 32], as the recorder's sealed step lays them out.
    """

    sound: bool
    tokens: npt.NDArray[np.int64]
    top2: npt.NDArray[np.uint32]
    digests: Digests


class StaticStep:
    """A decode step of some sequences in slots 0, 1, ... of a cache.

    Args:
        opened: the session, its recorder set.
        cache: the batch's cache.
        decoding: how tokens are drawn.
        owners: (index, recorded id) of the sequence in each slot.
        bucket: how many keys attention looks at; positions stay below it.
    """

    def __init__(
        self,
        opened: Session,
        cache: PositionCache,
        decoding: Decoding,
        owners: Sequence[tuple[int, int]],
        bucket: int,
    ) -> None:
        self.bucket = bucket
        self.sealed: Sealed | None = None
        self.out = torch.empty(0, dtype=torch.uint8, device=opened.device)
        self._opened, self._cache, self._decoding = opened, cache, decoding
        self._spans = [Span(index, 0, row, row + 1) for row, (index, _) in enumerate(owners)]
        self._rows = len(owners)
        # 64 bits, as the sampler reads them.
        ids = np.array([identity % 2**64 for _, identity in owners], dtype=np.uint64).view(np.int64)
        self._ids = torch.from_numpy(ids).to(opened.device)
        self._tokens = torch.zeros(1, self._rows, dtype=torch.int64, device=opened.device)
        self._positions = torch.zeros(self._rows, dtype=torch.int64, device=opened.device)
        flag = opened.flag
        self._flag = flag if flag is not None else torch.zeros(1, dtype=torch.int32, device=opened.device)

    def load(self, tokens: Sequence[int], positions: Sequence[int]) -> None:
        """Set the ids that the next run feeds, and their positions."""
        self._tokens.copy_(torch.tensor([list(tokens)]))
        self._positions.copy_(torch.tensor(list(positions)))

    def run(self) -> None:
        """The step; everything in it is queued on the current stream, nothing is waited for.

        The sampler's own tokens are fed: they are ids of the vocabulary by construction.
        """
        opened, decoding = self._opened, self._decoding
        recorder = opened.recorder
        assert isinstance(recorder, Recorder)
        self._flag.zero_()
        following = self._positions + 1
        single = SingleRows(self._positions, following, self.bucket)
        logits = opened.decode(self._tokens, self._spans, single, self._cache)
        tokens, top2 = sampling.sample_rows(
            logits,
            temperature=decoding.temperature,
            seed=decoding.seed,
            positions=following,
            ids=self._ids,
            flag=self._flag,
            top_k=decoding.top_k,
            top_p=decoding.top_p,
        )
        self.sealed = recorder.seal()
        parts = (self._flag.to(torch.int64), tokens, top2.reshape(-1))
        head = torch.cat(parts).view(torch.uint8)
        self.out = torch.cat([head, self.sealed.digests.reshape(-1)])
        self._tokens.copy_(tokens[None])
        self._positions.copy_(following)

    def read(self, data: npt.NDArray[np.uint8]) -> Outcome:
        """The outcome in the bytes of one :attr:`out`; copies, so that the bytes may be used again."""
        rows = self._rows
        head = 8 * (1 + 5 * rows)
        numbers = data[:head].view(np.int64)
        tops = numbers[1 + rows :].astype(np.uint32).reshape(rows, 2, 2)
        return Outcome(not numbers[0], numbers[1 : 1 + rows].copy(), tops, data[head:].reshape(-1, 32).copy())
