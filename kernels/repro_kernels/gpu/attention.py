"""Attention under profile ``fp32`` on CUDA tensors: the composition of the specification, three launches.

The function, its arguments, errors and bits are those of ``repro_kernels.cpu.attention``. The rows are the
queries of all heads that share a key head. ``_scores`` computes ``q . k`` for the keys that some query of
a tile may attend to; ``_weights`` turns one row of them into ``y = RN_a(softmax)``; ``_values`` computes
``y . v``, one lane an output, or a segment of it where there are few rows (then ``_combine`` adds them in
order). A row in which something is not finite raises a flag on the device. Then the CPU computes the call,
and says what is wrong. Tests: ``tests/gpu/cases_attention.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from repro_kernels.cpu import attention as cpu
from repro_kernels.cpu.layout import DTYPES
from repro_kernels.errors import UnsupportedError
from repro_kernels.gpu.attention_tiles import WIDE, score_form, score_tiles, value_form, value_tiles
from repro_kernels.gpu.elementary_core import tanh_rn
from repro_kernels.gpu.language import load, rounded, store
from repro_kernels.gpu.norm import row_sum
from repro_kernels.gpu.runtime import INTERPRETED, Build, launch, processors, require
from repro_kernels.gpu.softmax import exponentials
from repro_kernels.gpu.tiles import DEPTH
from repro_kernels.spec.floats import rn32

_SCRATCH = 1 << 28
"""Most scores that stand in memory at once, unless one query of the batch has more."""

_TILED = 48
"""Rows (queries times heads of a group) from which whole tiles pay."""

_BLOCK = 512
_LANES = 32


@triton.jit
def not_finite(x):
    """Whether a float32 is an infinity or a NaN."""
    return (x.to(tl.int32, bitcast=True) & 0x7F800000) == 0x7F800000


@triton.jit
def _span(positions, lengths, b, i, queries, keys, window):
    """First and last + 1 key that query i of batch entry b may attend to, masks aside; window 0: none."""
    low = i * 0
    high = low + keys
    if lengths is not None:
        high = tl.minimum(high, tl.load(lengths + b).to(tl.int32))
    if positions is not None:
        at = tl.load(positions + b * queries + i)
        high = tl.minimum(high, (at + 1).to(tl.int32))
        if window is not None:
            low = tl.maximum(low, (at - window + 1).to(tl.int32))
    return low, high


@triton.jit
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
    low, high = _span(positions, lengths, b, row // group, queries, keys, window)
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


@triton.jit
def _weights(
    scores, parts, flag, mask, positions, lengths, queries, keys, group, key_heads, stride, segments,
    m_b, m_h, m_i, m_j, window, scale, softcap, like,
    FILL: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """One row of scores, from dot products to ``y``, in place; `like`: pointer to the activation type.

    FILL: what lies outside the query's segments becomes +0, for a kernel that reads whole rows.
    """
    kind: tl.constexpr = like.dtype.element_ty
    r = tl.program_id(0)
    b = (tl.program_id(1) // key_heads).to(tl.int64)
    h = (tl.program_id(1) % key_heads) * group + r % group
    low, high = _span(positions, lengths, b, r // group, queries, keys, window)
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
        x = rounded(x * scale, kind)
        if softcap is not None:
            x = rounded(tl.div_rn(x, softcap), kind)
            x = rounded(tanh_rn(x), kind)
            x = rounded(x * softcap, kind)
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
    if FILL:
        unread = tl.minimum(first, stride)
        for start in range(0, unread, BLOCK):
            j = start + tl.arange(0, BLOCK)
            tl.store(scores + j, tl.zeros((BLOCK,), tl.float32), mask=j < unread)
        for start in range(last, stride, BLOCK):
            j = start + tl.arange(0, BLOCK)
            tl.store(scores + j, tl.zeros((BLOCK,), tl.float32), mask=j < stride)
    tl.store(flag, 1, mask=bad != 0)


@triton.jit
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
    low, high = _span(positions, lengths, b, row // group, queries, keys, window)
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


@triton.jit
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


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float,
    out_dtype: torch.dtype,
    mask: torch.Tensor | None = None,
    q_positions: torch.Tensor | None = None,
    window: int | None = None,
    k_length: torch.Tensor | None = None,
    softcap: float | None = None,
    flag: torch.Tensor | None = None,
) -> torch.Tensor:
    """Softmax attention: :func:`repro_kernels.cpu.attention.attention`, with the same errors.

    The call waits for the device: whether everything was finite is part of its answer. With ``flag`` (int32
    [1]) it does not; where the CPU might raise NonFiniteError the flag is set to 1, and the result is void.
    """
    batch, heads, queries, depth = _four(q, "q")
    key_heads, keys = _four(k, "k")[1:3]
    width = _four(v, "v")[3]
    if k.shape != (batch, key_heads, keys, depth) or v.shape[:3] != k.shape[:3] or heads % max(key_heads, 1):
        raise ValueError(f"attention: shapes {list(q.shape)}, {list(k.shape)} and {list(v.shape)} do not fit")
    for dtype in (q.dtype, k.dtype, v.dtype, out_dtype):
        if dtype not in DTYPES:
            raise UnsupportedError(f"attention of {dtype}")
    if window is not None and (window < 1 or q_positions is None):
        raise UnsupportedError(f"attention with a window of {window} and positions {q_positions}")
    out = torch.empty(batch, queries, heads, width, dtype=out_dtype, device=q.device).transpose(1, 2)
    if out.numel() == 0:
        return out
    q, k, v = (t if t.stride(3) == 1 or t.shape[3] < 2 else t.contiguous() for t in (q, k, v))
    if mask is not None:
        if mask.dtype != torch.bool:
            raise UnsupportedError(f"attention with a mask of {mask.dtype}")
        mask = mask.expand(batch, heads, queries, keys)
    positions = _integers(q_positions, (batch, queries), "q_positions")
    lengths = _integers(k_length, (batch,), "k_length")
    waits = flag is None
    if flag is None:
        flag = torch.zeros(1, dtype=torch.int32, device=q.device)
    together = max(1, _SCRATCH // (batch * heads * max(keys, 1)))
    for start in range(0, queries, together):
        some = slice(start, min(queries, start + together))
        _attend(
            q[:, :, some],
            k,
            v,
            out[:, :, some],
            flag,
            None if mask is None else mask[:, :, some],
            None if positions is None else positions[:, some].contiguous(),
            lengths,
            window,
            (rn32(scale), None if softcap is None else rn32(softcap)),
        )
    if not waits or not flag.item():
        return out
    everything = [None if t is None else t.cpu() for t in (q, k, v, mask, q_positions, k_length)]
    left, key, value, allowed, places, ends = everything
    assert left is not None and key is not None and value is not None
    return cpu.attention(
        left,
        key,
        value,
        scale=scale,
        out_dtype=out_dtype,
        mask=allowed,
        q_positions=places,
        window=window,
        k_length=ends,
        softcap=softcap,
    ).to(q.device)


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    flag: torch.Tensor,
    mask: torch.Tensor | None,
    positions: torch.Tensor | None,
    lengths: torch.Tensor | None,
    window: int | None,
    factors: tuple[float, float | None],
) -> None:
    """Some queries, contiguous in `out` [B, Sq, H, Dv] transposed."""
    batch, heads, queries, depth = q.shape
    key_heads, keys, width = k.shape[1], k.shape[2], v.shape[3]
    group = heads // key_heads
    rows, count = queries * group, batch * key_heads
    stride, segments = max(DEPTH, -(-keys // DEPTH) * DEPTH), max(1, -(-keys // 128))
    scores = torch.empty(count * rows * stride, dtype=torch.float32, device=q.device)
    parts = torch.empty(count * rows * segments, dtype=torch.float32, device=q.device)
    target = (
        out if out.transpose(1, 2).is_contiguous() else torch.empty_like(out.transpose(1, 2)).transpose(1, 2)
    )
    whole = rows >= _TILED and not INTERPRETED
    spans = (positions, lengths)
    sizes = (queries, keys, depth, group, key_heads, stride)
    steps = (*q.stride()[:3], *k.stride()[:3], window)
    block_m = WIDE.rows if whole else min(32, max(4, triton.next_power_of_2(rows)))
    tiles = -(-rows // block_m)
    if whole:
        grid = (tiles * -(-keys // WIDE.columns), count)
        launch(score_tiles, grid, q, k, scores, *spans, *sizes, *steps, **score_form(depth))
    else:
        grid = (tiles * -(-keys // 64), count)
        launch(_scores, grid, q, k, scores, *spans, *sizes, *steps, BM=block_m, BN=64, UNROLL=8)
    launch(
        _weights, (rows, count), scores, parts, flag, mask, positions, lengths,
        queries, keys, group, key_heads, stride, segments,
        *((0, 0, 0, 0) if mask is None else mask.stride()), window, *factors, target,
        FILL=whole, BLOCK=min(_BLOCK, max(32, triton.next_power_of_2(stride))), LANES=_LANES,
        num_warps=1 if keys <= 256 else 4,
    )  # fmt: skip
    sizes = (queries, keys, width, group, key_heads, stride)
    steps = (*v.stride()[:3], window)
    if whole:
        form, how = value_form(width)
        grid = (tiles * -(-width // form.columns), count)
        launch(value_tiles, grid, scores, v, target, flag, *spans, *sizes, *steps, **how)
        if target is not out:
            out.copy_(target)
        return
    block_n = min(64, max(16, triton.next_power_of_2(width)))
    tiles *= -(-width // block_n)
    split = segments > 1 and tiles * count < 2 * processors(q.device)
    result = target
    if split:
        result = torch.empty(segments * count * rows * width, dtype=torch.float32, device=q.device)
    launch(
        _values, (tiles, count, segments if split else 1), scores, v, result, flag, *spans, *sizes, *steps,
        SPLIT=split, BM=block_m, BN=block_n, UNROLL=8,
    )  # fmt: skip
    if split:
        total = count * rows * width
        launch(
            _combine, -(-total // 256), result, target, flag, queries, group, key_heads, width, segments,
            total, BLOCK=256,
        )  # fmt: skip
    if target is not out:
        out.copy_(target)


def _four(t: torch.Tensor, name: str) -> torch.Size:
    if t.dim() != 4:
        raise ValueError(f"attention: {name} has {t.dim()} dimensions instead of 4")
    require(t.device)
    return t.shape


def _integers(t: torch.Tensor | None, shape: tuple[int, ...], name: str) -> torch.Tensor | None:
    if t is None:
        return None
    if t.dtype != torch.int64 or t.dim() != len(shape):
        raise ValueError(f"attention: {name} is {t.dtype} {list(t.shape)} instead of int64 {list(shape)}")
    return t.expand(shape).contiguous()


def _builds() -> Iterator[Build]:
    for kind, windowed in (("*fp32", False), ("*bf16", True), ("*fp16", False)):
        spans = {"positions": "*i64", **({"lengths": "*i64", "window": "i32"} if windowed else {})}
        absent = {} if windowed else {"lengths": None, "window": None}
        masked = {"mask": "*i1", "softcap": "fp32"} if windowed else {}
        row = {"BLOCK": _BLOCK, "LANES": _LANES, "FILL": windowed}
        tile = {"BM": 16, "BN": 64, "UNROLL": 8}
        for kernel, known, how in (
            (_scores, {"q": kind, "k": kind, "scores": "*fp32", **spans}, tile),
            (
                _weights,
                {
                    "scores": "*fp32",
                    "parts": "*fp32",
                    "flag": "*i32",
                    "like": kind,
                    "scale": "fp32",
                    **spans,
                    **masked,
                },
                {**row, **({} if masked else {"mask": None, "softcap": None})},
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
