"""Attention on one GPU: bits, then times in CUDA graphs: ``python -m tests.gpu.tune_attention``.

Decoding of an 8B model's shape (32 heads over 8, depth 128) for some ways to share out the work, beside the
bytes of keys and values at 4.3 TB/s, torch's eager attention in float32 and its fused one in bfloat16; then
prompts, kernel by kernel.
"""

from __future__ import annotations

import traceback
from typing import Any

import torch
import triton
from repro_kernels.cpu import attention as cpu
from repro_kernels.gpu import attention
from repro_kernels.gpu import attention_few as few
from repro_kernels.gpu.attention_few import Sizes

HOW: dict[str, Any] = {"scale": 128**-0.5}
VARIANTS = (
    Sizes(),
    Sizes(64, 1, 32, 1),
    Sizes(64, 2, 64, 2),
    Sizes(128, 4, 128, 4),
    Sizes(64, 2, 32, 2),
    Sizes(128, 4, 32, 4),
)


def operands(batch: int, queries: int, keys: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """q, k, v in cache layout, and positions at the end."""
    generator = torch.Generator("cuda").manual_seed(keys)
    q = torch.randn(batch, 32, queries, 128, generator=generator, device="cuda").to(dtype)
    k, v = (torch.randn(batch, 8, keys, 128, generator=generator, device="cuda").to(dtype) for _ in range(2))
    return q, k, v, torch.arange(keys - queries, keys, device="cuda").expand(batch, -1).contiguous()


def median(call: Any, rep: int = 20) -> float:
    """Microseconds in a CUDA graph."""
    call()
    return 1e3 * float(triton.testing.do_bench_cudagraph(call, rep=rep, return_mode="median"))


def right(batch: int, queries: int, keys: int, dtype: torch.dtype) -> str:
    """Whether some rows have the CPU's bits."""
    q, k, v, at = operands(batch, queries, keys, dtype)
    rows = torch.tensor(sorted({0, queries // 3, queries - 1}), device="cuda")
    out = attention.attention(q, k, v, q_positions=at, out_dtype=dtype, **HOW)
    b = batch - 1
    expected = cpu.attention(
        q[b:, :8, rows].cpu(),
        k[b:, :2].cpu(),
        v[b:, :2].cpu(),
        q_positions=at[b:, rows].cpu(),
        out_dtype=dtype,
        **HOW,
    )
    got = out[b:, :8, rows].float().cpu().contiguous().view(torch.int32)
    return (
        "same bits" if bool((got == expected.float().contiguous().view(torch.int32)).all()) else "OTHER BITS"
    )


def decode(batch: int, keys: int, dtype: torch.dtype, *, sweep: bool) -> None:
    """A line for every way."""
    q, k, v, at = operands(batch, 1, keys, dtype)
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    bound = k.numel() * k.element_size() * 2 / 4.3e6
    line = f"{batch:2} x {keys:5} {str(dtype)[6:]:8} bytes {bound:6.1f} us;"
    if not sweep:
        wide = [t.repeat_interleave(4, dim=1).float() for t in (k, v)]

        def eager() -> torch.Tensor:
            return torch.softmax(q.float() @ wide[0].transpose(2, 3) * 128**-0.5, dim=-1) @ wide[1]

        half = [t.to(torch.bfloat16) for t in (q, k, v)]
        sdpa = torch.nn.functional.scaled_dot_product_attention
        line += f" eager {median(eager):6.1f} sdpa bf16 {median(lambda: sdpa(*half, enable_gqa=True)):6.1f};"
    for sizes in VARIANTS if sweep else VARIANTS[:1]:
        try:
            few.DEFAULT = sizes
            few.run.__defaults__ = (sizes,)
            spent = median(
                lambda: attention.attention(q, k, v, q_positions=at, flag=flag, out_dtype=dtype, **HOW)
            )
            line += f" {'.'.join(map(str, sizes))} {spent:6.1f}"
        except Exception as error:
            traceback.print_exc(limit=2)
            line += f" {sizes} {type(error).__name__}"
    few.run.__defaults__ = (VARIANTS[0],)
    print(line, flush=True)


def profile(batch: int, queries: int, keys: int, dtype: torch.dtype) -> None:
    """Microseconds of each kernel of a call."""
    q, k, v, at = operands(batch, queries, keys, dtype)
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    how = {"q_positions": at, "flag": flag, "out_dtype": dtype, **HOW}
    attention.attention(q, k, v, **how)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(5):
            attention.attention(q, k, v, **how)
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda e: -e.device_time_total)[:4]
    times = "; ".join(f"{e.key[:28]} {e.device_time_total / 5:.1f}" for e in rows)
    print(f"{batch} x {queries} x {keys} {str(dtype)[6:]}: {times}", flush=True)


def main() -> None:
    """Print the tables."""
    torch.backends.cuda.matmul.allow_tf32 = False
    shapes = [(1, 1, 512), (2, 1, 2048), (3, 1, 130), (1, 5, 700), (1, 300, 300), (1, 100, 1000)]
    for shape in shapes:
        print(*shape, *(right(*shape, dtype) for dtype in (torch.float32, torch.bfloat16)), flush=True)
    for batch, keys in ((1, 512), (1, 2048), (1, 8192), (8, 512), (8, 2048), (32, 2048)):
        decode(batch, keys, torch.float32, sweep=False)
    for batch, queries, keys in ((1, 1, 512), (1, 1, 2048), (32, 1, 2048), (1, 2048, 2048)):
        for dtype in (torch.float32, torch.bfloat16):
            profile(batch, queries, keys, dtype)
    for batch, keys in ((1, 512), (1, 2048), (32, 2048)):
        decode(batch, keys, torch.float32, sweep=True)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
