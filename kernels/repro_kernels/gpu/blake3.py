"""BLAKE3's compression function and the kernels that apply it: chunks of rows, and the trees above them.

Written from the BLAKE3 paper (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, 2020; section numbers below are
the paper's). A lane hashes a chunk or joins two nodes; a program is one warp, so it needs no barrier but its
own. What a program works on lies in tables on the device (``repro_kernels.gpu.digest`` makes them), so one
launch serves tensors of any number, width and type.

The rounds are functions that call each other: written out they would take Triton seconds to compile.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from repro_kernels.gpu.runtime import INTERPRETED, Build

LANES = 32
"""Lanes of a program."""

GROUP = 64
"""Most nodes of a row that one program joins to one, a power of two: chunks of 64 KiB."""

BLOCK, CHUNK = 64, 1024
"""Bytes of a block and of a chunk."""

ITEM_FIELDS = 12
"""int64 fields of an item of the table of chunks: word offset of its first row, rows per outer step, words
between outer and inner rows, chunks per row, bytes per row, lanes, key, first node, and how to find NaN: the
sign bits of a word's elements (0: no NaN to find), what added to a magnitude reaches them from a NaN, and the
canonical NaN in every element of a word."""

GROUP_FIELDS = 7
"""int64 fields of an item of a table of groups: first node, nodes per row, groups per row, groups, key, first
result, and 1 if the result is the digest."""

VECTOR = not INTERPRETED
"""Whether a lane loads 16 bytes at once, which Triton has no word for and its interpreter no way."""

_START, _END, _PARENT, _ROOT, _KEYED = (tl.constexpr(1 << bit) for bit in range(5))  # table 3

_LOAD = tl.constexpr("""{
.reg .pred %p900000;
setp.ne.b32 %p900000, $5, 0;
@%p900000 ld.global.v4.b32 { $0, $1, $2, $3 }, [ $4 ];
@!%p900000 mov.b32 $0, 0;
@!%p900000 mov.b32 $1, 0;
@!%p900000 mov.b32 $2, 0;
@!%p900000 mov.b32 $3, 0;
    }""")


@triton.jit
def _mix(a, b, c, d, x, y):
    """G of section 2.2."""
    a = a + b + x
    d = d ^ a
    d = (d >> 16) | (d << 16)
    c = c + d
    b = b ^ c
    b = (b >> 12) | (b << 20)
    a = a + b + y
    d = d ^ a
    d = (d >> 8) | (d << 24)
    c = c + d
    b = b ^ c
    b = (b >> 7) | (b << 25)
    return a, b, c, d


@triton.jit
def _round(v, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p):  # noqa: E741
    """Columns, then diagonals, of the state v with sixteen message words."""
    v0, v4, v8, v12 = _mix(v[0], v[4], v[8], v[12], a, b)
    v1, v5, v9, v13 = _mix(v[1], v[5], v[9], v[13], c, d)
    v2, v6, v10, v14 = _mix(v[2], v[6], v[10], v[14], e, f)
    v3, v7, v11, v15 = _mix(v[3], v[7], v[11], v[15], g, h)
    v0, v5, v10, v15 = _mix(v0, v5, v10, v15, i, j)
    v1, v6, v11, v12 = _mix(v1, v6, v11, v12, k, l)
    v2, v7, v8, v13 = _mix(v2, v7, v8, v13, m, n)
    v3, v4, v9, v14 = _mix(v3, v4, v9, v14, o, p)
    return v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15


@triton.jit
def compress(h, m, low, length, flags):
    """The first half of the compression function's output, the next chaining value.

    Args:
        h: eight uint32 words, the chaining value.
        m: sixteen, the message.
        low: the low half of the counter, uint32; the high half is 0, which is enough for rows of 4 TiB.
        length: bytes of the block, uint32.
        flags: its flags, uint32.
    """
    zero = low ^ low
    v = (
        h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7],
        zero + 0x6A09E667, zero + 0xBB67AE85, zero + 0x3C6EF372, zero + 0xA54FF53A, low, zero, length, flags,
    )  # fmt: skip
    # Section 2.2: the words of a round are those of the one before, permuted by table 2.
    for _ in range(7):
        v = _round(
            v, m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7],
            m[8], m[9], m[10], m[11], m[12], m[13], m[14], m[15],
        )  # fmt: skip
        m = (
            m[2], m[6], m[3], m[10], m[7], m[0], m[4], m[13],
            m[1], m[11], m[12], m[5], m[9], m[14], m[15], m[8],
        )  # fmt: skip
    return (
        v[0] ^ v[8], v[1] ^ v[9], v[2] ^ v[10], v[3] ^ v[11],
        v[4] ^ v[12], v[5] ^ v[13], v[6] ^ v[14], v[7] ^ v[15],
    )  # fmt: skip


@triton.jit
def _key_words(keys, zero):
    """The eight words of a key, in every lane."""
    return (
        zero + tl.load(keys).to(tl.uint32, bitcast=True),
        zero + tl.load(keys + 1).to(tl.uint32, bitcast=True),
        zero + tl.load(keys + 2).to(tl.uint32, bitcast=True),
        zero + tl.load(keys + 3).to(tl.uint32, bitcast=True),
        zero + tl.load(keys + 4).to(tl.uint32, bitcast=True),
        zero + tl.load(keys + 5).to(tl.uint32, bitcast=True),
        zero + tl.load(keys + 6).to(tl.uint32, bitcast=True),
        zero + tl.load(keys + 7).to(tl.uint32, bitcast=True),
    )


@triton.jit
def _four(place, live, VECTOR: tl.constexpr):
    """Four words from a place of 16 bytes' alignment; zeros where it is not live."""
    if VECTOR:
        return tl.inline_asm_elementwise(
            _LOAD, "=r,=r,=r,=r,l,r", [place.to(tl.int64), live.to(tl.int32)],
            dtype=(tl.uint32, tl.uint32, tl.uint32, tl.uint32), is_pure=False, pack=1,
        )  # fmt: skip
    else:  # a branch: Triton compiles what follows a return, too
        return (
            tl.load(place, mask=live, other=0).to(tl.uint32, bitcast=True),
            tl.load(place + 1, mask=live, other=0).to(tl.uint32, bitcast=True),
            tl.load(place + 2, mask=live, other=0).to(tl.uint32, bitcast=True),
            tl.load(place + 3, mask=live, other=0).to(tl.uint32, bitcast=True),
        )


