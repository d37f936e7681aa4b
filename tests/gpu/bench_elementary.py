"""Speed of elementwise kernels on a GPU: ``python -m tests.gpu.bench_elementary [--tune]``.

Prints, per function and type, GB/s read and written over 2^26 elements, beside those of a copy; --tune
tries blocks and warps. Inputs are normal, so that one block in some hundreds takes the second step.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from repro_kernels.gpu import elementary
from repro_kernels.gpu.runtime import launch

COUNT = 1 << 26
FUNCTIONS = ("exp", "silu", "gelu", "gelu_tanh", "tanh", "rsqrt", "log", "sin", "erf", "sigmoid", "relu")
SHAPES = ((512, 4), (256, 4), (1024, 4), (1024, 8), (256, 2), (128, 1), (256, 1))


def rate(call: Callable[[], object], size: int) -> float:
    """GB/s of 20 calls, the median of five rounds."""
    call()
    found = []
    for _ in range(5):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(20):
            call()
        stop.record()
        stop.synchronize()
        found.append(20 * size / start.elapsed_time(stop) / 1e6)
    return sorted(found)[2]


def shaped(name: str, x: torch.Tensor, y: torch.Tensor, block: int, warps: int) -> None:
    """One launch with a block and warps of its own."""
    n, rest = x.numel(), {"NAME": name, "BLOCK": block, "num_warps": warps}
    launch(elementary._unary, -(-n // block), x, y, n, 0.0, 0.0, 0.0, **rest)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tune", action="store_true")
    tune = parser.parse_args().tune
    print(torch.cuda.get_device_name())
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(COUNT, device="cuda").to(dtype)
        y = torch.empty_like(x)
        size = 2 * x.numel() * x.element_size()
        print(f"{dtype}: copy {rate(lambda: y.copy_(x), size):.0f} GB/s")  # noqa: B023
        for name in FUNCTIONS:
            z = x.abs() if name in ("rsqrt", "log") else x
            line = f"{name}: {rate(lambda: elementary.unary(name, z), size):.0f}"  # noqa: B023
            for block, warps in SHAPES if tune else ():
                speed = rate(lambda: shaped(name, z, y, block, warps), size)  # noqa: B023
                line += f", {block}/{warps} {speed:.0f}"
            print(line, flush=True)
        base = x.abs()
        print(f"pow 1.7: {rate(lambda: elementary.pow(base, 1.7), size):.0f}")  # noqa: B023


if __name__ == "__main__":
    main()
