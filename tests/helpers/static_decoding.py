"""Static decode steps without a GPU: a device for :mod:`repro_audit.engine.decode_graph`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from repro_audit.engine import decode_graph, generate
from repro_audit.engine.session import Session


class Pretended:
    """Executes what a CUDA device would replay, and takes the counts back: a graph counts nothing."""

    def __init__(self, opened: Session, breaks: str = "") -> None:
        self.opened = opened
        # As on a GPU: attention raises nothing, the step runs again.
        opened.flag = torch.zeros(1, dtype=torch.int32)
        self.breaks = breaks
        self.captures = 0
        self.launches = 0

    def capture(self, step: Callable[[], None]) -> Callable[[], None]:
        owner: Any = step.__self__  # type: ignore[attr-defined]
        held = owner._tokens.clone(), owner._positions.clone()
        step()
        if self.breaks == "capture":
            raise torch.OutOfMemoryError("pretended")
        owner._tokens.copy_(held[0])
        owner._positions.copy_(held[1])
        self.captures += 1

        def again() -> None:
            before = self.opened.mode.counts()
            step()
            self.opened.mode.restore(before)

        return again

    @contextmanager
    def watched(self) -> Iterator[None]:
        yield
        if self.breaks == "watched":
            raise RuntimeError("called a synchronizing CUDA operation")

    def fetch(self, source: torch.Tensor) -> Callable[[], npt.NDArray[np.uint8]]:
        self.launches += 1
        data = source.numpy().copy()
        if self.breaks == f"step {self.launches}":
            data[:8] = 1
        return lambda: data


@contextmanager
def pretended(monkeypatch: pytest.MonkeyPatch, breaks: str = "") -> Iterator[list[Pretended]]:
    """Decode CPU runs as a GPU would; yields the devices made, one per batch.

    Args:
        monkeypatch: undone with the context.
        breaks: ``capture``, ``watched`` or ``step N``: what does not work on this device.
    """
    made: list[Pretended] = []

    def device(opened: Session) -> Pretended | None:
        if opened.decodes:
            made.append(Pretended(opened, breaks))
            return made[-1]
        return None

    with monkeypatch.context() as patch:
        patch.setattr(generate, "device_of", device)
        patch.setattr(decode_graph, "LEAST_BUCKET", 16)
        yield made
