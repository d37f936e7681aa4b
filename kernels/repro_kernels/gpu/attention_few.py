"""Attention of a few rows, as in decoding: three launches, split over the keys, bound by reading the cache.

A program of ``few_scores`` takes some keys of one key head: one thread owns a key and the rows, and adds its
products by ``fma``, d ascending. It stores the rounded scores and the greatest of each row (a maximum is the
same in any order). A program of ``few_weights`` takes one segment of key positions: exponentials and their
sum. A program of ``few_values`` adds the sums of the segments in order, takes its segment of ``y . v``, and
the last program of a row to arrive adds those partial sums, segments ascending. Programs beyond what their
rows may attend to leave at once. Layouts of scores and the bits are those of
``repro_kernels.gpu.attention_plain``. Tests: ``tests/gpu/cases_attention.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from repro_kernels.gpu.attention_parts import Call, logits, not_finite, span
from repro_kernels.gpu.runtime import Build, barrier, launch
from repro_kernels.gpu.softmax import exponentials
from repro_kernels.gpu.tiles import store


@gluon.jit
def _four(tile):
    """The columns of [1, n, 4], ascending; the splits stay inside a thread."""
    even, odd = gl.split(gl.reshape(tile, [tile.shape[1], 2, 2]))
    c0, c2 = gl.split(even)
    c1, c3 = gl.split(odd)
    return c0, c1, c2, c3


@gluon.jit
def _step(x, w, p, ACC: gl.constexpr):
    """``p = fma(x, w, p)`` for x [BM, 1], w [BN], p [BM, BN]; the conversion only renames a layout."""
    w = gl.convert_layout(w, gl.SliceLayout(0, ACC))[None, :]
    return gl.fma(gl.broadcast(x, p)[0], gl.broadcast(w, p)[0], p)


@gluon.jit(do_not_specialize=["queries", "keys", "splits", "blocks"])
def few_scores(
    q, k, scores, most, counters, flag, mask, positions, lengths, like, queries, keys, depth, group,
    key_heads, stride, splits, blocks, q_b, q_h, q_i, k_b, k_h, k_j, m_b, m_h, m_i, m_j, window,
    EVEN: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, D: gl.constexpr,
    ACC: gl.constexpr, TAKE: gl.constexpr, KEYS: gl.constexpr, ROWS: gl.constexpr,
):  # fmt: skip
    """scores[b, key head, row, j] = RN_a(q . k), -inf where masked; most[b, key head, row, split].

    Sets the counters of ``few_values`` to 0. like: pointer to the activation type. EVEN: depth is a multiple
    of D.
    """
    kind: gl.constexpr = like.dtype.element_ty
    rows = queries * group
    split = gl.program_id(0)
    b = (gl.program_id(1) // key_heads).to(gl.int64)
    head = gl.program_id(1) % key_heads
    tile = gl.program_id(2)
    if split == 0:
        c = gl.arange(0, 32, layout=gl.SliceLayout(0, ACC))
        place = (gl.program_id(1) * gl.num_programs(2) + tile) * blocks + c
        gl.store(counters + place, c * 0, mask=c < blocks)
    r = tile * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, ACC))
    row = gl.minimum(r, rows - 1)
    low, high = span(positions, lengths, b, row // group, queries, keys, window)
    if (split * BN < gl.max(high, axis=0)) & (split * BN + BN > gl.min(low, axis=0)):
        sk = gl.allocate_shared_memory(
            gl.float32, [D // 4, BN, 4], gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
        )
        sq = gl.allocate_shared_memory(gl.float32, [BM, D], gl.SwizzledSharedLayout(1, 1, 1, [0, 1]))
        kj = gl.minimum(split * BN + gl.arange(0, BN, layout=gl.SliceLayout(1, KEYS)), keys - 1)
        kd = gl.arange(0, D, layout=gl.SliceLayout(0, KEYS))
        pk = k + b * k_b + head.to(gl.int64) * k_h + (kj.to(gl.int64) * k_j)[:, None] + kd[None, :]
        qr = gl.minimum(tile * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, ROWS)), rows - 1)
        qd = gl.arange(0, D, layout=gl.SliceLayout(0, ROWS))
        at = (head * group + qr % group).to(gl.int64) * q_h + (qr // group).to(gl.int64) * q_i
        pq = q + b * q_b + at[:, None] + qd[None, :]
        acc = gl.zeros([BM, BN], gl.float32, ACC)
        for start in range(0, depth, D):
            if EVEN:
                w = gl.load(pk + start)
                x = gl.load(pq + start)
            else:
                w = gl.load(pk + start, mask=(kj >= 0)[:, None] & (start + kd < depth)[None, :], other=0.0)
                x = gl.load(pq + start, mask=(qr >= 0)[:, None] & (start + qd < depth)[None, :], other=0.0)
            if start > 0:
                barrier()
            sq.store(x.to(gl.float32))
            sk.store(gl.permute(gl.reshape(w.to(gl.float32), [BN, D // 4, 4]), (1, 0, 2)))
            p = gl.zeros([BM, BN], gl.float32, ACC)
            for c in gl.static_range(0, D // 4):
                w0, w1, w2, w3 = _four(sk.slice(c, 1, dim=0).load(TAKE))
                p = _step(sq.slice(4 * c, 1, dim=1).load(ACC), w0, p, ACC)
                p = _step(sq.slice(4 * c + 1, 1, dim=1).load(ACC), w1, p, ACC)
                p = _step(sq.slice(4 * c + 2, 1, dim=1).load(ACC), w2, p, ACC)
                p = _step(sq.slice(4 * c + 3, 1, dim=1).load(ACC), w3, p, ACC)
            acc = acc + p
        j = split * BN + gl.arange(0, BN, layout=gl.SliceLayout(0, ACC))
        opened = (j[None, :] >= low[:, None]) & (j[None, :] < high[:, None])
        if mask is not None:
            h = head * group + row % group
            to = mask + b * m_b + h.to(gl.int64)[:, None] * m_h + (row // group).to(gl.int64)[:, None] * m_i
            opened = opened & (gl.load(to + j.to(gl.int64)[None, :] * m_j, mask=opened, other=0) != 0)
        value = acc.to(kind).to(gl.float32)
        wrong = gl.max(gl.max((not_finite(value) & opened).to(gl.int32), axis=1), axis=0)
        value = gl.where(opened, value, -float("inf"))
        place = gl.program_id(1).to(gl.int64) * rows + r
        gl.store(
            scores + place[:, None] * stride + j[None, :],
            value,
            mask=(r < rows)[:, None] & (j < stride)[None, :],
        )
        gl.store(most + place * splits + split, gl.max(value, axis=1), mask=r < rows)
        if wrong != 0:
            gl.store(flag, 1)


@triton.jit(do_not_specialize=["queries", "keys", "segments", "splits"])
def few_weights(
    scores, most, parts, flag, positions, lengths, like, queries, keys, group, key_heads, stride, splits,
    segments, window, scale, softcap, BM: tl.constexpr, BN: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """Exponentials of one segment, in place, and parts[b, key head, row, segment], their sum."""
    kind: tl.constexpr = like.dtype.element_ty
    rows = queries * group
    s = tl.program_id(0)
    b = (tl.program_id(1) // key_heads).to(tl.int64)
    r = tl.program_id(2) * BM + tl.arange(0, BM)
    row = tl.minimum(r, rows - 1)
    low, high = span(positions, lengths, b, row // group, queries, keys, window)
    lowest, highest = tl.min(low, axis=0), tl.max(high, axis=0)
    if (s * 128 < highest) & (s * 128 + 128 > lowest):
        place = tl.program_id(1).to(tl.int64) * rows + row
        j = s * 128 + tl.arange(0, 128)
        here = scores + place[:, None] * stride + j[None, :]
        opened = (j[None, :] >= low[:, None]) & (j[None, :] < high[:, None])
        x = tl.load(here, mask=opened, other=-float("inf"))
        m = tl.full((BM,), -float("inf"), tl.float32)
        last = tl.cdiv(highest, BN)
        for start in range(lowest // BN, last, MOST):
            i = start + tl.arange(0, MOST)
            found = tl.load(
                most + place[:, None] * splits + i[None, :],
                mask=(row >= 0)[:, None] & (i < last)[None, :],
                other=-float("inf"),
            )
            m = tl.maximum(m, tl.max(found, axis=1))
        masked = x == -float("inf")
        x = logits(tl.where(masked, 0.0, x), scale, softcap, kind)
        m = logits(tl.where(m == -float("inf"), 0.0, m), scale, softcap, kind)
        wrong = tl.max(tl.max((not_finite(x) & (masked == 0)).to(tl.int32), axis=1), axis=0)
        e = exponentials(tl.where(masked, -float("inf"), x), tl.broadcast_to(m[:, None], (BM, 128)))
        inside = (r < rows)[:, None] & (j < stride)[None, :]
        tl.store(here, e, mask=inside)
        tl.debug_barrier()
        p = tl.zeros((BM,), tl.float32)
        first = scores + place * stride + s * 128
        for u in tl.static_range(32):
            at = 4 * u + tl.arange(0, 4)
            four = tl.load(
                first[:, None] + at[None, :],
                mask=(row >= 0)[:, None] & (s * 128 + at < stride)[None, :],
                other=0.0,
            )
            even, odd = tl.split(tl.reshape(four, (BM, 2, 2)))
            c0, c2 = tl.split(even)
            c1, c3 = tl.split(odd)
            p = p + c0
            p = p + c1
            p = p + c2
            p = p + c3
        tl.store(parts + place * segments + s, p, mask=r < rows)
        if wrong != 0:
            tl.store(flag, 1)


@gluon.jit(do_not_specialize=["queries", "keys", "segments"])
def few_values(
    e, parts, v, sums, counters, out, flag, positions, lengths, queries, keys, width, group, key_heads,
    stride, segments, v_b, v_h, v_j, window,
    EVEN: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, ACC: gl.constexpr, VALUES: gl.constexpr,
    ROWS: gl.constexpr,
):  # fmt: skip
    """out[b, query, head, d] = y . v, by way of sums[b, key head, segment, row, d]. EVEN: no part blocks."""
    rows = queries * group
    s = gl.program_id(0)
    b = (gl.program_id(1) // key_heads).to(gl.int64)
    head = gl.program_id(1) % key_heads
    blocks = gl.cdiv(width, BN)
    tile = gl.program_id(2) // blocks
    block = gl.program_id(2) % blocks
    r = tile * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, ACC))
    row = gl.minimum(r, rows - 1)
    low, high = span(positions, lengths, b, row // group, queries, keys, window)
    lowest, highest = gl.min(low, axis=0), gl.max(high, axis=0)
    first = gl.maximum(lowest, 0) // 128
    last = gl.maximum(gl.cdiv(gl.maximum(highest, 0), 128), first)
    d = block * BN + gl.arange(0, BN, layout=gl.SliceLayout(0, ACC))
    inside = (r < rows)[:, None] & (d < width)[None, :]
    place = gl.program_id(1).to(gl.int64) * rows
    to = (
        out
        + (((b * queries + row // group) * key_heads + head) * group + row % group)[:, None] * width
        + d[None, :]
    )
    acc = gl.zeros([BM, BN], gl.float32, ACC)
    if (s >= first) & (s < last):
        sv = gl.allocate_shared_memory(gl.float32, [128, BN], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
        sy = gl.allocate_shared_memory(gl.float32, [BM, 128], gl.SwizzledSharedLayout(1, 1, 1, [0, 1]))
        vj = s * 128 + gl.arange(0, 128, layout=gl.SliceLayout(1, VALUES))
        vd = block * BN + gl.arange(0, BN, layout=gl.SliceLayout(0, VALUES))
        pv = v + b * v_b + head.to(gl.int64) * v_h + (vj.to(gl.int64) * v_j)[:, None] + vd[None, :]
        real = (vj < highest)[:, None] & (vd >= 0)[None, :]
        if not EVEN:
            real = real & (vd < width)[None, :]
        w = gl.load(pv, mask=real, other=0.0)
        yr = gl.minimum(tile * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, ROWS)), rows - 1)
        yj = s * 128 + gl.arange(0, 128, layout=gl.SliceLayout(0, ROWS))
        x = gl.load(
            e + (place + yr)[:, None] * stride + yj[None, :],
            mask=(yr >= 0)[:, None] & (yj < stride)[None, :],
            other=0.0,
        )
        total = gl.zeros([BM], gl.float32, gl.SliceLayout(1, ROWS))
        for start in range(first, last, 8):
            for u in gl.static_range(8):
                known = (yr >= 0) & (start + u < last)
                total = total + gl.load(parts + (place + yr) * segments + start + u, mask=known, other=0.0)
        total = gl.where(total > 0.0, total, 1.0)
        x = gl.div_rn(x, gl.broadcast(total[:, None], x)[0])
        sy.store(x.to(out.dtype.element_ty).to(gl.float32))
        sv.store(w.to(gl.float32))
        p = gl.zeros([BM, BN], gl.float32, ACC)
        for j in gl.static_range(0, 128):
            y = sy.slice(j, 1, dim=1).load(ACC)
            w = sv.slice(j, 1, dim=0).load(ACC)
            p = gl.fma(gl.broadcast(y, p)[0], gl.broadcast(w, p)[0], p)
        acc = acc + p
        arrived = gl.num_programs(1) * 0
        if last - first > 1:
            at = sums + (gl.program_id(1).to(gl.int64) * segments * rows + row)[:, None] * width + d[None, :]
            step = rows.to(gl.int64) * width
            gl.store(at + s * step, acc, mask=inside)
            barrier()
            counter = counters + (gl.program_id(1) * (gl.num_programs(2) // blocks) + tile) * blocks + block
            arrived = gl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
            if arrived == last - first - 1:
                acc = gl.zeros([BM, BN], gl.float32, ACC)
                for start in range(first, last, 8):
                    for u in gl.static_range(8):
                        due = inside & (start + u < last)
                        acc = acc + gl.load(
                            at + (start + u) * step, mask=due, other=0.0, cache_modifier=".cg"
                        )
        if arrived == last - first - 1:
            store(to, acc, inside)
            gl.store(flag + gl.zeros([BM, BN], gl.int32, ACC), 1, mask=inside & not_finite(acc))
    elif (s == 0) & (first == last):
        store(to, acc, inside)


class Sizes(NamedTuple):
    """How the work is shared out; a choice of speed alone.

    Attributes:
        keys: of a program of ``few_scores``, at least 32.
        score_warps: its warps; each thread owns keys / warps / 32 keys.
        values: columns of a program of ``few_values``.
        value_warps: its warps.
    """

    keys: int = 32
    score_warps: int = 1
    values: int = 32
    value_warps: int = 1


DEFAULT = Sizes()


@functools.cache
def score_layouts(block_m: int, sizes: Sizes, depth: int, vector: int) -> dict[str, Any]:
    """Constexprs of ``few_scores``; `vector` neighbours along the depth are one load."""
    warps, d = sizes.score_warps, min(128, max(4 * vector, triton.next_power_of_2(depth)))
    bits = [1 << n for n in range(10)]
    inner = bits[: vector.bit_length() - 1]
    across = [vector, 2 * vector]
    reg = [[0, i] for i in inner]
    lane = [[1, 0], [2, 0], [4, 0], *([0, i] for i in across)]
    warp = [[8 * i, 0] for i in bits if i < warps]
    reg += [[0, i] for i in bits if 4 * vector <= i < d]
    reg += [[i, 0] for i in bits if 8 * warps <= i < sizes.keys]
    return {
        "EVEN": depth % d == 0,
        "BM": block_m,
        "BN": sizes.keys,
        "D": d,
        "ACC": gl.BlockedLayout([block_m, 1], [1, 32], [1, warps], [0, 1]),
        "TAKE": gl.BlockedLayout([1, 1, 4], [1, 32, 1], [1, warps, 1], [2, 1, 0]),
        "KEYS": gl.DistributedLinearLayout(reg, lane, warp, [], [sizes.keys, d]),
        "ROWS": gl.BlockedLayout([1, 4], [1, 32], [warps, 1], [1, 0]),
        "num_warps": warps,
    }


@functools.cache
def value_layouts(block_m: int, sizes: Sizes, width: int, vector: int) -> dict[str, Any]:
    """Constexprs of ``few_values``; `vector` neighbours along the width are one load."""
    warps, columns = sizes.value_warps, sizes.values
    across = columns // vector
    return {
        "EVEN": width % columns == 0,
        "BM": block_m,
        "BN": columns,
        "ACC": gl.BlockedLayout([block_m, 1], [1, 32], [1, warps], [0, 1]),
        "VALUES": gl.BlockedLayout([1, vector], [max(1, 32 // across), min(32, across)], [warps, 1], [1, 0]),
        "ROWS": gl.BlockedLayout([1, 4], [1, 32], [warps, 1], [1, 0]),
        "num_warps": warps,
    }


def fits(call: Call, sizes: Sizes = DEFAULT) -> bool:
    """Whether :func:`run` can: a score must not fall as ``q . k`` grows, and counters must fit a warp."""
    cap = call.softcap
    return call.scale >= 0.0 and (cap is None or cap > 0.0) and call.v.shape[3] <= 32 * sizes.values


def run(call: Call, sizes: Sizes = DEFAULT) -> None:
    """Launch the kernels of a call.

    Args:
        call: what to compute.
        sizes: how.
    """
    q, k, v, out, flag = call.q, call.k, call.v, call.out, call.flag
    queries, depth, keys, width = q.shape[2], q.shape[3], call.keys, v.shape[3]
    group, key_heads, rows, count = call.group, k.shape[1], call.rows, call.heads
    block_m = min(8, triton.next_power_of_2(rows))
    tiles, blocks = -(-rows // block_m), -(-width // sizes.values)
    splits, segments = -(-keys // sizes.keys), -(-keys // 128)
    stride = -(-keys // 16) * 16
    scores, most = call.floats(count, rows, stride), call.floats(count, rows, splits)
    parts, sums = call.floats(count, rows, segments), call.floats(count, segments, rows, width)
    counters = torch.empty(count * tiles * blocks, dtype=torch.int32, device=q.device)
    spans = (call.positions, call.lengths)
    launch(
        few_scores, (splits, count, tiles), q, k, scores, most, counters, flag, call.mask, *spans, out,
        queries, keys, depth, group, key_heads, stride, splits, blocks, *q.stride()[:3], *k.stride()[:3],
        *call.masks, call.window, **score_layouts(block_m, sizes, depth, 16 // k.element_size()),
    )  # fmt: skip
    launch(
        few_weights, (segments, count, tiles), scores, most, parts, flag, *spans, out, queries, keys, group,
        key_heads, stride, splits, segments, call.window, call.scale, call.softcap,
        BM=block_m, BN=sizes.keys, MOST=64, num_warps=4,
    )  # fmt: skip
    launch(
        few_values, (segments, count, tiles * blocks), scores, parts, v, sums, counters, out, flag, *spans,
        queries, keys, width, group, key_heads, stride, segments, *v.stride()[:3], call.window,
        **value_layouts(block_m, sizes, width, 16 // v.element_size()),
    )  # fmt: skip


def _builds() -> Iterator[Build]:
    for kind, full, block_m, more in (
        ("*fp32", True, 4, False),
        ("*bf16", True, 4, True),
        ("*fp16", False, 1, False),
        ("*fp32", False, 8, True),
    ):
        depth, vector = (128, 4 if kind == "*fp32" else 8) if full else (80, 4)
        spans = {"positions": "*i64", "lengths": "*i64", **({"window": "i32"} if more else {})}
        absent = {} if more else {"window": None}
        masked = {"mask": "*i1"} if more else {}
        capped = {"softcap": "fp32"} if more else {}
        bare = {} if more else {"mask": None}
        uncapped = {} if more else {"softcap": None}
        scratch = dict.fromkeys(("scores", "most", "parts", "sums", "e"), "*fp32")
        some = {**scratch, "flag": "*i32", "counters": "*i32", "scale": "fp32"}
        types = {**some, **spans, **masked, **capped, **dict.fromkeys(("q", "k", "v", "out", "like"), kind)}
        for kernel, how in (
            (few_scores, {**bare, **score_layouts(block_m, DEFAULT, depth, vector)}),
            (few_weights, {**uncapped, "BM": block_m, "BN": DEFAULT.keys, "MOST": 64, "num_warps": 4}),
            (few_values, value_layouts(block_m, DEFAULT, depth, vector)),
        ):
            constexprs = {**absent, **how}
            options = {"num_warps": constexprs.pop("num_warps")}
            signature = {n: types.get(n, "i32") for n in kernel.arg_names if n not in constexprs}
            steps = ("depth", "width", "stride", *(n for n in signature if n[:2] in ("q_", "k_", "v_")))
            aligned = [n for n in signature if signature[n][0] == "*" or (full and n in steps)]
            yield Build(kernel, signature, constexprs, options, tuple(aligned), fma=True)


BUILDS = tuple(_builds())
"""The types, whole and masked, for 1, 4 and 8 rows, with and without a window, a mask and a soft cap."""