@triton.jit
def _block(place, ok, left, VECTOR: tl.constexpr):
    """The sixteen words of a block, of which `left` bytes belong to the row, or more than the block has."""
    return (
        _four(place, ok & (left > 0), VECTOR),
        _four(place + 4, ok & (left > 16), VECTOR),
        _four(place + 8, ok & (left > 32), VECTOR),
        _four(place + 12, ok & (left > 48), VECTOR),
    )


@triton.jit
def _any_nan(w, sign, reach):
    """Bits where an element of four words is NaN."""
    magnitude = sign ^ 0xFFFFFFFF
    found = (((w[0] & magnitude) + reach) & sign) | (((w[1] & magnitude) + reach) & sign)
    return found | (((w[2] & magnitude) + reach) & sign) | (((w[3] & magnitude) + reach) & sign)


@triton.jit
def _one_nan(word, sign, reach, quiet):
    """A word whose elements are canonical where they are NaN; see the fields of an item."""
    nan = ((word & (sign ^ 0xFFFFFFFF)) + reach) & sign
    # From the sign bit down to the element's lowest: the highest element's has nothing above it.
    ones = nan | (nan - (nan >> _shift_of(sign)))
    return (word & (ones ^ 0xFFFFFFFF)) | (quiet & ones)


@triton.jit
def _shift_of(sign):
    """31, 15 or 7: where the lowest sign bit is."""
    return tl.where(sign == 0x80000000, 31, tl.where(sign == 0x80008000, 15, 7)).to(tl.uint32)


@triton.jit
def _four_canonical(w, sign, reach, quiet):
    return (
        _one_nan(w[0], sign, reach, quiet), _one_nan(w[1], sign, reach, quiet),
        _one_nan(w[2], sign, reach, quiet), _one_nan(w[3], sign, reach, quiet),
    )  # fmt: skip


