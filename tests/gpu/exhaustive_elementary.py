"""Every bit pattern: ``python -m tests.gpu.exhaustive_elementary [--stride N] [NAME ...]``, on a GPU.

All 2^32 arguments of every elementary function (and sigmoid, silu, gelu, gelu_tanh) on the GPU against the
CPU kernels, whose results ``tests/kernels/prove_elementary.py`` proves; a stride takes every N-th. "pow" is
2^28 / N pairs. Prints one line per function and exits with 1 if a result differs. On a host of 16 cores a
function takes a few seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import torch
from repro_kernels.cpu import elementary as cpu
from repro_kernels.gpu import elementary as gpu

CHUNK = 1 << 26
PAIRS = 1 << 24
NAMES = (*cpu.ELEMENTARY, "sigmoid", "silu", "gelu", "gelu_tanh", "pow")


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


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--stride", type=int, default=1, help="a power of two up to 64")
    given = parser.parse_args()
    device, total = torch.device("cuda"), 0
    for name in given.names or NAMES:
        began = time.perf_counter()
        each = powers(given.stride, device) if name == "pow" else one_argument(name, given.stride, device)
        found = [(count, example) for count, example in each if count]
        wrong = sum(count for count, _ in found)
        total += wrong
        where = f", e.g. {found[-1][1]}" if found else ""
        print(f"{name}: {wrong} differ{where}; {time.perf_counter() - began:.1f} s", flush=True)
    return int(total != 0)


if __name__ == "__main__":
    sys.exit(main())
