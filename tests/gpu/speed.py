"""Times of products and attention on one GPU, bits of sampled outputs checked against the CPU kernels first.

``python -m tests.gpu.speed``: a linear of 4096 x 4096 bfloat16 weights and float32 activations, beside
LayerCast (weights upcast, then cuBLAS in float32 with TF32 off) and cuBLAS in bfloat16; then attention.
Medians of ``triton.testing.do_bench``; weights rotate, so that they come from memory and not from the
cache.
"""

from __future__ import annotations

import itertools
import platform
from collections.abc import Callable

import torch
import triton
from repro_kernels.cpu import attention as cpu_attention
from repro_kernels.cpu import gemm as cpu_gemm
from repro_kernels.gpu import attention, gemm

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 512, 2048, 4096)
SHAPES = ((2048, 28672, 4096), (2048, 4096, 14336), (1, 28672, 4096), (1, 4096, 14336), (1, 128256, 4096))


def median(call: Callable[[], object], *, graph: bool) -> float:
    """Milliseconds; `graph`: in a CUDA graph, so that a short kernel's launch from Python does not count."""
    if graph:
        call()
        return float(triton.testing.do_bench_cudagraph(call, rep=80, return_mode="median"))
    return float(triton.testing.do_bench(call, warmup=20, rep=80, return_mode="median"))


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether two float32 tensors have the same bits."""
    left, right = (t.cpu().contiguous().view(torch.int32) for t in (ours, theirs))
    return bool((left == right).all())


def product(m: int, n: int, k: int) -> None:
    """One line: ours, LayerCast and cuBLAS bf16 in milliseconds, and LayerCast over ours."""
    generator = torch.Generator("cuda").manual_seed(m)
    copies = max(1, min(8, (200 << 20) // (2 * n * k)))
    x = torch.randn(m, k, generator=generator, device="cuda")
    weights = [
        torch.randn(n, k, generator=generator, device="cuda", dtype=torch.bfloat16) for _ in range(copies)
    ]
    rows = torch.tensor(sorted({0, m // 3, m - 1}), device="cuda")
    columns = torch.tensor([0, 1, n // 3, n // 2, n - 2, n - 1], device="cuda")
    out = gemm.linear(x, weights[0])
    expected = cpu_gemm.linear(x[rows].cpu(), weights[0][columns].cpu())
    assert same(out[rows][:, columns], expected), f"other bits: {m} x {n} x {k}"
    turn = itertools.cycle(range(copies))
    half = x.to(torch.bfloat16)
    ours = median(lambda: gemm.linear(x, weights[next(turn)]), graph=True)
    layercast = median(lambda: torch.matmul(x, weights[next(turn)].float().t()), graph=True)
    bf16 = median(lambda: torch.matmul(half, weights[next(turn)].t()), graph=True)
    print(
        f"{m:5} {n:6} {k:6}  {ours:9.3f} {layercast:9.3f} {bf16:9.3f}   {layercast / ours:5.2f}"
        f"   {2e-9 * m * n * k / ours:6.1f} TFLOP/s  {2e-6 * n * k / ours:6.0f} GB/s",
        flush=True,
    )


def attend(batch: int, queries: int, keys: int, dtype: torch.dtype) -> None:
    """One line: causal attention of an 8B model's shape (32 heads over 8, depth 128), and torch's own."""
    generator = torch.Generator("cuda").manual_seed(queries)
    q = torch.randn(batch, 32, queries, 128, generator=generator, device="cuda").to(dtype)
    k, v = (torch.randn(batch, 8, keys, 128, generator=generator, device="cuda").to(dtype) for _ in range(2))
    at = torch.arange(keys - queries, keys, device="cuda").expand(batch, -1)
    how = {"scale": 128**-0.5, "out_dtype": dtype}
    out = attention.attention(q, k, v, q_positions=at, **how)
    few = torch.tensor(sorted({0, queries // 2, queries - 1}), device="cuda")
    expected = cpu_attention.attention(
        q[:1, :4, few].cpu(), k[:1, :1].cpu(), v[:1, :1].cpu(), q_positions=at[:1, few].cpu(), **how
    )
    assert same(out[:1, :4, few].float(), expected.float()), f"other bits: attention {queries} x {keys}"
    wide_k, wide_v = (t.repeat_interleave(4, dim=1).float() for t in (k, v))
    closed = torch.arange(keys, device="cuda") > at[:, None, :, None]

    def eager() -> torch.Tensor:
        scores = (q.float() @ wide_k.transpose(2, 3) * 128**-0.5).masked_fill(closed, float("-inf"))
        return torch.softmax(scores, dim=-1) @ wide_v

    ours = median(lambda: attention.attention(q, k, v, q_positions=at, **how), graph=False)
    theirs = median(eager, graph=False)
    label = f"attention {batch} x {queries:5} x {keys:5} {str(dtype)[6:]:9}"
    print(f"{label} {ours:9.3f} {theirs:9.3f} {theirs / ours:18.2f}", flush=True)


def main() -> None:
    """Print both tables."""
    torch.backends.cuda.matmul.allow_tf32 = False
    properties = torch.cuda.get_device_properties(0)
    print(
        f"{properties.name}, {properties.multi_processor_count} processors, CUDA {torch.version.cuda}, "
        f"torch {torch.__version__}, triton {triton.__version__}, Python {platform.python_version()}"
    )
    print("    M      N      K    ours ms  LayerCast  cuBLAS bf16  LayerCast / ours")
    for m in ROWS:
        product(m, 4096, 4096)
    for shape in SHAPES:
        product(*shape)
    print("attention B x Sq x Sk                    ours ms  eager fp32       eager / ours")
    for queries, keys in ((1, 512), (1, 2048), (512, 512), (2048, 2048)):
        attend(1, queries, keys, torch.float32)
    attend(8, 1, 512, torch.float32)
    attend(1, 2048, 2048, torch.bfloat16)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
