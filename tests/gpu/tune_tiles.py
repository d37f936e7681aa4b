"""A sweep over tiles of ``repro_kernels.gpu.outer`` on one GPU: bits first, then times beside cuBLAS.

``python -m tests.gpu.tune_tiles [NAMES]`` compiles the candidates in parallel processes, each of which
compares all of its result to the kernels in use (and those, sampled, to the CPU's); then times them, in CUDA
graphs, beside cuBLAS in float32 (TF32 off), in bfloat16, and LayerCast.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
import triton
from repro_kernels.cpu import gemm as cpu_gemm
from repro_kernels.gpu import gemm, product, tiling
from repro_kernels.gpu.runtime import launch
from repro_kernels.gpu.tiling import Form
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

WIDE = {
    "128x128": Form(128, 128, (4, 2)),
    "128x128 kept": Form(128, 128, (4, 2), kept=True),
    "128x128 deep": Form(128, 128, (4, 2), depth=32),
    "128x128 8": Form(128, 128, (4, 2), depth=8),
    "16x8 8": Form(128, 128, (2, 2), kept=True, depth=8),
    "64x128": Form(64, 128, (2, 2)),
    "64x128 kept": Form(64, 128, (2, 2), kept=True),
    "64x64": Form(64, 64, (2, 1)),
    "2x4": Form(128, 128, (2, 4)),
}
FEW = {
    "32x64": Form(32, 64, (1, 1), registers=255),
    "32x64 8": Form(32, 64, (1, 1), registers=255, depth=8),
    "32x128": Form(32, 128, (1, 2), registers=255),
    "32x256": Form(32, 256, (1, 4), registers=255),
    "32x32": Form(32, 32, (1, 1), registers=255),
    "16x128": Form(16, 128, (1, 1), "nmnnn", registers=255, depth=8),
}
SHAPES = {
    "square": (4096, 4096, 4096),
    "512": (512, 4096, 4096),
    "2048": (2048, 4096, 14336),
    "32a": (32, 6144, 4096),
    "32b": (32, 4096, 14336),
    "100": (100, 1000, 1000),
    "16": (16, 4096, 4096),
}
_SPLITS = {
    "2048": (("128x128", 1),),
    "32a": (("32x64", 11), ("32x64", 32), ("32x64 8", 11), ("32x128", 11), ("32x256", 11), ("32x32", 8)),
    "32b": (("32x64", 16), ("32x64", 28), ("32x128", 16), ("32x32", 8)),
    "100": (("32x64", 8), ("32x32", 8), ("32x32", 4)),
    "16": (("16x128", 32), ("16x128", 16)),
}
PLAN = [
    *((name, form, "square", 1) for name, form in WIDE.items()),
    *((name, WIDE[name], "512", 1) for name in ("128x128", "64x128", "64x128 kept", "64x64")),
    *((n, {**WIDE, **FEW}[n], shape, split) for shape, some in _SPLITS.items() for n, split in some),
]


@gluon.jit
def _ceiling(out, rounds, ACC: gl.constexpr):
    """Outer products out of registers as the compiler orders them: what their register reads cost."""
    x = gl.arange(0, 128, layout=gl.SliceLayout(1, ACC)).to(gl.float32) * 0.001
    w = gl.arange(0, 128, layout=gl.SliceLayout(0, ACC)).to(gl.float32) * 0.001
    p = gl.zeros([128, 128], gl.float32, ACC)
    for _ in range(rounds):
        for _u in gl.static_range(0, 16):
            p = gl.fma(gl.broadcast(x[:, None], p)[0], gl.broadcast(w[None, :], p)[0], p)
    m = gl.arange(0, 128, layout=gl.SliceLayout(1, ACC))
    n = gl.arange(0, 128, layout=gl.SliceLayout(0, ACC))
    gl.store(out + m[:, None] * 128 + n[None, :], p)


def operands(shape: str, copies: int = 1) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Activations and weights, the same in every process."""
    m, n, k = SHAPES[shape]
    generator = torch.Generator("cuda").manual_seed(m)
    x = torch.randn(m, k, generator=generator, device="cuda")
    draw = lambda: torch.randn(n, k, generator=generator, device="cuda", dtype=torch.bfloat16)  # noqa: E731
    return x, [draw() for _ in range(copies)]


