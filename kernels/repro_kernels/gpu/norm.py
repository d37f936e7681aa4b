"""Normalisations under profile ``fp32`` on CUDA tensors: one launch each.

The functions, their arguments, errors and bits are those of ``repro_kernels.cpu.norm``. One program takes a
row: its lanes add one segment each, every thread then adds the partial sums in order, and the elements are
read again. Tests: ``tests/gpu/cases_norm.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
import triton
import triton.language as tl

from repro_kernels.cpu.layout import number
from repro_kernels.gpu import norm_rows
from repro_kernels.gpu.elementary_core import rsqrt_rn
from repro_kernels.gpu.language import rounded, store
from repro_kernels.gpu.runtime import INTERPRETED, Build, launch
from repro_kernels.gpu.segments import SEGMENT, segment_sums, vector
from repro_kernels.spec.floats import rn32

_BLOCK = 1024


@triton.jit
def row_sum(
    x, base, parts, n, segments, center,
    TERM: tl.constexpr, VECTOR: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """The segment sum of one contiguous row, known to every thread of the program that takes the row.

    Args:
        x: pointer to float32, bfloat16 or float16.
        base: int64 scalar, where the row starts.
        parts: pointer to `segments` floats of scratch memory that no other program uses.
        n: elements of the row.
        segments: segments of the row.
        center: a float32 scalar, for DEVIATION.
        TERM: as in :func:`repro_kernels.gpu.segments.segment_sums`.
        VECTOR: as there.
        LANES: segments added side by side.
    """
    for first in range(0, segments, LANES):
        s = first + tl.arange(0, LANES)
        length = tl.where(s < segments, tl.minimum(n - s * 128, 128), 0)
        p = segment_sums(x, base + s.to(tl.int64) * 128, 1, length, center, TERM, VECTOR)
        tl.store(parts + s, p, mask=s < segments)
    tl.debug_barrier()
    acc = 0.0
    for s in range(0, segments, 8):
        for u in tl.static_range(8):
            acc = acc + tl.load(parts + s + u, mask=s + u < segments, other=0.0)
    return acc


@triton.jit
def _normalise(
    x, w, b, out, parts, stride, n, segments, slices, run, eps, size,
    CENTRE: tl.constexpr, FIRST: tl.constexpr, ONE_PLUS: tl.constexpr,
    VECTOR: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row of x, `stride` apart, to one of out, n apart. FIRST: round to x's type before the factor w."""
    row = tl.program_id(0).to(tl.int64)
    base = row * stride
    scratch = parts + row * segments * 2
    mean = 0.0
    if CENTRE:
        mean = tl.div_rn(row_sum(x, base, scratch, n, segments, 0.0, 0, VECTOR, LANES), size)
        total = row_sum(x, base, scratch + segments, n, segments, mean, 1, VECTOR, LANES)
    else:
        total = row_sum(x, base, scratch, n, segments, 0.0, 2, VECTOR, LANES)
    factor = rsqrt_rn(tl.div_rn(total, size) + eps)
    slice = (row % slices) * (n // run)
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        inside = i < n
        v = tl.load(x + base + i, mask=inside, other=0.0).to(tl.float32)
        if CENTRE:
            v = v - mean
        v = v * factor
        if FIRST:
            v = rounded(v, out.dtype.element_ty)
        if w is not None:
            f = tl.load(w + slice + i // run, mask=inside, other=0.0).to(tl.float32)
            if ONE_PLUS:
                f = 1.0 + f
            v = v * f
        if b is not None:
            v = v + tl.load(b + slice + i // run, mask=inside, other=0.0).to(tl.float32)
        store(out + row * n + i, v, inside)


@triton.jit
def _batch_norm(x, mean, variance, w, b, out, channels, run, total, eps, BLOCK: tl.constexpr):
    """x, out [batch, channels, run]; statistics, w and b per channel."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = e < total
    c = e // run % channels
    factor = rsqrt_rn(tl.load(variance + c, mask=inside, other=1.0) + eps)
    v = tl.load(x + e, mask=inside, other=0.0).to(tl.float32)
    v = (v - tl.load(mean + c, mask=inside, other=0.0)) * factor
    if w is not None:
        v = v * tl.load(w + c, mask=inside, other=0.0)
    if b is not None:
        v = v + tl.load(b + c, mask=inside, other=0.0)
    store(out + e, v, inside)


def layer_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    w: torch.Tensor | None = None,
    b: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Layer norm over the last axes: :func:`repro_kernels.cpu.norm.layer_norm`."""
    return _last_axes(x, normalized_shape, w, b, eps=eps, centre=True)


def rms_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    w: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """RMS norm over the last axes, rounded once: :func:`repro_kernels.cpu.norm.rms_norm`."""
    number(x.dtype, "rms_norm")
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    return _last_axes(x, normalized_shape, w, None, eps=eps, centre=False)


def group_norm(
    x: torch.Tensor,
    groups: int,
    w: torch.Tensor | None = None,
    b: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Group norm, w and b per channel: :func:`repro_kernels.cpu.norm.group_norm`."""
    if x.dim() < 2 or groups < 1 or x.shape[1] % groups:
        raise ValueError(f"group_norm: {groups} groups do not divide shape {tuple(x.shape)}")
    _fits("group_norm", x.shape[1:2], w, b)
    run = math.prod(x.shape[2:])
    return _contiguous(x, x.shape[1] // groups * run, w, b, eps=eps, centre=True, slices=groups, run=run)


def batch_norm(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    w: torch.Tensor | None = None,
    b: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Batch norm with the running statistics: :func:`repro_kernels.cpu.norm.batch_norm`."""
    number(x.dtype, "batch_norm")
    if x.dim() < 2:
        raise ValueError(f"batch_norm: shape {tuple(x.shape)} has no channels")
    _fits("batch_norm", x.shape[1:2], mean, variance, w, b)
    statistics = [None if p is None else p.float().contiguous() for p in (mean, variance, w, b)]
    data = x.contiguous()
    out = torch.empty_like(data)
    total, run = data.numel(), math.prod(x.shape[2:])
    if total:
        grid = -(-total // _BLOCK)
        launch(_batch_norm, grid, data, *statistics, out, x.shape[1], run, total, rn32(eps), BLOCK=_BLOCK)
    return out


def normalise_rows(
    x: torch.Tensor,
    out: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    *,
    rows: int,
    n: int,
    stride: int,
    eps: float,
    centre: bool,
    slices: int = 1,
    run: int = 1,
    first: bool = False,
    one_plus: bool = False,
) -> None:
    """Normalises `rows` rows of n >= 1 elements into `out`, contiguous, of x's dtype.

    Args:
        x: float32, bfloat16 or float16; row r starts r * `stride` elements after its first.
        out: of rows * n elements.
        w: factors, contiguous, any of the three types, or None.
        b: summands, likewise.
        rows: how many, at least one.
        n: elements of a row.
        stride: elements from one row of x to the next.
        eps: used as its nearest float.
        centre: subtract the mean, or not.
        slices: row r uses slice r % slices of w and b, n / run factors long.
        run: neighbouring elements that share a factor.
        first: round to x's type before the factor.
        one_plus: the factor is RN(1 + w).
    """
    if n <= norm_rows.LONGEST and not INTERPRETED:
        mode = 1 if first else 2 if one_plus else 0
        norm_rows.run(x, w, b, out, (rows, stride, n, slices, mode, run, rn32(eps), rn32(n)), centre)
        return
    segments = -(-n // SEGMENT)
    warps = 4 if rows <= norm_rows.FEW else min(4, triton.next_power_of_2(-(-segments // 32)))
    parts = torch.empty(rows * segments * 2, dtype=torch.float32, device=x.device)
    launch(
        _normalise,
        rows,
        *(x, w, b, out, parts, stride, n, segments, slices, run, rn32(eps), rn32(n)),
        CENTRE=centre,
        FIRST=first,
        ONE_PLUS=one_plus,
        VECTOR=vector(n, x.element_size()) if stride % 16 == 0 else 1,
        LANES=32 * warps,
        BLOCK=min(_BLOCK, triton.next_power_of_2(n)),
        num_warps=warps,
    )


def _last_axes(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    *,
    eps: float,
    centre: bool,
) -> torch.Tensor:
    shape = tuple(normalized_shape)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ValueError(f"norm over {shape}: shape {tuple(x.shape)} does not fit")
    _fits("norm", shape, w, b)
    return _contiguous(x, math.prod(shape), w, b, eps=eps, centre=centre, slices=1, run=1)


def _fits(operation: str, shape: Sequence[int], *parameters: torch.Tensor | None) -> None:
    for p in parameters:
        if p is not None and p.shape != shape:
            raise ValueError(f"{operation}: a parameter has shape {tuple(p.shape)}, not {tuple(shape)}")


def _contiguous(
    x: torch.Tensor,
    n: int,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    *,
    eps: float,
    centre: bool,
    slices: int,
    run: int,
) -> torch.Tensor:
    number(x.dtype, "norm")
    for p in (w, b):
        if p is not None:
            number(p.dtype, "norm")
    data = x.contiguous()
    out = torch.empty_like(data)
    if out.numel():
        w, b = (None if p is None else p.contiguous() for p in (w, b))
        rows = out.numel() // n
        normalise_rows(
            data, out, w, b, rows=rows, n=n, stride=n, eps=eps, centre=centre, slices=slices, run=run
        )
    return out


def _builds() -> Iterator[Build]:
    sizes = {"stride": "i32", "n": "i32", "segments": "i32", "eps": "fp32", "size": "fp32"}
    divisible = ("x", "w", "out", "n", "stride")
    for kind, wide in (("*fp32", 4), ("*bf16", 8), ("*fp16", 8)):
        signature = {"x": kind, "w": kind, "out": kind, "parts": "*fp32", **sizes}
        how = {"VECTOR": wide, "LANES": 128, "BLOCK": _BLOCK, "slices": 1, "run": 1}
        module = {**how, "b": None, "CENTRE": False, "FIRST": True, "ONE_PLUS": False}
        yield Build(_normalise, signature, module, divisible=divisible)
        layer = {**how, "CENTRE": True, "FIRST": False, "ONE_PLUS": False}
        yield Build(_normalise, {**signature, "b": kind}, layer, divisible=divisible)
    signature = {"x": "*fp32", "w": "*fp32", "out": "*fp32", "parts": "*fp32", **sizes}
    group = {"b": None, "CENTRE": True, "FIRST": False, "ONE_PLUS": True}
    how = {"VECTOR": 1, "LANES": 32, "BLOCK": _BLOCK}
    yield Build(_normalise, {**signature, "slices": "i32", "run": "i32"}, {**group, **how}, {"num_warps": 1})
    statistics = dict.fromkeys(("mean", "variance", "w", "b"), "*fp32")
    sizes = {"channels": "i32", "run": "i32", "total": "i32", "eps": "fp32"}
    yield Build(_batch_norm, {"x": "*bf16", "out": "*bf16", **statistics, **sizes}, {"BLOCK": _BLOCK})


BUILDS = tuple(_builds())
"""Representative specialisations: every kernel and dtype, with and without what is optional."""
