"""Timing in turns: contenders alternate, medians are compared, so that a machine's drift hits all alike.

On a GPU a contender's calls over all its input sets are captured in one CUDA graph, so that neither Python
nor launches count, and CUDA events time the replay; what cannot be captured is timed between events as it
is. On the CPU the wall clock times the calls.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

_HEAD_START = 400_000
"""Clock cycles (about 0.2 ms) that the GPU sleeps before a timed replay: the queue is full when it begins."""


@dataclass(frozen=True)
class Measurement:
    """Seconds of one contender per call, every round of it.

    Attributes:
        seconds: of each round, ascending; never empty.
        graph: whether a CUDA graph was replayed.
    """

    seconds: tuple[float, ...]
    graph: bool = False

    @classmethod
    def of(cls, seconds: list[float], *, graph: bool = False) -> Measurement:
        """From rounds in any order."""
        return cls(tuple(sorted(seconds)), graph)

    def quantile(self, share: float) -> float:
        """The value below which this share of the rounds lies, between neighbours in proportion."""
        place = share * (len(self.seconds) - 1)
        low = int(place)
        high = min(low + 1, len(self.seconds) - 1)
        return self.seconds[low] + (place - low) * (self.seconds[high] - self.seconds[low])

    @property
    def median(self) -> float:
        """Of all rounds."""
        return self.quantile(0.5)

    @property
    def spread(self) -> tuple[float, float]:
        """The 10th and the 90th percentile."""
        return self.quantile(0.1), self.quantile(0.9)


@dataclass
class Contender:
    """What takes part in a race.

    Attributes:
        call: runs on the input set of this index.
        graph: try to capture it in a CUDA graph, where there is a GPU.
        host: it computes on the CPU whatever the device, one input set a round: the wall clock times it.
    """

    call: Callable[[int], object]
    graph: bool = True
    host: bool = False
    captured: torch.cuda.CUDAGraph | None = field(default=None, repr=False)


def race(
    contenders: Mapping[str, Contender],
    *,
    device: str,
    sets: int = 1,
    rounds: int,
    warmups: int = 1,
    refresh: Callable[[int], None] = lambda turn: None,
) -> dict[str, Measurement]:
    """Time every contender ``rounds`` times in turn, each time over all input sets.

    Args:
        contenders: name -> contender.
        device: ``cpu`` or ``cuda:N``.
        sets: number of input sets; together they should not fit into the cache.
        rounds: timed rounds.
        warmups: untimed rounds, first.
        refresh: writes fresh inputs in place before each contender's turn of this number.

    Returns:
        Name -> seconds per call.
    """
    refresh(0)
    for contender in contenders.values():
        for _ in range(warmups):
            for index in range(1 if contender.host else sets):
                contender.call(index)
        if device != "cpu" and contender.graph and not contender.host:
            contender.captured = capture(contender.call, sets)
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    pending: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
    for turn in range(rounds):
        for name, contender in contenders.items():
            refresh(turn)
            if device == "cpu" or contender.host:
                count = 1 if contender.host else sets
                taken[name].append(_wall(contender.call, count, device) / count)
            else:
                pending.append((name, *_events(contender, sets)))
    if pending:
        torch.cuda.synchronize()
    for name, begin, end in pending:
        taken[name].append(begin.elapsed_time(end) / 1e3 / sets)
    return {
        name: Measurement.of(found, graph=contenders[name].captured is not None)
        for name, found in taken.items()
    }


def capture(call: Callable[[int], object], sets: int) -> torch.cuda.CUDAGraph | None:
    """The calls over all input sets as one CUDA graph, or None if they wait for the device.

    Results stay alive until the end of the capture, so that none is written over the inputs of another.
    """
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    gc.collect()
    try:
        with torch.cuda.graph(graph):
            for index in range(sets):
                call(index)
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    graph.replay()
    return graph


def wall(call: Callable[[], object], device: str) -> float:
    """Seconds of one call on the wall clock, the device's work included."""
    return _wall(lambda _: call(), 1, device)


def _wall(call: Callable[[int], object], sets: int, device: str) -> float:
    _wait(device)
    started = time.perf_counter()
    for index in range(sets):
        call(index)
    _wait(device)
    return time.perf_counter() - started


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def _events(contender: Contender, sets: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda._sleep(_HEAD_START)  # type: ignore[no-untyped-call]
    begin.record()
    if contender.captured is not None:
        contender.captured.replay()
    else:
        for index in range(sets):
            contender.call(index)
    end.record()
    return begin, end
