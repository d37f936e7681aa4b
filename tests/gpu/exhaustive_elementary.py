"""Every bit pattern: ``python -m tests.gpu.exhaustive_elementary [--stride N] [NAME ...]``, on a GPU.

All 2^32 arguments of every elementary function (and sigmoid, silu, gelu, gelu_tanh) on the GPU against the CPU
kernels, whose results ``tests/kernels/prove_elementary.py`` proves; a stride takes every N-th. Prints one line
per function and exits with 1 if a result differs. On a host of 16 cores a function takes a few seconds.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from repro_kernels.cpu import elementary as cpu
from repro_kernels.gpu import elementary as gpu

CHUNK = 1 << 26
NAMES = (*cpu.ELEMENTARY, "sigmoid", "silu", "gelu", "gelu_tanh")


def differing(name: str, stride: int, device: torch.device) -> tuple[int, int]:
    """How many results differ, and the last argument's pattern (-1 if none)."""
    wrong, last = 0, -1
    for first in range(0, 1 << 32, CHUNK * stride):
        patterns = torch.arange(first, min(first + CHUNK * stride, 1 << 32), stride).to(torch.int32)
        want = cpu.unary(name, patterns.view(torch.float32)).view(torch.int32)
        moved = patterns.to(device)
        got = gpu.unary(name, moved.view(torch.float32)).view(torch.int32)
        bad = got != want.to(device)
        count = int(bad.sum())
        if count:
            wrong, last = wrong + count, int(moved[bad][-1]) % (1 << 32)
    return wrong, last


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--stride", type=int, default=1)
    given = parser.parse_args()
    total = 0
    for name in given.names or NAMES:
        began = time.perf_counter()
        wrong, last = differing(name, given.stride, torch.device("cuda"))
        total += wrong
        where = f", e.g. {last:#010x}" if wrong else ""
        print(f"{name}: {wrong} differ{where}; {time.perf_counter() - began:.1f} s", flush=True)
    return int(total != 0)


if __name__ == "__main__":
    sys.exit(main())
