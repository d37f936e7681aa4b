"""Every bit pattern: ``python -m tests.gpu.exhaustive_elementary [--stride N] [--jobs N] [NAME ...]``.

On a GPU, all 2^32 arguments of every elementary function (and sigmoid, silu, gelu, gelu_tanh) against the CPU
kernels, whose results ``tests/kernels/prove_elementary.py`` proves; a stride takes every N-th. "pow" is 2^28
/ N pairs. Prints one line per function and a summary; exits with 1 if a result differs or time ran out.
A function takes 20 to 200 seconds of one CPU core at stride 1.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch
from repro_kernels.cpu import elementary as cpu
from repro_kernels.gpu import elementary as gpu

CHUNK = 1 << 24
PAIRS = 1 << 24
NAMES = ("pow", *cpu.ELEMENTARY, "sigmoid", "silu", "gelu", "gelu_tanh")


def unequal(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Where results on the GPU and on the CPU differ."""
    return got.view(torch.int32) != want.view(torch.int32).to(got.device)


def one_argument(name: str, stride: int, device: torch.device) -> Iterator[tuple[int, str]]:
    """Per chunk, how many results differ, and the last argument's pattern."""
    steps = torch.arange(0, CHUNK * stride, stride).to(torch.int32)
    for first in range(0, 1 << 32, CHUNK * stride):
        patterns = steps + (first if first < 1 << 31 else first - (1 << 32))
        moved = patterns.to(device)
        want = cpu.unary(name, patterns.view(torch.float32))
        bad = unequal(gpu.unary(name, moved.view(torch.float32)), want)
        count = int(bad.sum())
        yield count, hex(int(moved[bad][-1]) % (1 << 32)) if count else ""


def powers(stride: int, device: torch.device) -> Iterator[tuple[int, str]]:
    """Pairs: any bits; results spread over binary32; bases near 1."""
    made = torch.Generator().manual_seed(1)
    for chunk in range(max(1, (1 << 28) // stride // PAIRS)):
        if chunk % 4 == 0:
            x, y = (
                torch.randint(-(2**31), 2**31, (PAIRS,), generator=made).to(torch.int32).view(torch.float32)
                for _ in range(2)
            )
        else:
            spread = 40 if chunk % 2 else 1e-5
            x = torch.exp2(spread * torch.randn(PAIRS, generator=made))
            y = (50 * torch.randn(PAIRS, generator=made) / torch.log2(x.double())).float()
        bad = unequal(gpu.pow(x.to(device), y.to(device)), cpu.pow(x, y))
        count = int(bad.sum())
        at = int(bad.nonzero()[-1]) if count else 0
        yield count, f"{float(x[at]).hex()} ^ {float(y[at]).hex()}" if count else ""


class Outcome(NamedTuple):
    """One function: arguments compared, results that differ, one such argument, and the seconds it took."""

    name: str
    compared: int
    wrong: int
    example: str
    seconds: float


def compare(task: tuple[str, int, int]) -> Outcome:
    """All arguments of one function at a stride, on the first GPU and on a number of CPU threads."""
    name, stride, threads = task
    torch.set_num_threads(threads)
    device, began = torch.device("cuda"), time.perf_counter()
    chunks = list(powers(stride, device) if name == "pow" else one_argument(name, stride, device))
    size = PAIRS if name == "pow" else CHUNK
    wrong = [(count, example) for count, example in chunks if count]
    return Outcome(
        name,
        size * len(chunks),
        sum(count for count, _ in wrong),
        wrong[-1][1] if wrong else "",
        time.perf_counter() - began,
    )


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--stride", type=int, default=1, help="a power of two up to 64")
    parser.add_argument("--jobs", type=int, default=1, help="functions at once, each in a process")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop then, naming what is left")
    given = parser.parse_args()
    names, began = tuple(given.names or NAMES), time.perf_counter()
    threads = max(1, (os.cpu_count() or 1) // given.jobs)
    found: list[Outcome] = []
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        results = pool.imap_unordered(compare, [(name, given.stride, threads) for name in names])
        for _ in names:
            try:
                one = results.next(max(0.1, given.seconds - (time.perf_counter() - began)))
            except multiprocessing.TimeoutError:
                break
            found.append(one)
            where = f", e.g. {one.example}" if one.wrong else ""
            print(f"{one.name}: {one.wrong} differ{where}; {one.seconds:.1f} s", flush=True)
        pool.terminate()
    wrong = sum(one.wrong for one in found)
    left = sorted(set(names) - {one.name for one in found})
    compared = sum(one.compared for one in found)
    print(f"{len(found)} of {len(names)} functions, {compared} arguments: {wrong} differ", flush=True)
    if left:
        print("not finished: " + ", ".join(left), flush=True)
    return int(bool(wrong or left))


if __name__ == "__main__":
    sys.exit(main())
