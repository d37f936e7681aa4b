"""Running sums of numbers that are not negative, element by element rounded, without adding one by one.

``c_i = RN(c_{i-1} + y_i)`` is a chain of n dependent additions. While c keeps its exponent, its last place is
one unit u, and a step adds a whole number of units that depends on c only where y lies half-way between two:
then on whether c is even. So an element is a pair of integers, what it adds to an even and to an odd c; pairs
compose, in any grouping, and a scan of integers gives every sum of a block. The element at which c leaves its
exponent is added as it is, and a new block starts behind it. An exponent is left at most once, so the blocks
are few. Bits: those of ``repro_kernels.cpu.reduce.cumsum``. Tests: ``tests/gpu/cases_sampling.py``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from repro_kernels.gpu.runtime import INTERPRETED, Build, launch

_BLOCK = 16 if INTERPRETED else 2048
_WARPS = 8


@triton.jit
def _then(f_even, f_odd, g_even, g_odd):
    """First f, then g: the units added to an even and to an odd sum."""
    even = f_even + tl.where((f_even & 1) == 0, g_even, g_odd)
    odd = f_odd + tl.where((f_odd & 1) == 0, g_odd, g_even)
    return even, odd


@triton.jit
def _power(exponent):
    """2 ** exponent as float32, for exponents of normal numbers."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _ascending(y, sums, n, BLOCK: tl.constexpr):
    """Row program_id(0) of y and sums, both [rows, n] and contiguous."""
    y += tl.program_id(0).to(tl.int64) * n
    sums += tl.program_id(0).to(tl.int64) * n
    lane = tl.arange(0, BLOCK)
    bits = tl.program_id(0) * 0
    begin = tl.program_id(0) * 0
    while begin < n:
        inside = begin + lane < n
        value = tl.load(y + begin + lane, mask=inside, other=0.0).to(tl.float32)
        exponent = tl.maximum(bits >> 23, 1)
        whole = tl.where(bits >= 0x800000, (bits & 0x7FFFFF) | 0x800000, bits).to(tl.int64)
        # In units of the last place, and cut where it leaves the exponent anyway. Exact: what a product
        # rounds is below the smallest normal number, far from half a unit.
        half = (150 - exponent) >> 1
        scaled = value * _power(half) * _power(150 - exponent - half)
        scaled = tl.minimum(scaled, 33554432.0)
        low = scaled.to(tl.int32)
        rest = scaled - low.to(tl.float32)
        low = low.to(tl.int64)
        up = (rest > 0.5).to(tl.int64)
        even = low + tl.where(rest == 0.5, low & 1, up)
        odd = low + tl.where(rest == 0.5, (low + 1) & 1, up)
        even, odd = tl.associative_scan((even, odd), 0, _then)
        total = whole + tl.where((whole & 1) == 0, even, odd)
        stays = inside & (total < 0x1000000)
        # 2^(exponent - 150), which may be subnormal; products with it are exact.
        unit = tl.where(exponent > 23, (exponent - 23) << 23, 1 << tl.minimum(exponent - 1, 22))
        unit = unit.to(tl.float32, bitcast=True)
        tl.store(sums + begin + lane, total.to(tl.int32).to(tl.float32) * unit, mask=stays)
        count = tl.sum(stays.to(tl.int32), axis=0)
        last = tl.max(tl.where(stays, total, whole), axis=0)
        c = last.to(tl.int32).to(tl.float32) * unit
        leaves = count < tl.minimum(n - begin, BLOCK)
        next = tl.sum(tl.where(leaves & (lane == count), value.to(tl.int32, bitcast=True), 0), axis=0)
        c = c + next.to(tl.float32, bitcast=True)
        tl.store(sums + begin + count, c, mask=leaves)
        bits = c.to(tl.int32, bitcast=True)
        begin += count + leaves.to(tl.int32)


def ascending_sums(y: torch.Tensor) -> torch.Tensor:
    """Running sums along each row.

    Args:
        y: float32, bfloat16 or float16 [rows, n], at least 0 and finite.

    Returns:
        float32 [rows, n]; a sum beyond the largest float is infinite.
    """
    rows, n = y.shape
    sums = torch.empty(rows, n, dtype=torch.float32, device=y.device)
    if sums.numel():
        launch(_ascending, rows, y.contiguous(), sums, n, BLOCK=_BLOCK, num_warps=_WARPS)
    return sums


BUILDS = tuple(
    Build(
        _ascending,
        {"y": kind, "sums": "*fp32", "n": "i32"},
        {"BLOCK": _BLOCK},
        {"num_warps": _WARPS},
        fma=False,
    )
    for kind in ("*fp32", "*bf16", "*fp16")
)
"""Every dtype."""
