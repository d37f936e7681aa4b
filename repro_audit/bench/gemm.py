"""Matrix products of profile fp32 against torch's fp32 matmul, bits checked first."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import torch
from repro_kernels.cpu.gemm import linear
from repro_kernels.spec import dot

from repro_audit.bench.timing import milliseconds, race
from repro_audit.errors import InconclusiveError

SIZE = 2048
ROWS = (1, 16, 128, 512)
_CHECKED = 8


def measure(rounds: int) -> Iterator[tuple[str, str]]:
    """(name, text) per number of rows: both medians and torch / ours (above 1: faster than torch).

    Raises:
        InconclusiveError: a product has other bits than the specification.
    """
    generator = torch.Generator().manual_seed(1)
    w = torch.randn(SIZE, SIZE, generator=generator).to(torch.bfloat16)
    w32 = w.float().t()
    for rows in ROWS:
        x = torch.randn(rows, SIZE, generator=generator)
        _check(x, w, linear(x, w))
        calls = max(1, 64 // rows)

        def ours(x: torch.Tensor = x, calls: int = calls) -> None:
            for _ in range(calls):
                linear(x, w)

        def theirs(x: torch.Tensor = x, calls: int = calls) -> None:
            for _ in range(calls):
                torch.matmul(x, w32)

        with torch.inference_mode():
            times = race({"ours": ours, "torch": theirs}, rounds=3 * rounds, warmups=2)
        mine, other = times["ours"].median / calls, times["torch"].median / calls
        yield (
            f"gemm M={rows}",
            f"{milliseconds(mine)}, torch fp32 {milliseconds(other)}, ratio {other / mine:.2f}",
        )


def _check(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> None:
    for index in range(_CHECKED):
        row, column = (index * 37) % x.shape[0], (index * 911) % w.shape[0]
        expected = struct.pack("<f", dot.dot(x[row].tolist(), w[column].float().tolist()))
        found = struct.pack("<f", y[row, column].item())
        if found != expected:
            raise InconclusiveError(
                f"linear with {x.shape[0]} rows gives {found.hex()} where the specification says "
                f"{expected.hex()}",
                hint="run repro-audit doctor",
            )