@triton.jit
def _put(place, h, live):
    """Eight words of a node."""
    tl.store(place, h[0].to(tl.int32, bitcast=True), mask=live)
    tl.store(place + 1, h[1].to(tl.int32, bitcast=True), mask=live)
    tl.store(place + 2, h[2].to(tl.int32, bitcast=True), mask=live)
    tl.store(place + 3, h[3].to(tl.int32, bitcast=True), mask=live)
    tl.store(place + 4, h[4].to(tl.int32, bitcast=True), mask=live)
    tl.store(place + 5, h[5].to(tl.int32, bitcast=True), mask=live)
    tl.store(place + 6, h[6].to(tl.int32, bitcast=True), mask=live)
    tl.store(place + 7, h[7].to(tl.int32, bitcast=True), mask=live)


@triton.jit
def _choose(condition, a, b):
    """Eight words of a where the condition holds, else of b."""
    return (
        tl.where(condition, a[0], b[0]), tl.where(condition, a[1], b[1]),
        tl.where(condition, a[2], b[2]), tl.where(condition, a[3], b[3]),
        tl.where(condition, a[4], b[4]), tl.where(condition, a[5], b[5]),
        tl.where(condition, a[6], b[6]), tl.where(condition, a[7], b[7]),
    )  # fmt: skip


