"""Additions through an index under profile ``fp32`` on CUDA tensors.

The functions, their arguments, errors and bits are those of ``repro_kernels.cpu.index``: the destination's
value first, source elements in ascending order, each addition rounded to the destination's type. Never
atomics: the index, an integer tensor, is sorted stably, so that the source elements of a destination are
neighbours in ascending order; one lane owns a destination element and adds them up. Tests:
``tests/gpu/cases_reduce.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from repro_kernels.arguments import checked_index, require_index_add, require_scatter_add, same_type
from repro_kernels.cpu.layout import along, axis
from repro_kernels.gpu.language import rounded, store
from repro_kernels.gpu.runtime import Build, launch
from repro_kernels.spec.floats import rn32

_LANES = 128


@triton.jit
def _add(x, order, bounds, source, m, n, inner, total, alpha, SHARED: tl.constexpr, LANES: tl.constexpr):
    """x [outer, m, inner] += alpha * source [outer, n, inner], i ascending.

    order: line by line, the positions 0 .. n-1 sorted by their destination; bounds: line by line, m + 1
    places in order, where each destination's begin. A line is (outer, inner); SHARED: one for all.
    """
    e = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    valid = e < total
    row = e // inner
    j = e - row * inner
    o = row // m
    d = row - o * m
    line = 0
    if not SHARED:
        line = o * inner + j
    begin = tl.load(bounds + line * (m + 1) + d, mask=valid, other=0)
    count = tl.load(bounds + line * (m + 1) + d + 1, mask=valid, other=0) - begin
    value = tl.load(x + e, mask=valid, other=0.0).to(tl.float32)
    for k in range(0, tl.max(count, axis=0)):
        adds = k < count
        i = tl.load(order + line * n + begin + k, mask=adds, other=0)
        term = tl.load(source + (o * n + i) * inner + j, mask=adds, other=0.0).to(tl.float32)
        value = tl.where(adds, rounded(value + alpha * term, x.dtype.element_ty), value)
    store(x + e, value, valid & (count > 0))


def index_add(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1.0
) -> torch.Tensor:
    """A copy of x with ``RN(alpha * source_i)`` added: :func:`repro_kernels.cpu.index.index_add`."""
    dim = axis(x, dim)
    same_type("index_add", x, source)
    if x.dim() == 0:
        return index_add(x.view(1), 0, index.view(-1), source.view(-1), alpha=alpha).view(())
    require_index_add(x, dim, index, source)
    indices = checked_index(index, x.shape[dim]).reshape(1, -1)
    result = x.clone(memory_format=torch.contiguous_format)
    _run(result, dim, indices, source, alpha)
    return result


def scatter_add(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """A copy of x with source added where index says: :func:`repro_kernels.cpu.index.scatter_add`."""
    dim = axis(x, dim)
    same_type("scatter_add", x, source)
    if x.dim() == 0:
        return scatter_add(x.view(1), 0, index.view(-1), source.view(-1)).view(())
    require_scatter_add(x, dim, index, source)
    result = x.clone(memory_format=torch.contiguous_format)
    if index.numel() == 0:
        return result
    indices = checked_index(index, x.shape[dim])
    part, covered = source, result
    for d, size in enumerate(index.shape):
        part = part.narrow(d, 0, size)
        covered = covered if d == dim else covered.narrow(d, 0, size)
    work = covered.contiguous()
    _run(work, dim, indices.movedim(dim, -1).reshape(-1, index.shape[dim]), part, 1.0)
    if work.data_ptr() != result.data_ptr():
        covered.copy_(work)
    return result


def _run(x: torch.Tensor, dim: int, indices: torch.Tensor, source: torch.Tensor, alpha: float) -> None:
    """Adds to x, contiguous; indices [lines, n], one line for all or one for each (outer, inner)."""
    data, _, n, inner = along(source, dim)
    if data.numel() == 0 or x.numel() == 0:
        return
    m = x.shape[dim]
    ordered = torch.sort(indices.contiguous(), dim=-1, stable=True)
    targets = torch.arange(m + 1, device=x.device).expand(indices.shape[0], -1).contiguous()
    bounds = torch.searchsorted(ordered.values.contiguous(), targets)
    shared = indices.shape[0] == 1
    launch(
        _add,
        -(-x.numel() // _LANES),
        *(x, ordered.indices.contiguous(), bounds, data, m, n, inner, x.numel(), rn32(alpha)),
        SHARED=shared,
        LANES=_LANES,
    )


def _builds() -> Iterator[Build]:
    for kind in ("*fp32", "*bf16", "*fp16"):
        pointers = {"x": kind, "source": kind, "order": "*i64", "bounds": "*i64"}
        sizes = dict.fromkeys(("m", "n", "inner", "total"), "i32")
        how = {"SHARED": kind != "*fp32", "LANES": _LANES}
        yield Build(_add, {**pointers, **sizes, "alpha": "fp32"}, how, fma=False)


BUILDS = tuple(_builds())
"""Every dtype, with an index of each line's own and with one for all."""
