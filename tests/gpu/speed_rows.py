"""``python -m tests.gpu.speed_rows``: what a Llama-3-8B layer does beside products and attention, on one GPU.

Microseconds of calls in a CUDA graph, data rotating over more than 200 MB where it is that large, with the
bytes that must move over the time; bits of some rows are compared with the CPU kernels first.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch
from repro_kernels.cpu import fused as cpu_fused
from repro_kernels.cpu import softmax as cpu_softmax
from repro_kernels.gpu import fused, norm, reduce, softmax

from tests.gpu.cases import compare
from tests.gpu.tune_rows import milliseconds


def line(
    name: str, ours: Callable[..., object], data: list[tuple[torch.Tensor, ...]], size: int, bits: str = ""
) -> None:
    """Print one call's time; `size`: bytes that it must move."""
    began = time.monotonic()
    ours(*data[0])
    torch.cuda.synchronize()
    first = time.monotonic() - began
    t = milliseconds([functools.partial(ours, *d) for d in (data * 12)[: max(12, len(data))]])
    print(
        f"{name:40} {1e3 * t:8.2f} us {1e-6 * size / t:6.0f} GB/s  first {first:5.2f} s  {bits}", flush=True
    )


def sets(rows: int, width: int, dtype: torch.dtype, each: int = 1) -> list[tuple[torch.Tensor, ...]]:
    """Several sets of `each` random tensors [rows, width]."""
    copies = 8 if rows > 1 else 2
    return [
        tuple(torch.randn(rows, width, device="cuda").to(dtype) for _ in range(each)) for _ in range(copies)
    ]


def step(rows: int, dtype: torch.dtype) -> None:
    """What a layer does with so many tokens."""
    short, item = str(dtype)[6:], dtype.itemsize
    w = torch.randn(4096, device="cuda").bfloat16()
    data = sets(rows, 4096, dtype)
    few = data[0][0][:3]
    want = cpu_fused.rms_norm_module(few.cpu(), w.cpu(), 1e-5)
    line(
        f"rms_norm_module {rows} x 4096 {short}",
        lambda x: fused.rms_norm_module(x, w, 1e-5),
        data,
        2 * rows * 4096 * item,
        compare([fused.rms_norm_module(data[0][0], w, 1e-5)[:3]], [want]) or "same bits",
    )
    line(
        f"layer_norm {rows} x 4096 {short}",
        lambda x: norm.layer_norm(x, (4096,), w, w),
        data,
        2 * rows * 4096 * item,
    )
    line(f"sum {rows} x 4096 {short}", lambda x: reduce.sum(x, 1), data, rows * 4096 * item)
    wide = sets(rows, 14336, dtype, 2)
    want = cpu_fused.swiglu(wide[0][0][:2].cpu(), wide[0][1][:2].cpu())
    line(
        f"swiglu {rows} x 14336 {short}",
        fused.swiglu,
        wide,
        3 * rows * 14336 * item,
        compare([fused.swiglu(*wide[0])[:2]], [want]) or "same bits",
    )
    heads = [
        (q.view(1, rows, 32, 128).transpose(1, 2), k.view(1, rows, 8, 128).transpose(1, 2))
        for (q,), (k,) in zip(sets(rows, 4096, dtype), sets(rows, 1024, dtype), strict=True)
    ]
    cos, sin = (torch.randn(1, rows, 128, device="cuda").to(dtype) for _ in range(2))
    line(
        f"rotary {rows} x (32 + 8) x 128 {short}",
        lambda q, k: fused.rotary(q, k, cos, sin),
        heads,
        2 * rows * 5120 * item,
    )
    scores = sets(32 * min(rows, 64), 2048, dtype)
    want = cpu_softmax.softmax(scores[0][0][:2].cpu(), -1)
    line(
        f"softmax {32 * min(rows, 64)} x 2048 {short}",
        lambda x: softmax.softmax(x, -1),
        scores,
        2 * scores[0][0].numel() * item,
        compare([softmax.softmax(scores[0][0], -1)[:2]], [want]) or "same bits",
    )


def main() -> None:
    """Decode and prefill, both types of activations."""
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}")
    for rows in (1, 2048):
        for dtype in (torch.float32, torch.bfloat16):
            step(rows, dtype)
    x = torch.randn(64 << 20, device="cuda")
    line("copy of 256 MB", lambda x: x.clone(), [(x,)], 512 << 20)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
