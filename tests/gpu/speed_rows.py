"""``python -m tests.gpu.speed_rows``: times of reductions, norms, fused steps, order and sampling on a GPU.

Medians of 20 calls after three, the launches' Python included, each beside PyTorch's own kernel if there is
one (whose bits are another matter).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from repro_kernels.gpu import fused, index, norm, order, reduce, sampling
from torch.nn import functional as F


def milliseconds(call: Callable[[], object]) -> float:
    """Median time of a call, the device idle before and after."""
    found = []
    for _ in range(23):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - start))
    return statistics.median(found[3:])


def line(name: str, ours: Callable[[], object], theirs: Callable[[], object] | None = None) -> None:
    """Print one comparison."""
    other = f"{milliseconds(theirs):9.3f}" if theirs is not None else " " * 9
    print(f"{name:44} {milliseconds(ours):9.3f} {other}", flush=True)


def rows_of(rows: int) -> None:
    """What a layer does with so many tokens, products and attention apart."""
    x = torch.randn(rows, 4096, device="cuda")
    w, half = torch.ones(4096, device="cuda", dtype=torch.bfloat16), x.bfloat16()
    line(f"rms_norm_module {rows}x4096 bf16", lambda: fused.rms_norm_module(half, w, 1e-5))
    line(
        f"layer_norm {rows}x4096",
        lambda: norm.layer_norm(x, (4096,), w, w),
        lambda: F.layer_norm(x, (4096,)),
    )
    line(f"sum {rows}x4096", lambda: reduce.sum(x, 1), lambda: x.sum(1))
    gate = torch.randn(rows, 2 * 14336, device="cuda", dtype=torch.bfloat16)
    left, right = gate.chunk(2, 1)
    line(f"swiglu {rows}x14336 bf16", lambda: fused.swiglu(left, right), lambda: F.silu(left) * right)
    q = torch.randn(1, rows, 32, 128, device="cuda").transpose(1, 2)
    table = torch.randn(1, rows, 128, device="cuda")
    line(f"rotary {rows} positions, 32 heads of 128", lambda: fused.rotary(q, q[:, :8], table, table))


def main() -> None:
    """All of them."""
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}; ms: ours, torch")
    rows_of(1)
    rows_of(2048)
    logits = torch.randn(151936, device="cuda")
    many = logits.expand(32, -1).contiguous()
    line("argmax 151936", lambda: order.argmax(logits), logits.argmax)
    line("argmax 32x151936", lambda: order.argmax(many, 1), lambda: many.argmax(1))
    line("topk 50 of 151936", lambda: order.topk(logits, 50), lambda: logits.topk(50))
    line("cumsum 151936", lambda: reduce.cumsum(logits, 0), lambda: logits.cumsum(0))
    line("sum 32x151936", lambda: reduce.sum(many, 1), lambda: many.sum(1))
    base = {"temperature": 0.8, "seed": 1, "position": 5, "sequence_id": 3}
    for how in ({}, {"top_k": 50}, {"top_p": 0.9}):
        line(f"sample of 151936 {how}", lambda how=how: sampling.sample(logits, **base, **how))
    x, source = torch.zeros(2048, 4096, device="cuda"), torch.randn(512, 4096, device="cuda")
    places = torch.randint(0, 2048, (512,), device="cuda")
    line(
        "index_add 512 rows into 2048x4096",
        lambda: index.index_add(x, 0, places, source),
        lambda: x.index_add(0, places, source),
    )


if __name__ == "__main__":
    main()
