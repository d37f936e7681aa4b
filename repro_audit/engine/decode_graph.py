"""Decoding without Python in the loop: a step is captured in a CUDA graph once and replayed for every token.

While every live sequence of a batch feeds one row, the batch decodes in stretches: a stretch ends when a
sequence does, or when the keys no longer fit the bucket. Per number of live sequences and bucket the step
runs once as it is (kernels are compiled, tables filled), once under PyTorch's watch for synchronisation, and
is then captured; all of these are real steps. Replayed, the host launches a step before it has read the one
before: what ran past a stop token is dropped, its cache rows lie beyond what the sequence has fed.

What cannot be captured, or a step that met something non-finite, goes back to steps run operator by operator,
for the rest of the run: the same bits, and errors that name the module.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from repro_audit.engine.cache import PositionCache
from repro_audit.engine.sequences import Running
from repro_audit.engine.session import Session
from repro_audit.engine.static_step import Outcome, StaticStep
from repro_audit.progress import Observer
from repro_audit.settings import Decoding
from repro_audit.trace.record import Digests

#: Fewest keys of a bucket; buckets are powers of two, cut to the cache's capacity.
LEAST_BUCKET = 512

#: Runs what it was made from again.
Again = Callable[[], None]


class Device:
    """The CUDA device of a batch: captures, watches and copies. Tests replace it on a machine without one.

    Args:
        name: ``cuda:N``.
    """

    def __init__(self, name: str) -> None:
        self._name = torch.device(name)
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None
        self._held: list[torch.Tensor] = []

    def capture(self, step: Callable[[], None]) -> Again:
        """Record the step's launches, running none of them.

        Raises:
            RuntimeError: the step cannot be captured, or memory ran out; the device is as before.
        """
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream(self._name)  # type: ignore[no-untyped-call]
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self._name)
        assert self._stream is not None
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                step()
            except BaseException:
                _abandon(graph, self._name, self._pool)
                self._pool = None
                raise
            graph.capture_end()
        current.wait_stream(self._stream)
        return graph.replay

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Where PyTorch would wait for the device it raises RuntimeError."""
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the mode is a prototype, says PyTorch
            torch.cuda.set_sync_debug_mode("error")
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode(before)

    def fetch(self, source: torch.Tensor) -> Callable[[], npt.NDArray[np.uint8]]:
        """Start copying bytes to the host; the result waits for them. They are good until the next call."""
        held = next((item for item in self._held if item.numel() == source.numel()), None)
        if held is None:
            held = torch.empty(source.shape, dtype=torch.uint8, pin_memory=True)
        else:
            self._held = [item for item in self._held if item is not held]
        with torch.cuda.device(self._name):
            held.copy_(source, non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()

        def arrived() -> npt.NDArray[np.uint8]:
            done.synchronize()
            self._held.append(held)
            return held.numpy()

        return arrived


def _abandon(graph: torch.cuda.CUDAGraph, device: torch.device, pool: tuple[int, int]) -> None:
    """End a capture that failed, and what PyTorch's allocator then still records for it."""
    try:
        graph.capture_end()
    except RuntimeError:
        # The capture was broken already, which is why we are here; it ends before the allocator is told.
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(device.index or 0, pool)


def device_of(opened: Session) -> Device | None:
    """What captures steps of a session, or None: its steps run operator by operator."""
    if opened.device == "cpu" or not opened.decodes:
        return None
    return Device(opened.device)


class _Stage:
    """One (live sequences, bucket): its step and how far it is on the way to a graph."""

    def __init__(self, step: StaticStep) -> None:
        self.step = step
        self.runs = 0
        self.again: Again | None = None
        #: Calls by operator before and after the capture, whose difference a replay adds.
        self.counts: tuple[dict[Any, int], dict[Any, int]] = ({}, {})


@dataclass(frozen=True)
class _Launched:
    """A step on its way: how to read it, whether it was replayed, and the counts before it."""

    arrived: Callable[[], npt.NDArray[np.uint8]]
    replayed: bool
    before: dict[Any, int]


class Decoder:
    """Decodes one batch in stretches.

    Args:
        opened: the session, its recorder set.
        cache: the batch's cache.
        decoding: how tokens are drawn.
        device: from :func:`device_of`.

    Attributes:
        cache: the batch's cache.
        device: None once the run goes on without.
        gave_up: whether that is so because a step could not be captured, or was not sound.
        replayed: steps that were replayed.
    """

    def __init__(
        self, opened: Session, cache: PositionCache, decoding: Decoding, device: Device | None
    ) -> None:
        self.cache = cache
        self.device = device if decoding.max_new_tokens > 0 else None
        self.gave_up = False
        self.replayed = 0
        self._opened, self._decoding = opened, decoding
        self._stages: dict[tuple[int, int], _Stage] = {}
        self._watched = False

    def takes(self, live: Sequence[Running]) -> bool:
        """Whether :meth:`stretch` decodes these: each has one token to feed, and draws from its row."""
        return self.device is not None and all(
            not item.replayed and len(item.known) - item.fed == 1 for item in live
        )

    def stretch(self, live: Sequence[Running], observer: Observer) -> int:
        """Decode until a sequence ends or the bucket is full; returns how many steps count, perhaps none."""
        by_index = {item.index: item for item in live}
        rows = [by_index[index] for index in self.cache.front(list(by_index))]
        first = {item.index: item.fed for item in rows}
        stage = self._stage(rows)
        limit = min(self._decoding.max_new_tokens - len(item.drawn) for item in rows)
        limit = min(limit, stage.step.bucket - max(first.values()))
        stage.step.load([item.known[-1] for item in rows], list(first.values()))
        waiting: deque[_Launched] = deque()
        digests: list[Digests] = []
        replayed = 0
        live_on = True
        while live_on and len(digests) < limit:
            self._prepare(stage, limit - len(digests) - len(waiting))
            while len(digests) + len(waiting) < limit and len(waiting) < (1 if stage.again is None else 2):
                launched = self._launch(stage)
                if launched is None:
                    break
                waiting.append(launched)
            if not waiting:
                break
            done = waiting.popleft()
            outcome = stage.step.read(done.arrived())
            if not outcome.sound:
                # The next step, operator by operator, says what was not finite and where.
                self._give_up(None if done.replayed else done.before)
                break
            digests.append(outcome.digests)
            replayed += done.replayed
            observer.advance(len(rows))
            live_on = _accept(outcome, rows, self._decoding)
        self._opened.mode.repeat(*stage.counts, replayed)
        self.replayed += replayed
        if digests:
            assert self._opened.recorder is not None and stage.step.sealed is not None
            self._opened.recorder.commit(stage.step.sealed, np.stack(digests), first)
        return len(digests)

    def _stage(self, rows: Sequence[Running]) -> _Stage:
        longest = max(item.fed for item in rows) + 1
        bucket = min(max(LEAST_BUCKET, 1 << (longest - 1).bit_length()), self.cache.capacity)
        key = (len(rows), bucket)
        if key not in self._stages:
            # Sequences only leave a batch, so as many rows later are the same sequences.
            owners = [(item.index, item.id) for item in rows]
            step = StaticStep(self._opened, self.cache, self._decoding, owners, bucket)
            self._stages[key] = _Stage(step)
        return self._stages[key]

    def _prepare(self, stage: _Stage, left: int) -> None:
        """Capture a step that has run often enough, if more than one run of it is left."""
        if stage.again is not None or self.device is None or left < 2:
            return
        if stage.runs == 0 or not self._watched:
            return
        before = self._opened.mode.counts()
        try:
            stage.again = self.device.capture(stage.step.run)
        except RuntimeError:
            self._give_up(before)
            return
        stage.counts = before, self._opened.mode.counts()
        self._opened.mode.restore(before)

    def _launch(self, stage: _Stage) -> _Launched | None:
        """Start the step; None if it cannot be decoded like this."""
        device = self.device
        if device is None:
            return None
        before = self._opened.mode.counts() if stage.again is None else {}
        if stage.again is not None:
            stage.again()
        else:
            watch = stage.runs > 0
            try:
                with device.watched() if watch else nullcontext():
                    stage.step.run()
            except RuntimeError as error:
                if not watch and not isinstance(error, torch.OutOfMemoryError):
                    raise
                self._give_up(before)
                return None
            self._watched |= watch
            stage.runs += 1
        return _Launched(device.fetch(stage.step.out), stage.again is not None, before)

    def _give_up(self, before: dict[Any, int] | None) -> None:
        """The run goes on without; what was counted since ``before`` is not part of it."""
        self.device, self.gave_up = None, True
        self._stages.clear()
        if before is not None:
            self._opened.discard(before)


def _accept(outcome: Outcome, rows: Sequence[Running], decoding: Decoding) -> bool:
    """Note a step's tokens; whether every sequence goes on."""
    going = True
    for row, item in enumerate(rows):
        item.fed += 1
        item.top2.append(outcome.top2[row : row + 1])
        going &= item.take(int(outcome.tokens[row]), decoding)
    return going