def apply(form: Form, split: int, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Any:
    """One product by one candidate; the compiled kernel."""
    (m, k), n = a.shape, b.shape[0]
    segments = -(-k // 128)
    share = -(-segments // split)
    groups = -(-segments // share)
    high, wide = -(-m // form.rows) * form.rows, -(-n // form.columns) * form.columns
    parts = torch.empty(segments * high * wide if split > 1 else 0, device="cuda")
    sizes = (m, n, k, 0, 1, 1, share, segments, 1)
    strides = (0, 0, 0, *a.stride(), 0, 0, 0, *b.stride(), *[0] * 5, 0, 0, 0, out.stride(0))
    grid = (-(-m // form.rows) * -(-n // form.columns), groups)
    tensors = (a, b, out, out, parts)
    kernel = tiling.run(form, grid, tensors, (*sizes, *strides), (1.0, 1.0), False, split > 1)
    if split > 1:
        launch(
            product._combine, m * -(-wide // 512), parts, out, out, m, n, 1, 1, segments, 1, high, wide,
            0, 0, 0, 0, 0, 0, 0, 0, out.stride(0), 1.0, 1.0, BIAS=False, LANES=512, num_warps=4,
        )  # fmt: skip
    return kernel


def repeat(form: Form, split: int, x: torch.Tensor, turn: Iterator[torch.Tensor], out: torch.Tensor) -> None:
    """:func:`apply` to the next weights, which so come from memory and not from the cache."""
    apply(form, split, x, next(turn), out)


def check(entry: tuple[str, Form, str, int]) -> str:
    """Registers, spills and programs per processor of a candidate, after its bits; or what went wrong."""
    _, form, shape, split = entry
    try:
        x, (w,) = operands(shape)
        out = torch.full((x.shape[0], w.shape[0]), float("nan"), device="cuda")
        kernel = apply(form, split, x, w, out)
        reference = gemm.linear(x, w)
        different = int((out.view(torch.int32) != reference.view(torch.int32)).sum())
        if different:
            return f"BITS {different} differ"
        warps, shared = form.warps[0] * form.warps[1], kernel.metadata.shared
        fit = min(65536 // (-(-kernel.n_regs // 8) * 8 * 32 * warps), 233472 // (shared + 1024), 32)
        return f"{kernel.n_regs:3} regs {kernel.n_spills:3} spilt {shared >> 10:3}K {fit} x {warps} warps"
    except Exception as error:  # a candidate that fails must not end the sweep
        traceback.print_exc()
        return f"FAILED {type(error).__name__} {str(error)[:80]!r}"


def median(call: Any, rep: int = 40) -> float:
    """Milliseconds in a CUDA graph."""
    call()
    return float(triton.testing.do_bench_cudagraph(call, rep=rep, return_mode="median"))


def beside(shape: str, weights: list[torch.Tensor], x: torch.Tensor) -> tuple[float, float]:
    """One line of cuBLAS and LayerCast; milliseconds of cuBLAS fp32 and LayerCast."""
    m, n, k = SHAPES[shape]
    turn = itertools.cycle(range(len(weights)))
    full = [w.float() for w in weights]
    half = x.to(torch.bfloat16)
    reference = gemm.linear(x, weights[0])
    rows, columns = torch.tensor([0, m // 2, m - 1]), torch.tensor([0, n // 3, n - 1])
    expected = cpu_gemm.linear(x.cpu()[rows], weights[0].cpu()[columns])
    same = bool((reference.cpu()[rows][:, columns].view(torch.int32) == expected.view(torch.int32)).all())
    times = [
        median(lambda: gemm.linear(x, weights[next(turn)])),
        median(lambda: torch.matmul(x, full[next(turn)].t())),
        median(lambda: torch.matmul(x, weights[next(turn)].float().t())),
        median(lambda: torch.matmul(half, weights[next(turn)].t())),
    ]
    print(f"{shape} {m}x{n}x{k} in use {times[0]:.4f} ({'right' if same else 'WRONG'}) "
          f"cuBLAS fp32 {times[1]:.4f} LayerCast {times[2]:.4f} bf16 {times[3]:.4f}", flush=True)  # fmt: skip
    return times[1], times[2]


def once() -> None:
    """Every wide candidate once, for a profiler."""
    torch.backends.cuda.matmul.allow_tf32 = False
    x, (w,) = operands("square")
    full = w.float()
    gemm.linear(x, w)
    torch.matmul(x, full.t())
    out = torch.empty(4096, 4096, device="cuda")
    for form in WIDE.values():
        apply(form, 1, x, w, out)
    torch.cuda.synchronize()


def main(chosen: list[str]) -> None:
    """Print the table."""
    torch.backends.cuda.matmul.allow_tf32 = False
    plan = [e for e in PLAN if not chosen or e[0] in chosen or e[2] in chosen]
    started = time.time()
    with ProcessPoolExecutor(16, multiprocessing.get_context("spawn")) as pool:
        notes = list(pool.map(check, plan))
    print(f"compiled and compared in {time.time() - started:.0f} s", flush=True)
    acc = tiling.outputs(WIDE["128x128"])[0]
    scratch = torch.empty(128 * 128, device="cuda")
    spent = median(lambda: launch(_ceiling, 132 * 4, scratch, 400, ACC=acc, num_warps=8))
    print(f"out of registers {132 * 4 * 400 * 16 * 128 * 128 * 2e-9 / spent:.1f} TFLOP/s", flush=True)
    for shape, group in itertools.groupby(zip(plan, notes, strict=True), key=lambda e: e[0][2]):
        m, n, k = SHAPES[shape]
        x, weights = operands(shape, max(1, min(8, (200 << 20) // (2 * n * k))))
        fp32, cast = beside(shape, weights, x)
        out = torch.empty(m, n, device="cuda")
        for (name, form, _, split), note in group:
            if note[0] in "BF":
                print(f"  {name:13} {split:2} {note}", flush=True)
                continue
            turn = itertools.cycle(weights)
            spent = median(functools.partial(repeat, form, split, x, turn, out))
            print(f"  {name:13} {split:2} {spent:8.4f} ms {2e-9 * m * n * k / spent:5.1f} TFLOP/s  "
                  f"cuBLAS {fp32 / spent:5.3f} LayerCast {cast / spent:5.2f} {note}", flush=True)  # fmt: skip


if __name__ == "__main__":
    with torch.inference_mode():
        once() if sys.argv[1:] == ["--once"] else main(sys.argv[1:])
