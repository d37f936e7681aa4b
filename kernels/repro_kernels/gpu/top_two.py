"""The two largest logits of each row, and the flag where one is no number: greedy drawing under profile
``fp32`` on CUDA tensors, which waits for nothing.

Two launches: each program finds the two best of a chunk of a row, as integers in the order of
``repro_kernels.gpu.order`` with the index below, no two of them equal; one program per row those of its
chunks. Tests: ``tests/gpu/cases_sampling.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from repro_kernels.cpu.layout import number
from repro_kernels.gpu.order import order_key
from repro_kernels.gpu.runtime import Build, launch

_BLOCK = 1024
_CHUNK = 1 << 13


@triton.jit
def _two(x, parts, n, splits, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """Of each chunk of a row the two best: the element's order above, its index from the end below."""
    row = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1) * CHUNK
    best = tl.full([BLOCK], -0x8000000000000000, tl.int64)
    second = best
    for first in range(0, CHUNK, BLOCK):
        i = begin + first + tl.arange(0, BLOCK)
        value = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
        ranked = (order_key(value).to(tl.int64) << 32) | (0x7FFFFFFF - i)
        ranked = tl.where(i < n, ranked, -0x8000000000000000)
        second = tl.maximum(second, tl.minimum(best, ranked))
        best = tl.maximum(best, ranked)
    _store_two(parts + (row * splits + tl.program_id(1)) * 2, best, second)


@triton.jit
def _store_two(to, best, second):
    """The two greatest of all lanes' two; no two of them are equal, but for lanes without elements."""
    first = tl.max(best, axis=0)
    tl.store(to, first)
    tl.store(to + 1, tl.max(tl.where(best == first, second, best), axis=0))


@triton.jit
def _last_two(x, parts, tokens, tops, flag, n, splits, BLOCK: tl.constexpr):
    """Of a row's chunks the two best: ids and float32 bits; a NaN raises the flag."""
    row = tl.program_id(0).to(tl.int64)
    best = tl.full([BLOCK], -0x8000000000000000, tl.int64)
    second = best
    for first in range(0, splits, BLOCK):
        s = first + tl.arange(0, BLOCK)
        for side in tl.static_range(2):
            at = parts + (row * splits + s) * 2 + side
            ranked = tl.load(at, mask=s < splits, other=-0x8000000000000000)
            second = tl.maximum(second, tl.minimum(best, ranked))
            best = tl.maximum(best, ranked)
    first = tl.max(best, axis=0)
    other = tl.max(tl.where(best == first, second, best), axis=0)
    token = 0x7FFFFFFF - (first & 0x7FFFFFFF)
    tl.store(tokens + row, token)
    bits = tl.load(x + row * n + token).to(tl.float32).to(tl.int32, bitcast=True)
    tl.store(tops + row * 4, token)
    tl.store(tops + row * 4 + 1, bits.to(tl.int64) & 0xFFFFFFFF)
    tl.store(flag + row * 0, 1, mask=(bits & 0x7FFFFFFF) > 0x7F800000)
    token = tl.where(n > 1, 0x7FFFFFFF - (other & 0x7FFFFFFF), 0)
    bits = tl.load(x + row * n + token).to(tl.float32).to(tl.int32, bitcast=True)
    tl.store(tops + row * 4 + 2, token)
    tl.store(tops + row * 4 + 3, tl.where(n > 1, bits.to(tl.int64) & 0xFFFFFFFF, 0))


def top_two(logits: torch.Tensor) -> torch.Tensor:
    """The two largest logits of each row: :func:`repro_kernels.cpu.sampling.top_two`."""
    return best_two(logits, torch.zeros(1, dtype=torch.int32, device=logits.device))[1]


def best_two(logits: torch.Tensor, flag: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The best id of each row, and the two best with their bits; a NaN sets the flag."""
    x = logits.contiguous()
    number(x.dtype, "sampling")
    rows, n = x.shape
    splits = -(-n // _CHUNK)
    parts = torch.empty(rows, splits, 2, dtype=torch.int64, device=x.device)
    tokens = torch.empty(rows, dtype=torch.int64, device=x.device)
    tops = torch.empty(rows, 2, 2, dtype=torch.int64, device=x.device)
    launch(_two, (rows, splits), x, parts, n, splits, BLOCK=_BLOCK, CHUNK=_CHUNK)
    launch(_last_two, rows, x, parts, tokens, tops, flag, n, splits, BLOCK=32, num_warps=1)
    return tokens, tops


def _builds() -> Iterator[Build]:
    for kind in ("*fp32", "*bf16", "*fp16"):
        pointers = {"x": kind, "parts": "*i64"}
        chunks = {"BLOCK": _BLOCK, "CHUNK": _CHUNK}
        yield Build(_two, {**pointers, "n": "i32", "splits": "i32"}, chunks, fma=False)
        pointers.update({"tokens": "*i64", "tops": "*i64", "flag": "*i32"})
        yield Build(
            _last_two, {**pointers, "n": "i32", "splits": "i32"}, {"BLOCK": 32}, {"num_warps": 1}, fma=False
        )


BUILDS = tuple(_builds())
"""Every kernel and dtype."""
