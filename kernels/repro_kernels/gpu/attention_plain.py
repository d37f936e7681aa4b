"""Attention by plain kernels, for any shape and for Triton's interpreter: three launches, or four.

``_scores`` computes ``q . k`` for the keys that some query of a tile may attend to; ``_weights`` turns one
row of them into ``y = RN_a(softmax)``; ``_values`` computes ``y . v``, one lane an output, or a segment of it
where there are few rows (then ``_combine`` adds them in order).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from repro_kernels.gpu.attention_parts import Call, logits, not_finite, span
from repro_kernels.gpu.language import load, rounded, store
from repro_kernels.gpu.norm import row_sum
from repro_kernels.gpu.runtime import Build, launch, processors
from repro_kernels.gpu.softmax import exponentials

_BLOCK = 512
_LANES = 32


@triton.jit(do_not_specialize=["queries", "keys"])
def _scores(
    q, k, scores, positions, lengths, queries, keys, depth, group, key_heads, stride,
    q_b, q_h, q_i, k_b, k_h, k_j, window,
    BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """scores[b, key head, row, j] = q . k by the dot rule; row = query * group + head of the group."""
    rows = queries * group
    tiles = tl.cdiv(rows, BM)
    r = (tl.program_id(0) % tiles) * BM + tl.arange(0, BM)
    j = (tl.program_id(0) // tiles) * BN + tl.arange(0, BN)
    b = (tl.program_id(1) // key_heads).to(tl.int64)
    head = tl.program_id(1) % key_heads
    row = tl.minimum(r, rows - 1)
    low, high = span(positions, lengths, b, row // group, queries, keys, window)
    lowest, highest = tl.min(low, axis=0), tl.max(high, axis=0)
    first = (tl.program_id(0) // tiles) * BN
    if (first < highest) & (first + BN > lowest):
        j_inside = j < highest
        h = (head * group + row % group).to(tl.int64)
        left = q + b * q_b + h * q_h + (row // group).to(tl.int64) * q_i
        right = k + b * k_b + head.to(tl.int64) * k_h + tl.where(j_inside, j, 0).to(tl.int64) * k_j
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, depth, 128):
            end = tl.minimum(start + 128, depth)
            part = tl.zeros((BM, BN), tl.float32)
            for d in range(start, end, UNROLL):
                for u in tl.static_range(UNROLL):
                    inside = d + u < end
                    x = load(left + (d + u), (row >= 0) & inside)
                    w = load(right + (d + u), j_inside & inside)
                    x, w = tl.broadcast(x[:, None], w[None, :])
                    part = tl.fma(x, w, part)
            acc = acc + part
        to = scores + (tl.program_id(1).to(tl.int64) * rows + r[:, None]) * stride + j[None, :]
        tl.store(to, acc, mask=(r < rows)[:, None] & j_inside[None, :])


@triton.jit(do_not_specialize=["queries", "keys", "segments"])
def _weights(
    scores, parts, flag, mask, positions, lengths, queries, keys, group, key_heads, stride, segments,
    m_b, m_h, m_i, m_j, window, scale, softcap, like,
    FILL: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """One row of scores, from dot products to ``y``, in place; `like`: pointer to the activation type.

    FILL: rows of a tile, for a kernel that takes whole tiles: what another row of the tile may attend to, up
    to a multiple of 16, becomes +0 where this one may not; 0: nothing does.
    """
    kind: tl.constexpr = like.dtype.element_ty
    r = tl.program_id(0)
    b = (tl.program_id(1) // key_heads).to(tl.int64)
    h = (tl.program_id(1) % key_heads) * group + r % group
    low, high = span(positions, lengths, b, r // group, queries, keys, window)
    row = tl.program_id(1).to(tl.int64) * (queries * group) + r
    scores += row * stride
    parts += row * segments
    first = low // 128 * 128
    last = tl.minimum(tl.cdiv(tl.maximum(high, first), 4) * 4, stride)
    if mask is not None:
        mask += b * m_b + h.to(tl.int64) * m_h + (r // group).to(tl.int64) * m_i
    m = -float("inf")
    bad = 0
    for start in range(first, last, BLOCK):
        j = start + tl.arange(0, BLOCK)
        open = (j >= low) & (j < high)
        if mask is not None:
            open = open & (tl.load(mask + j.to(tl.int64) * m_j, mask=open, other=0) != 0)
        x = rounded(tl.load(scores + j, mask=open, other=0.0), kind)
        wrong = not_finite(x)
        x = logits(x, scale, softcap, kind)
        wrong = wrong | not_finite(x)
        bad = tl.maximum(bad, tl.max((wrong & open).to(tl.int32), axis=0))
        x = tl.where(open, x, -float("inf"))
        m = tl.maximum(m, tl.max(x, axis=0))
        tl.store(scores + j, x, mask=j < last)
    tl.debug_barrier()
    for start in range(first, last, BLOCK):
        j = start + tl.arange(0, BLOCK)
        x = tl.load(scores + j, mask=j < last, other=0.0)
        tl.store(scores + j, exponentials(x, m), mask=j < last)
    tl.debug_barrier()
    s = row_sum(scores, first.to(tl.int64), parts, last - first, tl.cdiv(last - first, 128), 0.0, 0, 4, LANES)
    for start in range(first, last, BLOCK):
        j = start + tl.arange(0, BLOCK)
        x = tl.load(scores + j, mask=j < last, other=0.0)
        y = tl.div_rn(x, tl.where(s > 0.0, s, 1.0))
        tl.store(scores + j, rounded(y, kind), mask=j < last)
    if FILL > 0:
        others = tl.minimum(r // FILL * FILL + tl.arange(0, FILL), queries * group - 1) // group
        lows, highs = span(positions, lengths, b, others, queries, keys, window)
        lowest = tl.maximum(tl.min(lows, axis=0), 0) // 128 * 128
        highest = tl.minimum(tl.cdiv(tl.maximum(tl.max(highs, axis=0), 0), 16) * 16, stride)
        unread = tl.minimum(first, highest)
        for start in range(lowest, unread, BLOCK):
            j = start + tl.arange(0, BLOCK)
            tl.store(scores + j, tl.zeros((BLOCK,), tl.float32), mask=j < unread)
        for start in range(tl.maximum(last, lowest), highest, BLOCK):
            j = start + tl.arange(0, BLOCK)
            tl.store(scores + j, tl.zeros((BLOCK,), tl.float32), mask=j < highest)
    tl.store(flag, 1, mask=bad != 0)


@triton.jit(do_not_specialize=["queries", "keys"])
def _values(
    y, v, out, flag, positions, lengths, queries, keys, width, group, key_heads, stride,
    v_b, v_h, v_j, window,
    SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """out[b, query, head, d] = y . v, or [segment, b, key head, row, d] partial sums (SPLIT)."""
    rows = queries * group
    tiles = tl.cdiv(rows, BM)
    r = (tl.program_id(0) % tiles) * BM + tl.arange(0, BM)
    d = (tl.program_id(0) // tiles) * BN + tl.arange(0, BN)
    b = (tl.program_id(1) // key_heads).to(tl.int64)
    head = tl.program_id(1) % key_heads
    row = tl.minimum(r, rows - 1)
    low, high = span(positions, lengths, b, row // group, queries, keys, window)
    low = low // 128 * 128
    lowest, highest = tl.min(low, axis=0), tl.max(high, axis=0)
    d_inside = d < width
    left = y + (tl.program_id(1).to(tl.int64) * rows + row) * stride
    right = v + b * v_b + head.to(tl.int64) * v_h + tl.where(d_inside, d, 0)
    first, last = lowest // 128, tl.cdiv(tl.maximum(highest, 0), 128)
    if SPLIT:
        s = tl.program_id(2)
        last = tl.minimum(last, s + 1)
        first = tl.maximum(first, s)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(first, last):
        end = tl.minimum((s + 1) * 128, highest)
        part = tl.zeros((BM, BN), tl.float32)
        for j in range(s * 128, end, UNROLL):
            for u in tl.static_range(UNROLL):
                at = j + u
                x = load(left + at, (at >= low) & (at < high))
                w = load(right + tl.full((1,), at, tl.int64) * v_j, d_inside & (at < end))
                x, w = tl.broadcast(x[:, None], w[None, :])
                part = tl.fma(x, w, part)
        acc = acc + part
    inside = (r < rows)[:, None] & d_inside[None, :]
    if SPLIT:
        place = tl.program_id(2).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
        tl.store(out + (place * rows + r[:, None]) * width + d[None, :], acc, mask=inside)
    else:
        at = ((b * queries + row // group) * key_heads + head) * group + row % group
        store(out + at[:, None] * width + d[None, :], acc, inside)
        tl.store(flag + r[:, None] * 0 + d[None, :] * 0, 1, mask=inside & not_finite(acc))


@triton.jit(do_not_specialize=["queries", "segments", "total"])
def _combine(parts, out, flag, queries, group, key_heads, width, segments, total, BLOCK: tl.constexpr):
    """Partial sums [segments, b, key head, query, head of the group, d] to out [b, query, head, d]."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = e < total
    acc = tl.zeros((BLOCK,), tl.float32)
    at = e
    for _ in range(0, segments):
        acc = acc + tl.load(parts + at, mask=inside, other=0.0)
        at += total
    d = e % width
    r = e // width % (queries * group)
    head = e // width // (queries * group)
    b = head // key_heads
    to = ((b * queries + r // group) * key_heads + head % key_heads) * group + r % group
    store(out + to * width + d, acc, inside)
    tl.store(flag + e * 0, 1, mask=inside & not_finite(acc))


def weigh(call: Call, scores: torch.Tensor, stride: int, *, fill: int) -> None:
    """Launch ``_weights``.

    Args:
        call: what to compute.
        scores: [B, Hkv, rows, stride], from dot products to y.
        stride: a multiple of 4.
        fill: rows of a tile in which each row is as long as the longest; 0: as long as itself.
    """
    segments = max(1, -(-call.keys // 128))
    parts = call.floats(call.heads, call.rows, segments)
    launch(
        _weights, (call.rows, call.heads), scores, parts, call.flag, call.mask, call.positions, call.lengths,
        call.q.shape[2], call.keys, call.group, call.k.shape[1], stride, segments, *call.masks, call.window,
        call.scale, call.softcap, call.out,
        FILL=fill, BLOCK=min(_BLOCK, max(32, triton.next_power_of_2(stride))), LANES=_LANES,
        num_warps=1 if call.keys <= 256 else 4,
    )  # fmt: skip


def run(call: Call) -> None:
    """Launch the kernels of a call."""
    q, k, v, out, flag = call.q, call.k, call.v, call.out, call.flag
    queries, depth, keys, width = q.shape[2], q.shape[3], call.keys, v.shape[3]
    group, key_heads, rows, count = call.group, k.shape[1], call.rows, call.heads
    stride, segments = max(16, -(-keys // 16) * 16), max(1, -(-keys // 128))
    scores = call.floats(count, rows, stride)
    spans = (call.positions, call.lengths)
    sizes = (queries, keys, depth, group, key_heads, stride)
    block_m = min(32, max(4, triton.next_power_of_2(rows)))
    tiles = -(-rows // block_m)
    launch(
        _scores, (tiles * -(-keys // 64), count), q, k, scores, *spans, *sizes,
        *q.stride()[:3], *k.stride()[:3], call.window, BM=block_m, BN=64, UNROLL=8,
    )  # fmt: skip
    weigh(call, scores, stride, fill=0)
    block_n = min(64, max(16, triton.next_power_of_2(width)))
    tiles *= -(-width // block_n)
    split = segments > 1 and tiles * count < 2 * processors(q.device)
    result = call.floats(segments, count, rows, width) if split else out
    launch(
        _values, (tiles, count, segments if split else 1), scores, v, result, flag, *spans,
        queries, keys, width, group, key_heads, stride, *v.stride()[:3], call.window,
        SPLIT=split, BM=block_m, BN=block_n, UNROLL=8,
    )  # fmt: skip
    if split:
        total = count * rows * width
        launch(
            _combine, -(-total // 256), result, out, flag, queries, group, key_heads, width, segments,
            total, BLOCK=256,
        )  # fmt: skip


def _builds() -> Iterator[Build]:
    for kind, windowed in (("*fp32", False), ("*bf16", True), ("*fp16", False)):
        spans = {"positions": "*i64", **({"lengths": "*i64", "window": "i32"} if windowed else {})}
        absent = {} if windowed else {"lengths": None, "window": None}
        masked = {"mask": "*i1", "softcap": "fp32"} if windowed else {}
        unmasked = {} if windowed else {"mask": None, "softcap": None}
        row = {"scores": "*fp32", "parts": "*fp32", "flag": "*i32", "like": kind, "scale": "fp32"}
        tile = {"BM": 16, "BN": 64, "UNROLL": 8}
        for kernel, known, how in (
            (_scores, {"q": kind, "k": kind, "scores": "*fp32", **spans}, tile),
            (
                _weights,
                {**row, **spans, **masked},
                {"BLOCK": _BLOCK, "LANES": _LANES, "FILL": 128 if windowed else 0, **unmasked},
            ),
            (
                _values,
                {"y": "*fp32", "v": kind, "out": kind, "flag": "*i32", **spans},
                {**tile, "SPLIT": False},
            ),
        ):
            given = {**absent, **how}
            integers = [name for name in kernel.arg_names if name not in known and name not in given]
            yield Build(kernel, {**known, **dict.fromkeys(integers, "i32")}, given)
        known = {"parts": "*fp32", "out": kind, "flag": "*i32"}
        integers = [name for name in _combine.arg_names if name not in known and name != "BLOCK"]
        yield Build(_combine, {**known, **dict.fromkeys(integers, "i32")}, {"BLOCK": 256})


BUILDS = tuple(_builds())
"""Every kernel for the three types; bfloat16 with a window, a mask, lengths and a soft cap."""
