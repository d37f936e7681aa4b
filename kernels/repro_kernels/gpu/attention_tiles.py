"""The two products of attention over many queries, in tiles: Gluon, as ``repro_kernels.gpu.tiles``.

The bits are those of the plain kernels in ``repro_kernels.gpu.attention_plain``, whose layouts of scores
these share: row = query * group + head of the group, `stride` scores apart. Tiles that no query of theirs may
attend to are skipped; weights outside a query's span are +0 in memory, and values behind the last key are
read as +0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from repro_kernels.gpu import attention_plain as plain
from repro_kernels.gpu.attention_parts import Call, not_finite, span
from repro_kernels.gpu.runtime import Build, launch
from repro_kernels.gpu.tiles import DEPTH, Form, fetch, layouts, row_of, step, store

WIDE = Form(128, 128, (4, 2), (4, 8))
NARROW = Form(128, 64, (4, 1), (4, 8))
"""Tiles of rows by keys or by columns of values; NARROW for values of at most 64 columns."""


@gluon.jit(do_not_specialize=["queries", "keys"])
def score_tiles(
    q, k, scores, positions, lengths, queries, keys, depth, group, key_heads, stride,
    q_b, q_h, q_i, k_b, k_h, k_j, window,
    EVEN: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    ACC: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    LEFT_ROWS: gl.constexpr, RIGHT_ROWS: gl.constexpr,
):  # fmt: skip
    """scores[b, key head, row, j] = q . k; q and k contiguous along their last axis."""
    rows = queries * group
    tiles = gl.cdiv(rows, BM)
    row = gl.program_id(0) % tiles
    column = gl.program_id(0) // tiles
    b = (gl.program_id(1) // key_heads).to(gl.int64)
    head = gl.program_id(1) % key_heads
    r, r_inside = row_of(row, rows, BM, LEFT, False)
    j, j_inside = row_of(column, keys, BN, RIGHT, False)
    low, high = span(positions, lengths, b, r // group, queries, keys, window)
    lowest, highest = gl.min(low, axis=0), gl.max(high, axis=0)
    memory: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0, 1])
    sa = gl.allocate_shared_memory(gl.float32, [2, BM, BK], memory)
    sb = gl.allocate_shared_memory(gl.float32, [2, BN, BK], memory)
    if (column * BN < highest) & (column * BN + BN > lowest):
        h = (head * group + r % group).to(gl.int64)
        left = q + b * q_b + h * q_h + (r // group).to(gl.int64) * q_i
        right = k + b * k_b + head.to(gl.int64) * k_h + j.to(gl.int64) * k_j
        rka = gl.arange(0, BK, layout=gl.SliceLayout(0, LEFT))
        rkb = gl.arange(0, BK, layout=gl.SliceLayout(0, RIGHT))
        pa = left[:, None] + rka[None, :]
        pb = right[:, None] + rkb[None, :]
        at = gl.program_id(0) * 0
        sa.index(0).store(fetch(pa, r_inside, at, rka, 1, depth, EVEN, False))
        sb.index(0).store(fetch(pb, j_inside, at, rkb, 1, depth, EVEN, False))
        acc = gl.zeros([BM, BN], gl.float32, ACC)
        buffer = 0
        for s in range(0, gl.cdiv(depth, 128)):
            p = gl.zeros([BM, BN], gl.float32, ACC)
            for _ in range(0, gl.cdiv(min(128, depth - s * 128), BK)):
                at += BK
                if EVEN:
                    at = min(at, depth - BK)
                x = fetch(pa, r_inside, at, rka, 1, depth, EVEN, False)
                w = fetch(pb, j_inside, at, rkb, 1, depth, EVEN, False)
                p = step(p, sa, sb, buffer, BK, ACC)
                buffer = 1 - buffer
                sa.index(buffer).store(x)
                sb.index(buffer).store(w)
            acc = acc + p
        om = row * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, ACC))
        on = column * BN + gl.arange(0, BN, layout=gl.SliceLayout(0, ACC))
        to = scores + (gl.program_id(1).to(gl.int64) * rows + om)[:, None] * stride + on[None, :]
        gl.store(to, acc, mask=(om < rows)[:, None] & (on < keys)[None, :])


@gluon.jit(do_not_specialize=["queries", "keys"])
def value_tiles(
    y, v, out, flag, positions, lengths, queries, keys, width, group, key_heads, stride,
    v_b, v_h, v_j, window,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    ACC: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    LEFT_ROWS: gl.constexpr, RIGHT_ROWS: gl.constexpr,
):  # fmt: skip
    """out[b, query, head, d] = y . v; v contiguous along its last axis; stride a multiple of BK."""
    rows = queries * group
    tiles = gl.cdiv(rows, BM)
    row = tiles - 1 - gl.program_id(1) % tiles  # under a causal mask the last rows take longest
    column = gl.program_id(1) // tiles
    b = (gl.program_id(0) // key_heads).to(gl.int64)
    head = gl.program_id(0) % key_heads
    r, r_inside = row_of(row, rows, BM, LEFT, False)
    d, d_inside = row_of(column, width, BN, RIGHT, True)
    low, high = span(positions, lengths, b, r // group, queries, keys, window)
    lowest, highest = gl.min(low, axis=0), gl.max(high, axis=0)
    rka = gl.arange(0, BK, layout=gl.SliceLayout(0, LEFT))
    rkb = gl.arange(0, BK, layout=gl.SliceLayout(0, RIGHT))
    left = y + (gl.program_id(0).to(gl.int64) * rows + r) * stride
    pa = left[:, None] + rka[None, :]
    pb = v + b * v_b + head.to(gl.int64) * v_h + d[:, None] + (rkb.to(gl.int64) * v_j)[None, :]
    first = gl.maximum(lowest, 0) // 128
    last = gl.cdiv(gl.maximum(highest, 0), 128)
    at = first * 128
    memory: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0, 1])
    sa = gl.allocate_shared_memory(gl.float32, [2, BM, BK], memory)
    sb = gl.allocate_shared_memory(gl.float32, [2, BN, BK], memory)
    sa.index(0).store(fetch(pa, r_inside, min(at, stride - BK), rka, 1, stride, True, False))
    sb.index(0).store(fetch(pb, d_inside, at, rkb, v_j, highest, False, True))
    acc = gl.zeros([BM, BN], gl.float32, ACC)
    buffer = 0
    for s in range(first, last):
        p = gl.zeros([BM, BN], gl.float32, ACC)
        for _ in range(0, gl.cdiv(min(128, highest - s * 128), BK)):
            at += BK
            x = fetch(pa, r_inside, min(at, stride - BK), rka, 1, stride, True, False)
            w = fetch(pb, d_inside, at, rkb, v_j, highest, False, True)
            p = step(p, sa, sb, buffer, BK, ACC)
            buffer = 1 - buffer
            sa.index(buffer).store(x)
            sb.index(buffer).store(w)
        acc = acc + p
    om = row * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, ACC))
    on = column * BN + gl.arange(0, BN, layout=gl.SliceLayout(0, ACC))
    inside = (om < rows)[:, None] & (on < width)[None, :]
    place = ((b * queries + om // group) * key_heads + head) * group + om % group
    store(out + place[:, None] * width + on[None, :], acc, inside)
    gl.store(flag + (om * 0)[:, None] + (on * 0)[None, :], 1, mask=inside & not_finite(acc))


def run(call: Call) -> None:
    """Launch the kernels of a call."""
    q, k, v, out = call.q, call.k, call.v, call.out
    queries, depth, keys, width = q.shape[2], q.shape[3], call.keys, v.shape[3]
    rows, count = call.rows, call.heads
    stride = -(-keys // DEPTH) * DEPTH
    scores = call.floats(count, rows, stride)
    tiles = -(-rows // WIDE.rows)
    launch(
        score_tiles, (tiles * -(-keys // WIDE.columns), count), q, k, scores, call.positions, call.lengths,
        queries, keys, depth, call.group, k.shape[1], stride, *q.stride()[:3], *k.stride()[:3], call.window,
        **_score_form(depth),
    )  # fmt: skip
    plain.weigh(call, scores, stride, fill=WIDE.rows)
    form, how = _value_form(width)
    launch(
        value_tiles, (count, tiles * -(-width // form.columns)), scores, v, out, call.flag, call.positions,
        call.lengths, queries, keys, width, call.group, k.shape[1], stride, *v.stride()[:3], call.window,
        **how,
    )  # fmt: skip


def _score_form(depth: int) -> dict[str, Any]:
    return {"EVEN": depth % DEPTH == 0, **layouts(WIDE, False, False)}


def _value_form(width: int) -> tuple[Form, dict[str, Any]]:
    form = WIDE if width > NARROW.columns else NARROW
    return form, layouts(form, False, True)


def _builds() -> Iterator[Build]:
    for kind, windowed in (("*fp32", False), ("*bf16", True), ("*fp16", False)):
        spans = {"positions": "*i64", **({"lengths": "*i64", "window": "i32"} if windowed else {})}
        absent = {} if windowed else {"lengths": None, "window": None}
        depth = 72 if windowed else 128
        for kernel, pointers, how in (
            (score_tiles, {"q": kind, "k": kind, "scores": "*fp32"}, _score_form(depth)),
            (value_tiles, {"y": "*fp32", "v": kind, "out": kind, "flag": "*i32"}, _value_form(depth - 64)[1]),
        ):
            constexprs = dict(how)
            options = {"num_warps": constexprs.pop("num_warps")}
            known = {*pointers, *spans, *absent, *constexprs}
            integers = [name for name in kernel.arg_names if name not in known]
            aligned = [name for name in integers if name[1] == "_" or name in ("depth", "width", "stride")]
            yield Build(
                kernel,
                {**pointers, **spans, **dict.fromkeys(integers, "i32")},
                {**absent, **constexprs},
                options,
                (*pointers, *aligned),
            )


BUILDS = tuple(_builds())
"""Operands of every type, with and without a window, whole and masked."""
