"""BLAKE3 of rows: 64 MiB of float32 rows of 16 KiB, beside the blake3 package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import blake3
import numpy as np
import torch
from repro_kernels.cpu import digest as cpu_digest

from repro_audit.bench.inputs import SCALES, refresher, sets_needed
from repro_audit.bench.roofline import Roofline, Work
from repro_audit.bench.rows import OURS, Row, of_race
from repro_audit.bench.timing import Contender, race, wall
from repro_audit.errors import InconclusiveError

ROWS, WIDTH = 4096, 4096
CASE = "64 MiB, rows of 16 KiB"
_KEY = bytes(range(32))


def measure(device: str, roofline: Roofline | None, rounds: int) -> Iterator[Row]:
    """The rows: ours, and the package's on one thread of the CPU.

    Raises:
        InconclusiveError: a digest is not the package's.
    """
    size = 4 * ROWS * WIDTH
    sets = sets_needed(size, roofline.cache if roofline else None)
    tensors = [torch.empty(ROWS, WIDTH, device=device) for _ in range(sets)]
    refresh = refresher(tensors)
    many = digests_of(device)
    first = wall(lambda: many([(tensors[0], _KEY, 1)]), device)
    with torch.inference_mode():
        for turn, scale in enumerate(SCALES):
            refresh(turn)
            for tensor in tensors:
                _check(f"digests, inputs x {scale:g}", many([(tensor, _KEY, 1)])[0], tensor)
        contenders = {
            OURS: Contender(lambda i: many([(tensors[i], _KEY, 1)])),
            "blake3 package, one CPU thread": Contender(_package(tensors), host=True),
        }
        times = race(contenders, device=device, sets=sets, rounds=rounds, refresh=refresh)
    works = {OURS: Work(size + 32 * ROWS)}
    ours, *rest = of_race("hash", CASE, times, works, roofline)
    if not ours.note:
        ours = replace(
            ours,
            note=f"first call {first:.1f} s, with compilation where it is not cached"
            if device != "cpu"
            else "",
        )
    yield from (ours, *rest)


def digests_of(device: str) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Our digests of a kind of device."""
    if device == "cpu":
        return cpu_digest.digest_many
    from repro_kernels.gpu import digest

    return digest.digest_many


def _package(tensors: list[torch.Tensor]) -> Callable[[int], object]:
    """Hashes what the first tensor holds now, already in the CPU's memory."""
    data = tensors[0].cpu().numpy().tobytes()
    step = 4 * WIDTH
    return lambda _: [
        blake3.blake3(data[start : start + step], key=_KEY).digest() for start in range(0, len(data), step)
    ]


def _check(what: str, found: Any, tensor: torch.Tensor) -> None:
    table = np.ascontiguousarray(tensor.cpu().numpy())
    expected = b"".join(blake3.blake3(row.tobytes(), key=_KEY).digest() for row in table)
    digests = found.cpu().numpy() if isinstance(found, torch.Tensor) else found
    if digests.tobytes() != expected:
        raise InconclusiveError(
            f"{what}: not the blake3 package's", hint="nothing was timed; run repro-audit doctor"
        )
