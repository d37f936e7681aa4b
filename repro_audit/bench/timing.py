"""Interleaved timing: contenders take turns, medians are compared: a machine's drift hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """Seconds of one contender.

    Attributes:
        median: of all rounds.
        best: the fastest round.
        rounds: how many.
    """

    median: float
    best: float
    rounds: int


def race(
    contenders: Mapping[str, Callable[[], object]], *, rounds: int, warmups: int = 1
) -> dict[str, Measurement]:
    """Time every contender ``rounds`` times in turn.

    Args:
        contenders: name -> call.
        rounds: timed calls each.
        warmups: untimed calls each, first.
    """
    for _ in range(warmups):
        for call in contenders.values():
            call()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            started = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - started)
    return {
        name: Measurement(statistics.median(taken), min(taken), rounds) for name, taken in seconds.items()
    }


def milliseconds(seconds: float) -> str:
    """``12.3 ms``."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"