@triton.jit
def chunks(
    data, items, programs, keys, nodes, digests,
    FIELDS: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """Chunks to nodes (section 2.4); the only chunk of a row to its digest.

    data: 4-byte words, 16-byte aligned; items int64 [items, FIELDS]; programs int32 [programs, 2]: item,
    first lane; keys int32 [keys, 8]; nodes, digests int32 [..., 8]. Lane e of an item is chunk e % chunks of
    row e // chunks. A row's words lie in a multiple of 16 bytes, zeros behind its end.
    """
    pid = tl.program_id(0)
    item = items + tl.load(programs + 2 * pid).to(tl.int64) * FIELDS
    e = tl.load(programs + 2 * pid + 1) + tl.arange(0, LANES)
    inner, count = tl.load(item + 1).to(tl.int32), tl.load(item + 4).to(tl.int32)
    width, first = tl.load(item + 5), tl.load(item + 8)
    ok = e < tl.load(item + 6).to(tl.int32)
    sign = tl.load(item + 9).to(tl.uint32)
    reach, quiet = tl.load(item + 10).to(tl.uint32), tl.load(item + 11).to(tl.uint32)
    row = e // count
    chunk = e - row * count
    outer = row // inner
    offset = tl.load(item) + outer.to(tl.int64) * tl.load(item + 2)
    offset += (row - outer * inner).to(tl.int64) * tl.load(item + 3) + chunk.to(tl.int64) * 256
    left = tl.minimum(width - chunk.to(tl.int64) * 1024, 1024).to(tl.int32)
    last = tl.maximum(left - 1, 0) // 64
    low = chunk.to(tl.uint32)
    h = _key_words(keys + tl.load(item + 7) * 8, low ^ low)
    end = tl.where(count == 1, _END + _ROOT, _END)
    place = data + offset
    a, b, c, d = _block(place, ok, left, VECTOR)
    for block in range(0, (tl.minimum(width, 1024).to(tl.int32) + 63) // 64 + tl.where(width == 0, 1, 0)):
        at = block * 64
        # The next block arrives while this one is hashed.
        na, nb, nc, nd = _block(place + 16 * (block + 1), ok, left - at - 64, VECTOR)
        if sign != 0:
            found = _any_nan(a, sign, reach) | _any_nan(b, sign, reach)
            found |= _any_nan(c, sign, reach) | _any_nan(d, sign, reach)
            if tl.max((found != 0).to(tl.int32), axis=0) != 0:
                a = _four_canonical(a, sign, reach, quiet)
                b = _four_canonical(b, sign, reach, quiet)
                c = _four_canonical(c, sign, reach, quiet)
                d = _four_canonical(d, sign, reach, quiet)
        m = (
            a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3],
            c[0], c[1], c[2], c[3], d[0], d[1], d[2], d[3],
        )  # fmt: skip
        length = tl.maximum(tl.minimum(left - at, 64), 0).to(tl.uint32)
        flags = tl.where(block == 0, _KEYED + _START, _KEYED) + tl.where(block == last, end, 0)
        h = _choose(block <= last, compress(h, m, low, length, flags.to(tl.uint32)), h)
        a, b, c, d = na, nb, nc, nd
    place = (first + e) * 8
    _put(digests + place, h, ok & (count == 1))
    _put(nodes + place, h, ok & (count > 1))


@triton.jit
def parents(
    nodes, items, programs, keys, digests, FIELDS: tl.constexpr, LANES: tl.constexpr, GROUP: tl.constexpr
):
    """Groups of up to GROUP neighbouring nodes of a row, each to one node, or to the digest (section 2.1).

    Level by level adjacent nodes pair from the left and an odd one is carried up, which is the paper's tree:
    left subtrees hold the largest power of two. A level overwrites the one below. items int64
    [items, FIELDS]; programs int32 [programs, 3]: item, first group, groups.
    """
    pid = tl.program_id(0)
    item = items + tl.load(programs + 3 * pid).to(tl.int64) * FIELDS
    unit, units = tl.load(programs + 3 * pid + 1), tl.load(programs + 3 * pid + 2)
    source, result = tl.load(item), tl.load(item + 5)
    count, groups = tl.load(item + 1).to(tl.int32), tl.load(item + 2).to(tl.int32)
    root = tl.load(item + 6).to(tl.int32)
    lane = tl.arange(0, LANES)
    zero = (lane ^ lane).to(tl.uint32)
    key = _key_words(keys + tl.load(item + 4) * 8, zero)
    size = tl.minimum(count, GROUP)
    step = 1
    while step < size:
        pairs = (size + 2 * step - 1) // (2 * step)
        final = pairs == 1
        kind = _KEYED + _PARENT + tl.where(final & (root == 1), _ROOT, 0)
        for begin in range(0, units * pairs, LANES):
            e = begin + lane
            ok = e < units * pairs
            mine = e // pairs
            i = e - mine * pairs
            row = (unit + mine) // groups
            group = unit + mine - row * groups
            here = (tl.minimum(count - group * GROUP, GROUP) + step - 1) // step
            base = (source + row.to(tl.int64) * count + group * GROUP) * 8
            place = nodes + base + i * 16
            left, right = ok & (2 * i < here), ok & (2 * i + 1 < here)
            tl.debug_barrier()  # what the lanes of the last turn stored
            a, b = _four(place, left, False), _four(place + 4, left, False)
            c, d = _four(place + 8, right, False), _four(place + 12, right, False)
            tl.debug_barrier()
            m = (
                a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3],
                c[0], c[1], c[2], c[3], d[0], d[1], d[2], d[3],
            )  # fmt: skip
            joined = compress(key, m, zero, zero + 64, zero + kind.to(tl.uint32))
            joined = _choose(right, joined, (a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]))
            up = (result + unit + mine) * 8
            _put(digests + up, joined, left & final & (root == 1))
            _put(nodes + up, joined, left & final & (root == 0))
            _put(nodes + base + i * 8, joined, left & (not final))
        step *= 2


def _builds() -> tuple[Build, ...]:
    tables = {"items": "*i64", "programs": "*i32", "keys": "*i32", "nodes": "*i32", "digests": "*i32"}
    aligned = tuple(tables)
    one_warp: dict[str, Any] = {"num_warps": 1}
    constants = {"FIELDS": ITEM_FIELDS, "LANES": LANES, "VECTOR": True}
    return (
        Build(chunks, {"data": "*i32", **tables}, constants, one_warp, ("data", *aligned), fma=False),
        Build(
            parents, tables, {"FIELDS": GROUP_FIELDS, "LANES": LANES, "GROUP": GROUP}, one_warp, aligned,
            fma=False,
        ),
    )  # fmt: skip


BUILDS = _builds()
"""Both kernels have one specialisation."""
