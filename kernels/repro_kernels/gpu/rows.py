"""A few rows against weights with a contiguous axis K, in Gluon: decoding, bound by the weights' bytes.

A program takes BN rows of weights and walks K in rounds of S segments of 128. The bytes of the next stages
([BN, S, C] weights and the [M, S, C] activations beside them) are on their way to shared memory by
asynchronous copies, 16 bytes a thread, while the present stage is added: a thread owns one segment of one or
more rows of weights and, of each, M chains, so that a weight is loaded and upcast once; it adds by ``fma``, k
ascending. After a round the partial sums meet in shared memory and are added to the results, segments
ascending, so none travels through global memory. Which rows a program has, how many segments stand side by
side and how deep the copies run cannot change a bit; the note on zeros in ``repro_kernels.gpu.product``
holds here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from repro_kernels.gpu.runtime import LEAST_SHARED, Build, copy_async, launch, processors, shared_memory
from repro_kernels.gpu.tiles import store


@gluon.jit
def eight(tile):
    """The columns of [..., 8], ascending; the splits stay inside a thread."""
    even, odd = gl.split(gl.reshape(tile, tile.shape[:-1] + [4, 2]))  # noqa: RUF005 - Triton's lists
    c04, c26 = gl.split(gl.reshape(even, even.shape[:-1] + [2, 2]))  # noqa: RUF005
    c15, c37 = gl.split(gl.reshape(odd, odd.shape[:-1] + [2, 2]))  # noqa: RUF005
    c0, c4 = gl.split(c04)
    c2, c6 = gl.split(c26)
    c1, c5 = gl.split(c15)
    c3, c7 = gl.split(c37)
    return c0, c1, c2, c3, c4, c5, c6, c7


@gluon.jit
def _step(w, x, p, SUM: gl.constexpr):
    """``p = fma(w, x, p)`` for w [BN, S], x [M, S], p [M, BN, S]; the conversions only rename layouts."""
    w = gl.expand_dims(gl.convert_layout(w, gl.SliceLayout(0, SUM)), 0)
    x = gl.expand_dims(gl.convert_layout(x, gl.SliceLayout(1, SUM)), 1)
    return gl.fma(gl.broadcast(w, p)[0], gl.broadcast(x, p)[0], p)


@gluon.jit
def _places(pointer, first, rows, step, R: gl.constexpr, S: gl.constexpr, C: gl.constexpr, L: gl.constexpr):
    """Pointers [R, S, C] to rows first .. first + R - 1, `step` apart (the last of `rows` beyond them)."""
    r = first + gl.arange(0, R, layout=gl.SliceLayout(1, gl.SliceLayout(2, L)))
    row = gl.minimum(r, rows - 1).to(gl.int64) * step
    return pointer + gl.expand_dims(gl.expand_dims(row, 1), 2) + _columns(S, C, L)


@gluon.jit
def _columns(S: gl.constexpr, C: gl.constexpr, L: gl.constexpr):
    """Contracted indices [1, S, C] of the first piece of S segments."""
    s = gl.arange(0, S, layout=gl.SliceLayout(0, gl.SliceLayout(2, L))) * 128
    c = gl.arange(0, C, layout=gl.SliceLayout(0, gl.SliceLayout(1, L)))
    return gl.expand_dims(gl.expand_dims(s, 0), 2) + gl.expand_dims(gl.expand_dims(c, 0), 1)


@gluon.jit
def _copy(
    memory, pointers, k, K,
    EVEN: gl.constexpr, ASYNC: gl.constexpr, S: gl.constexpr, C: gl.constexpr, L: gl.constexpr,
):  # fmt: skip
    """Start a copy of a piece to shared memory; +0 beyond K."""
    at = pointers + k
    if EVEN and ASYNC:
        copy_async(memory, at)
    else:
        inside = gl.broadcast(_columns(S, C, L) + k < K, at)[0]
        if ASYNC:
            copy_async(memory, at, mask=inside)
        else:
            memory.store(gl.load(at, mask=inside, other=0.0))


@gluon.jit
def _advance(
    b, at, tile, k, piece, depth, N, b_n,
    BN: gl.constexpr, S: gl.constexpr, C: gl.constexpr, RIGHT: gl.constexpr,
):  # fmt: skip
    """The piece after this one: the next of its segments, else the first of the next ones, or tile."""
    piece += 1
    k += C
    if piece == 128 // C:
        piece = 0
        k += S * 128 - 128
        if k >= depth:
            k = 0
            tile += gl.num_programs(0)
            at = _places(b, tile * BN, N, b_n, BN, S, C, RIGHT)
    return at, tile, k, piece


@gluon.jit(do_not_specialize=["rounds", "M"])
def _rows(
    a, b, bias, out, M, N, K, rounds, a_m, b_n, c_m, c_n, o_m, alpha, beta,
    BIAS: gl.constexpr, EVEN: gl.constexpr, ASYNC: gl.constexpr, MR: gl.constexpr, BN: gl.constexpr,
    S: gl.constexpr, C: gl.constexpr, STAGES: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
    TAKE_LEFT: gl.constexpr, TAKE_RIGHT: gl.constexpr, SUM: gl.constexpr, LAST: gl.constexpr,
    LEFT_MEMORY: gl.constexpr, RIGHT_MEMORY: gl.constexpr,
):  # fmt: skip
    """Tiles program_id(0), + num_programs(0), ... of BN columns of out [M, N]."""
    program = gl.program_id(0)
    tiles = gl.cdiv(N, BN)
    total = gl.cdiv(tiles - program, gl.num_programs(0)) * rounds
    left = gl.allocate_shared_memory(a.dtype.element_ty, [STAGES, MR, S, C], LEFT_MEMORY)
    right = gl.allocate_shared_memory(b.dtype.element_ty, [STAGES, BN, S, C], RIGHT_MEMORY)
    sums: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0, 2])
    parts = gl.allocate_shared_memory(gl.float32, [MR, BN, S], sums)
    depth = rounds * S * 128
    left_at = _places(a, 0, M, a_m, MR, S, C, LEFT)
    right_at = _places(b, program * BN, N, b_n, BN, S, C, RIGHT)
    tile = program
    k = 0
    piece = 0
    for ahead in gl.static_range(0, STAGES - 1):
        if tile < tiles:
            _copy(right.index(ahead), right_at, k, K, EVEN, ASYNC, S, C, RIGHT)
            _copy(left.index(ahead), left_at, k, K, EVEN, ASYNC, S, C, LEFT)
        async_copy.commit_group()
        right_at, tile, k, piece = _advance(b, right_at, tile, k, piece, depth, N, b_n, BN, S, C, RIGHT)
    m = gl.arange(0, MR, layout=gl.SliceLayout(1, gl.SliceLayout(2, LAST)))
    lane = gl.arange(0, BN, layout=gl.SliceLayout(0, gl.SliceLayout(2, LAST)))
    acc = gl.zeros([MR, BN, 1], gl.float32, LAST)
    buffer = 0
    free = STAGES - 1
    for turn in range(0, total):
        p = gl.zeros([MR, BN, S], gl.float32, SUM)
        for _ in range(0, 128 // C):
            async_copy.wait_group(STAGES - 2)
            if tile < tiles:
                _copy(right.index(free), right_at, k, K, EVEN, ASYNC, S, C, RIGHT)
                _copy(left.index(free), left_at, k, K, EVEN, ASYNC, S, C, LEFT)
            async_copy.commit_group()
            right_at, tile, k, piece = _advance(b, right_at, tile, k, piece, depth, N, b_n, BN, S, C, RIGHT)
            for c in gl.static_range(0, C, 8):
                w = right.index(buffer).slice(c, 8, dim=2).load(TAKE_RIGHT).to(gl.float32)
                x = left.index(buffer).slice(c, 8, dim=2).load(TAKE_LEFT).to(gl.float32)
                w0, w1, w2, w3, w4, w5, w6, w7 = eight(w)
                x0, x1, x2, x3, x4, x5, x6, x7 = eight(x)
                p = _step(w0, x0, p, SUM)
                p = _step(w1, x1, p, SUM)
                p = _step(w2, x2, p, SUM)
                p = _step(w3, x3, p, SUM)
                p = _step(w4, x4, p, SUM)
                p = _step(w5, x5, p, SUM)
                p = _step(w6, x6, p, SUM)
                p = _step(w7, x7, p, SUM)
            free = buffer
            buffer = (buffer + 1) % STAGES
        parts.store(p)
        for s in gl.static_range(0, S):
            acc = acc + parts.slice(s, 1, dim=2).load(LAST)
        if turn % rounds == rounds - 1:
            n = (program + turn // rounds * gl.num_programs(0)) * BN + lane
            inside = gl.expand_dims(gl.expand_dims(m < M, 1) & gl.expand_dims(n < N, 0), 2)
            value = alpha * acc
            n64 = n.to(gl.int64)
            if BIAS:
                at = gl.expand_dims(m.to(gl.int64) * c_m, 1) + gl.expand_dims(n64 * c_n, 0)
                term = gl.load(bias + gl.expand_dims(at, 2), mask=inside, other=0.0)
                value = beta * term.to(gl.float32) + value
            at = gl.expand_dims(m.to(gl.int64) * o_m, 1) + gl.expand_dims(n64, 0)
            store(out + gl.expand_dims(at, 2), value, inside)
            acc = gl.zeros([MR, BN, 1], gl.float32, LAST)


class Form(NamedTuple):
    """How a program is laid out; a choice of speed alone.

    Attributes:
        rows: lanes of a warp along the rows of weights; the other lanes lie along segments.
        each: rows of weights per thread.
        warps: along segments.
        columns: contracted indices per stage, at most 128; half as many if the weights have 32 bits.
        stages: buffers.
        programs: at most so many per multiprocessor; each takes several tiles if there are more.
    """

    rows: int
    each: int
    warps: int
    columns: int
    stages: int
    programs: int


@functools.cache
def layouts(form: Form, height: int, left_bits: int, right_bits: int) -> dict[str, Any]:
    """Constexprs of a launch.

    Args:
        form: the program.
        height: rows of activations, a power of two.
        left_bits: of an element of the activations.
        right_bits: of an element of the weights.
    """
    tall, lanes, warps = form.rows * form.each, 32 // form.rows, form.warps
    c = form.columns * 16 // right_bits
    s = lanes * warps
    take = gl.BlockedLayout([height, 1, 1, 8], [1, form.rows, lanes, 1], [1, 1, warps, 1], [3, 1, 2, 0])
    last = [1, min(32, tall), 1]
    return {
        "MR": height, "BN": tall, "S": s, "C": c, "STAGES": form.stages,
        "LEFT": _copies(s, c, left_bits, warps),
        "RIGHT": _copies(s, c, right_bits, warps),
        "TAKE_LEFT": gl.SliceLayout(1, take),
        "TAKE_RIGHT": gl.BlockedLayout([1, 1, 8], [form.rows, lanes, 1], [1, warps, 1], [2, 0, 1]),
        "SUM": gl.BlockedLayout([height, 1, 1], [1, form.rows, lanes], [1, 1, warps], [1, 2, 0]),
        "LAST": gl.BlockedLayout([1, 1, 1], [32 // last[1], last[1], 1], [warps, 1, 1], [1, 0, 2]),
        "LEFT_MEMORY": gl.SwizzledSharedLayout(128 // left_bits, 1, 8, [2, 1, 0]),
        "RIGHT_MEMORY": _swizzled(c, right_bits),
        "num_warps": warps,
    }  # fmt: skip


def _copies(segments: int, columns: int, bits: int, warps: int) -> Any:
    """How [rows, S, C] is copied: 16 bytes a thread, neighbours along C, then along segments."""
    vector = 128 // bits
    across = min(32, columns // vector)
    beside = min(segments, 32 // across)
    return gl.BlockedLayout(
        [1, 1, vector], [32 // across // beside, beside, across], [warps, 1, 1], [2, 1, 0]
    )


def _swizzled(columns: int, bits: int) -> Any:
    """Rows of weights side by side, so that a quarter of a warp reads 16 bytes of each from other banks."""
    line = columns * bits // 8
    phases = min(8, line // 16)
    return gl.SwizzledSharedLayout(128 // bits, max(1, 128 // line), phases, [2, 0, 1])


def choose(m: int, n: int, room: int) -> Form:
    """The form for a product of m rows and n columns, on a device with so much shared memory a program."""
    if m <= 2:
        return Form(8, 1, 4, 64, 3, 3) if m * n <= 1024 else Form(16, 1, 4, 128, 2, 4 - m)
    if m <= 4 and n < 16384:
        return Form(16, 1, 4, 64, 3, 3)
    if m <= 4 or (n < 16384 and room >= 112 << 10):
        return Form(16, 2, 4, 64, 2, 2)
    return Form(32, 2, 4, 64, 2, 2) if n >= 16384 else Form(32, 1, 8, 32, 3, 2)


def run(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    factors: tuple[float, float],
) -> Any:
    """out = the rows of a [M, K] against those of b [N, K], both contiguous along K, as in ``product``.

    Args:
        a: few rows.
        b: weights.
        bias: expanded to [M, N], or None.
        out: [M, N], its last axis contiguous.
        factors: alpha, beta.

    Returns:
        The compiled kernel.
    """
    m, k = a.shape
    n = b.shape[0]
    form = choose(m, n, shared_memory(out.device))
    how = layouts(form, triton.next_power_of_2(m), 8 * a.element_size(), 8 * b.element_size())
    segments = -(-k // 128)
    tiles = -(-n // how["BN"])
    a_m = a.stride(0) if m > 1 else k
    aligned = a.data_ptr() | b.data_ptr() | k | a_m | b.stride(0)
    addend = out if bias is None else bias
    return launch(
        _rows, min(tiles, form.programs * processors(out.device)), a, b, addend, out,
        m, n, k, -(-segments // how["S"]), a_m, b.stride(0), *addend.stride(), out.stride(0), *factors,
        BIAS=bias is not None, EVEN=k % (128 * how["S"]) == 0, ASYNC=aligned % 16 == 0, **how,
    )  # fmt: skip


def _builds() -> Iterator[Build]:
    bits = {"*fp32": 32, "*bf16": 16, "*fp16": 16}
    sizes = dict.fromkeys(("M", "N", "K", "rounds", "a_m", "b_n", "c_m", "c_n", "o_m"), "i32")
    for m, n, room, left, right, out in (
        (1, 1024, LEAST_SHARED, "*fp32", "*bf16", "*fp32"),
        (1, 14336, LEAST_SHARED, "*bf16", "*fp16", "*bf16"),
        (4, 4096, LEAST_SHARED, "*fp32", "*bf16", "*fp32"),
        (8, 4096, LEAST_SHARED, "*fp16", "*fp32", "*fp16"),
        (8, 28672, LEAST_SHARED, "*fp32", "*bf16", "*fp32"),
        (8, 4096, 1 << 17, "*bf16", "*bf16", "*bf16"),
    ):
        how = dict(layouts(choose(m, n, room), m, bits[left], bits[right]))
        options = {"num_warps": how.pop("num_warps")}
        pointers = {"a": left, "b": right, "bias": right, "out": out}
        signature = {**pointers, **sizes, "alpha": "fp32", "beta": "fp32"}
        aligned = (*pointers, "N", "K", "a_m", "b_n", "o_m")
        for even, copies in ((True, True), (False, True), (False, False)):
            constexprs = {"BIAS": not even, "EVEN": even, "ASYNC": copies, **how}
            yield Build(_rows, signature, constexprs, options, aligned if copies else tuple(pointers))


BUILDS = tuple(_builds())
"""Every form, three mixes of types, whole, masked and without alignment."""
