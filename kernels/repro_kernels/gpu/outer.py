"""Products of whole tiles in Gluon: outer products out of shared memory, with every layout written down.

Operands are upcast exactly on their way to shared memory, where a step's column of one and row of the other
lie side by side; each thread then adds to its own outputs, k ascending, by ``fma``. Two steps alternate
between two pairs of buffers, so that one barrier a step suffices, and the next step's operands are in flight
meanwhile. The bits are those of ``repro_kernels.gpu.product``, whose note on zeros holds here.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from repro_kernels.gpu.tiles import UNSPECIALISED, batch_offset, row_of, store


@gluon.jit
def fetch(pointers, inside, k, rk, step, K, FIT: gl.constexpr, ROWS: gl.constexpr):
    """Elements k + rk of every row, as float32; +0 outside the contraction and, if ROWS, the rows."""
    at = pointers + k.to(gl.int64) * step
    if FIT == 2 and ROWS:
        return gl.load(at, mask=inside[:, None], other=0.0).to(gl.float32)
    elif FIT == 2:
        return gl.load(at).to(gl.float32)
    elif FIT == 1:
        return gl.load(at, mask=inside[:, None] & (k + rk < K)[None, :], other=0.0).to(gl.float32)
    else:
        real = (k + rk >= 0) & (k + rk < K)
        return gl.load(at, mask=inside[:, None] & real[None, :], other=0.0).to(gl.float32)


@gluon.jit
def step(p, left, right, DEPTH: gl.constexpr, ACC: gl.constexpr):
    """``p = fma(x_k, w_k, p)`` for the contracted indices of one step, ascending."""
    for u in gl.static_range(0, DEPTH):
        x = left.slice(u, 1, dim=1).load(ACC)
        w = right.slice(u, 1, dim=1).permute((1, 0)).load(ACC)
        p = gl.fma(gl.broadcast(x, p)[0], gl.broadcast(w, p)[0], p)
    return p


@gluon.jit(do_not_specialize=UNSPECIALISED)
def _outer(
    a, b, bias, out, parts, M, N, K, start, middle, inner, share, segments, batches,
    a0, a1, a2, a_m, a_k, b0, b1, b2, b_n, b_k, c0, c1, c2, c_m, c_n, o0, o1, o2, o_m, alpha, beta,
    BIAS: gl.constexpr, SPLIT: gl.constexpr, FIT: gl.constexpr, UNIT: gl.constexpr, BM: gl.constexpr,
    BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr, ACC: gl.constexpr, LEFT: gl.constexpr,
    RIGHT: gl.constexpr, LEFT_ROWS: gl.constexpr, RIGHT_ROWS: gl.constexpr, KEPT: gl.constexpr,
):  # fmt: skip
    """A [BM, BN] tile of out, or the partial sums of `share` of its segments (SPLIT).

    GROUP rows of tiles run through the columns together, so that their operands meet in the cache. K, a_m and
    b_n are given in units of UNIT elements. FIT: 2, the contraction starts at a segment and is a multiple of
    2 BK; 1, it starts at a segment and is a multiple of UNIT; 0, neither. KEPT: the layout of the running
    sums in shared memory, or None for registers. parts [segments, batches, M, N], M and N whole tiles.
    """
    rows = gl.cdiv(M, BM)
    columns = gl.cdiv(N, BN)
    program = gl.program_id(0)
    batch = (program // (rows * columns)).to(gl.int64)
    tile = program % (rows * columns)
    above = tile // (GROUP * columns) * GROUP
    height = min(rows - above, GROUP)
    row = above + tile % (GROUP * columns) % height
    column = tile % (GROUP * columns) // height

    m, m_inside = row_of(row, M, BM, LEFT, LEFT_ROWS)
    n, n_inside = row_of(column, N, BN, RIGHT, RIGHT_ROWS)
    rka = gl.arange(0, BK, layout=gl.SliceLayout(0, LEFT))
    rkb = gl.arange(0, BK, layout=gl.SliceLayout(0, RIGHT))
    a += batch_offset(batch, middle, inner, a0, a1, a2)
    b += batch_offset(batch, middle, inner, b0, b1, b2)
    pa = a + (m.to(gl.int64) * a_m * UNIT)[:, None] + (rka.to(gl.int64) * a_k)[None, :]
    pb = b + (n.to(gl.int64) * b_n * UNIT)[:, None] + (rkb.to(gl.int64) * b_k)[None, :]
    K = K * UNIT

    memory: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0, 1])
    left0 = gl.allocate_shared_memory(gl.float32, [BM, BK], memory)
    right0 = gl.allocate_shared_memory(gl.float32, [BN, BK], memory)
    left1 = gl.allocate_shared_memory(gl.float32, [BM, BK], memory)
    right1 = gl.allocate_shared_memory(gl.float32, [BN, BK], memory)
    first = gl.program_id(1) * share
    k = first * 128
    if FIT == 0:
        k -= start
    left0.store(fetch(pa, m_inside, k, rka, a_k, K, FIT, LEFT_ROWS))
    right0.store(fetch(pb, n_inside, k, rkb, b_k, K, FIT, RIGHT_ROWS))

    tm = gl.arange(0, BM, layout=gl.SliceLayout(1, ACC))
    tn = gl.arange(0, BN, layout=gl.SliceLayout(0, ACC))
    acc = gl.zeros([BM, BN], gl.float32, ACC)
    if KEPT is not None:
        kept = gl.allocate_shared_memory(gl.float32, [BM, BN], KEPT)
        kept.store(acc)
    for s in range(first, min(first + share, segments)):
        p = gl.zeros([BM, BN], gl.float32, ACC)
        for _ in range(0, gl.cdiv(min(128, K + start - s * 128), 2 * BK)):
            k += BK
            left = fetch(pa, m_inside, k, rka, a_k, K, FIT, LEFT_ROWS)
            right = fetch(pb, n_inside, k, rkb, b_k, K, FIT, RIGHT_ROWS)
            p = step(p, left0, right0, BK, ACC)
            left1.store(left)
            right1.store(right)
            k += BK
            if FIT == 2:
                k = min(k, K - BK)
            left = fetch(pa, m_inside, k, rka, a_k, K, FIT, LEFT_ROWS)
            right = fetch(pb, n_inside, k, rkb, b_k, K, FIT, RIGHT_ROWS)
            p = step(p, left1, right1, BK, ACC)
            left0.store(left)
            right0.store(right)
        if SPLIT:
            at = ((batch + s * batches) * rows + row) * BM * columns * BN + column * BN
            gl.store(parts + at + (tm[:, None] * (columns * BN) + tn[None, :]), p)
        elif KEPT is not None:
            kept.store(kept.load(ACC) + p)
        else:
            acc = acc + p
    if not SPLIT:
        if KEPT is not None:
            acc = kept.load(ACC)
        om = (row * BM + tm).to(gl.int64)
        on = (column * BN + tn).to(gl.int64)
        inside = (om < M)[:, None] & (on < N)[None, :]
        value = alpha * acc
        if BIAS:
            c = bias + batch_offset(batch, middle, inner, c0, c1, c2)
            term = gl.load(c + (om * c_m)[:, None] + (on * c_n)[None, :], mask=inside, other=0.0)
            value = beta * term.to(gl.float32) + value
        at = batch_offset(batch, middle, inner, o0, o1, o2) + (om * o_m)[:, None] + on[None, :]
        store(out + at, value, inside)
