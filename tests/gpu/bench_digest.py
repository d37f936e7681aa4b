"""Row digests on a GPU: bits, compilation, time: ``python -m tests.gpu.bench_digest``."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from repro_kernels.cpu import digest as reference
from repro_kernels.gpu import blake3, digest

KEY = bytes(range(3, 35))


def wrong(tensor: torch.Tensor, dims: int = 1) -> int:
    """How many row digests of a CPU tensor differ on the GPU."""
    got = digest.row_digests(tensor.cuda(), KEY, row_dims=dims).cpu().numpy()
    return int((got != reference.row_digests(tensor, KEY, row_dims=dims)).any(axis=-1).sum())


def microseconds(call: Callable[[], object], repeats: int = 30) -> float:
    """The median of repetitions, by events."""
    call()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for before, after in marks:
        before.record()
        call()
        after.record()
    torch.cuda.synchronize()
    return sorted(1000 * before.elapsed_time(after) for before, after in marks)[repeats // 2]


def graphed(call: Callable[[], object]) -> Callable[[], None]:
    """The call, replayed from a CUDA graph."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def step(layers: int, dtype: torch.dtype) -> list[tuple[torch.Tensor, bytes, int]]:
    """What a decode step of a Llama-3-8B shape records at level ops, or so."""
    items = []
    widths = [4096] * 9 + [14336] * 3
    for _ in range(layers):
        items += [(torch.randn(1, width, device="cuda").to(dtype), KEY, 1) for width in widths]
        items += [(torch.randn(1, 8, 128, device="cuda").to(dtype), KEY, 2) for _ in range(4)]
    return [*items, (torch.randn(1, 128256, device="cuda").to(dtype), KEY, 1)]


def main() -> None:
    """Print everything, the bits first."""
    began = time.perf_counter()
    wrong(torch.randn(3, 700))
    print(f"compilation and first call {time.perf_counter() - began:.2f} s", flush=True)
    kernels = [*blake3.chunks.device_caches.values(), *blake3.parents.device_caches.values()]
    for cache in kernels:
        for compiled in cache[0].values():
            print(f"  {compiled.name}: {compiled.n_regs} registers, {compiled.n_spills} spilled")
    torch.manual_seed(5)
    widths = [*range(1, 140), *range(1000, 1040), *range(2030, 2070), 3000, 4096, 57344, 70001, 5000000]
    bad = sum(wrong(torch.randint(0, 256, (3, width), dtype=torch.uint8)) for width in widths)
    for dtype in (*digest._NAN, torch.float64, torch.complex128, torch.bool, torch.int64):
        raw = torch.randint(0, 256, (5, 4, 4096), dtype=torch.uint8)
        raw[..., 1::3] |= 0x7F
        bad += wrong((raw & 1 if dtype is torch.bool else raw).view(dtype), 2)
    strided = torch.randn(6, 30, 48).transpose(0, 1)
    items = [*((i.cpu(), k, d) for i, k, d in step(1, torch.bfloat16)), (strided, KEY, 2), (strided, KEY, 0)]
    moved = [(tensor.cuda(), key, dims) for tensor, key, dims in items]
    for got, want in zip(digest.digest_many(moved), reference.digest_many(items), strict=True):
        bad += int((got.cpu().numpy() != want).any())
    print(f"wrong digests: {bad}", flush=True)
    for rows, width in ((4096, 4096), (2048, 4096), (2048, 14336), (512, 4096), (29127, 576), (1, 2**24)):
        tensor = torch.randn(rows, width, device="cuda")
        time_of = microseconds(lambda t=tensor: digest.row_digests(t, KEY))
        replayed = microseconds(graphed(lambda t=tensor: digest.row_digests(t, KEY)))
        half = tensor.to(torch.bfloat16)
        halved = microseconds(graphed(lambda t=half: digest.row_digests(t, KEY)))
        whole = tensor.view(torch.int32)
        raw = microseconds(graphed(lambda t=whole: digest.row_digests(t, KEY)))
        size = tensor.nbytes / 1000
        print(
            f"{rows} x {width} fp32: {time_of:.1f} us, graph {replayed:.1f} us = {size / replayed:.0f} GB/s, "
            f"integers {size / raw:.0f}, bf16 {size / 2 / halved:.0f} GB/s",
            flush=True,
        )
    for layers, dtype in ((32, torch.float32), (32, torch.bfloat16), (1, torch.bfloat16)):
        recorded = step(layers, dtype)
        size = sum(item[0].nbytes for item in recorded)
        eager = microseconds(lambda items=recorded: digest.digest_many(items), 5)
        replayed = microseconds(graphed(lambda items=recorded: digest.digest_many(items)))
        print(
            f"step of {len(recorded)} tensors, {size / 1e6:.1f} MB {dtype}: graph {replayed:.1f} us, "
            f"eager {eager:.0f} us",
            flush=True,
        )
    sweep()


def sweep() -> None:
    """Other lanes per program and joins per program."""
    tensor = torch.randn(4096, 4096, device="cuda")
    wide = torch.randn(2048, 14336, device="cuda")
    recorded = step(32, torch.float32)
    want = digest.row_digests(tensor, KEY)
    for lanes, packed in ((32, 32), (32, 64), (32, 128), (64, 64), (128, 128)):
        blake3.LANES, digest._PACKED = lanes, packed
        digest._batch.cache_clear()
        digest._alone.cache_clear()
        same = bool((digest.row_digests(tensor, KEY) == want).all())
        first = microseconds(graphed(lambda: digest.row_digests(tensor, KEY)))
        second = microseconds(graphed(lambda: digest.row_digests(wide, KEY)))
        third = microseconds(graphed(lambda: digest.digest_many(recorded)))
        print(
            f"lanes {lanes}, joins {packed}: same {same}, "
            f"{tensor.nbytes / 1000 / first:.0f} GB/s, {wide.nbytes / 1000 / second:.0f} GB/s, "
            f"step {third:.1f} us",
            flush=True,
        )


if __name__ == "__main__":
    main()
