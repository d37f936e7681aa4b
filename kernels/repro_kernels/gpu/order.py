"""Maxima, sorting and selection under profile ``fp32`` on CUDA tensors.

The functions, their arguments, errors and bits are those of ``repro_kernels.cpu.order``: +0 and -0 compare
equal and the first operand or the lowest index wins, a NaN is above every number. No float is compared: a
kernel maps each to an integer in the specified order, with the index below it where one is wanted, so that no
two of a row are equal. Maxima of such integers are the same in any order, and torch's integer sort and top-k
(exact, and of distinct keys) do the rest; no vendor kernel sees a float. Tests: ``tests/gpu/cases_order.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import triton
import triton.language as tl

from repro_kernels.cpu.layout import axis, number, reduced_shape
from repro_kernels.cpu.order import Selected
from repro_kernels.gpu.language import store
from repro_kernels.gpu.runtime import Build, launch

_LOW = 0x7FFFFFFF
_BLOCK = 1024
_CHUNK = 1 << 13
"""Elements of a row that one program looks at, where rows are few."""


@triton.jit
def order_key(x):
    """int32 in the order of float32 x: -0 as +0, every NaN above all."""
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    bits = tl.where(size == 0, 0, bits)
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return tl.where(size > 0x7F800000, 0x7FFFFFFF, key)


@triton.jit
def _best_key(x, LEAST: tl.constexpr):
    """The key of which the greatest is best: NaN either way."""
    key = order_key(x)
    if LEAST:
        key = tl.where(key == 0x7FFFFFFF, key, ~key)
    return key


@triton.jit
def _extreme(x, out, n, splits, chunk, LEAST: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    """Row by row, the index of the best element, or (SPLIT) of each chunk its key and reversed index."""
    program = tl.program_id(0).to(tl.int64)
    row = program // splits
    begin = (program - row * splits) * chunk
    best = tl.full([BLOCK], -0x8000000000000000, tl.int64)
    for first in range(0, chunk, BLOCK):
        i = begin + first + tl.arange(0, BLOCK)
        inside = (i < n) & (first + tl.arange(0, BLOCK) < chunk)
        value = tl.load(x + row * n + i, mask=inside, other=0.0).to(tl.float32)
        ranked = (_best_key(value, LEAST).to(tl.int64) << 32) | (0x7FFFFFFF - i)
        best = tl.where(inside & (ranked > best), ranked, best)
    found = tl.max(best, axis=0)
    if SPLIT:
        tl.store(out + program, found)
    else:
        tl.store(out + program, 0x7FFFFFFF - (found & 0x7FFFFFFF))


@triton.jit
def _choose(x, y, out, total, ONE: tl.constexpr, LEAST: tl.constexpr, BLOCK: tl.constexpr):
    """The greater (lesser) of x and y, x if they compare equal; ONE: one y for all."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    a = tl.load(x + i, mask=inside, other=0.0).to(tl.float32)
    if ONE:
        b = tl.load(y).to(tl.float32)
    else:
        b = tl.load(y + i, mask=inside, other=0.0).to(tl.float32)
    store(out + i, tl.where(_best_key(a, LEAST) >= _best_key(b, LEAST), a, b), inside)


@triton.jit
def _sort_keys(x, keys, n, total, DESCENDING: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of n: the order above, the index below, counted from the end for a descending sort."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = e < total
    i = e % n
    if DESCENDING:
        i = 0x7FFFFFFF - i
    value = tl.load(x + e, mask=inside, other=0.0).to(tl.float32)
    tl.store(keys + e, (order_key(value).to(tl.int64) << 32) | i, mask=inside)


def argmax(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """The lowest index of the greatest element: :func:`repro_kernels.cpu.order.argmax`."""
    return _index(x, dim, keepdim, False)


def argmin(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """The lowest index of the least element: :func:`repro_kernels.cpu.order.argmin`."""
    return _index(x, dim, keepdim, True)


def max(x: torch.Tensor, dim: int, keepdim: bool = False) -> Selected:
    """The greatest element along an axis and its index: :func:`repro_kernels.cpu.order.max`."""
    return _selected(x, dim, keepdim, False)


def min(x: torch.Tensor, dim: int, keepdim: bool = False) -> Selected:
    """The least element along an axis and its index: :func:`repro_kernels.cpu.order.min`."""
    return _selected(x, dim, keepdim, True)


def amax(x: torch.Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    """The greatest element over axes: :func:`repro_kernels.cpu.order.amax`."""
    return _over(x, dim, keepdim, False)


def amin(x: torch.Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    """The least element over axes: :func:`repro_kernels.cpu.order.amin`."""
    return _over(x, dim, keepdim, True)


def maximum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Element by element the greater, x if equal: :func:`repro_kernels.cpu.order.maximum`."""
    return _chosen(x, y, False)


def minimum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Element by element the lesser, x if equal: :func:`repro_kernels.cpu.order.minimum`."""
    return _chosen(x, y, True)


def relu(x: torch.Tensor) -> torch.Tensor:
    """``maximum(x, +0)``: -0 stays -0, NaN stays NaN."""
    return _chosen(x, torch.zeros((), dtype=x.dtype, device=x.device), False)


def clamp(
    x: torch.Tensor, low: float | torch.Tensor | None = None, high: float | torch.Tensor | None = None
) -> torch.Tensor:
    """``minimum(maximum(x, low), high)``: :func:`repro_kernels.cpu.order.clamp`."""
    for bound, choose in ((low, maximum), (high, minimum)):
        if bound is not None:
            x = choose(x, bound if isinstance(bound, torch.Tensor) else _filled(bound, x))
    return x


def _filled(bound: float, x: torch.Tensor) -> torch.Tensor:
    """One element of x's type: rounded as the CPU rounds it, written without a copy from the host."""
    return torch.full((), torch.tensor(bound, dtype=x.dtype).item(), dtype=x.dtype, device=x.device)


def sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Selected:
    """Sorted along an axis, equals by ascending index: :func:`repro_kernels.cpu.order.sort`."""
    indices = argsort(x, dim, descending)
    return Selected(_take(x, axis(x, dim), indices), indices)


def argsort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> torch.Tensor:
    """The indices of :func:`sort`."""
    dim = axis(x, dim)
    if not x.is_floating_point():
        return torch.sort(x, dim=dim, descending=descending, stable=True).indices
    keys = torch.sort(_keys(_rows(x, dim), descending), dim=-1, descending=descending).values
    return _back(_indices(keys, descending), x, dim)


def topk(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True) -> Selected:
    """The first k of :func:`sort`, best first: :func:`repro_kernels.cpu.order.topk`."""
    dim = axis(x, dim)
    size = x.shape[dim] if x.dim() else 1
    if not 0 <= k <= size:
        raise IndexError(f"topk: k {k} of an axis of {size}")
    if not x.is_floating_point():
        ordered = torch.sort(x, dim=dim, descending=largest, stable=True)
        return Selected(ordered.values.narrow(dim, 0, k), ordered.indices.narrow(dim, 0, k))
    keys = torch.topk(_keys(_rows(x, dim), largest), k, dim=-1, largest=largest, sorted=True).values
    indices = _back(_indices(keys, largest), x, dim)
    return Selected(_take(x, dim, indices), indices)


def _rows(x: torch.Tensor, dim: int) -> torch.Tensor:
    """x with one axis moved to the end, contiguous."""
    return (x if x.dim() <= 1 or dim == x.dim() - 1 else x.movedim(dim, -1)).contiguous()


def _back(rows: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    return rows if x.dim() <= 1 or dim == x.dim() - 1 else rows.movedim(-1, dim)


def _take(x: torch.Tensor, dim: int, indices: torch.Tensor) -> torch.Tensor:
    return x.gather(dim, indices) if x.dim() else x.expand(indices.shape).clone()


def keys(rows: torch.Tensor) -> torch.Tensor:
    """int64 in the order of a descending sort of each row: the greatest is first, no two are equal.

    Args:
        rows: float32, bfloat16 or float16 [..., n], contiguous.
    """
    return _keys(rows, True)


def indices(found: torch.Tensor) -> torch.Tensor:
    """The positions in their rows that :func:`keys` are of."""
    return _indices(found, True)


def _keys(rows: torch.Tensor, descending: bool) -> torch.Tensor:
    number(rows.dtype, "sorting")
    keys = torch.empty(rows.shape, dtype=torch.int64, device=rows.device)
    total, n = keys.numel(), rows.shape[-1] if rows.dim() else 1
    if total:
        launch(_sort_keys, -(-total // _BLOCK), rows, keys, n, total, DESCENDING=descending, BLOCK=_BLOCK)
    return keys


def _indices(keys: torch.Tensor, descending: bool) -> torch.Tensor:
    low = keys & _LOW
    return _LOW - low if descending else low


def _index(x: torch.Tensor, dim: int | None, keepdim: bool, least: bool) -> torch.Tensor:
    if dim is None:
        shape = [1] * x.dim() if keepdim else []
        return _index(x.reshape(-1), 0, False, least).reshape(shape)
    dim = axis(x, dim)
    n = x.shape[dim] if x.dim() else 1
    if n == 0:
        raise IndexError(f"the maximum of no elements (axis {dim} of shape {tuple(x.shape)})")
    if not x.is_floating_point():
        return (torch.argmin if least else torch.argmax)(x, dim=dim, keepdim=keepdim)
    number(x.dtype, "argmax")
    rows = _rows(x, dim)
    out = torch.empty(reduced_shape(x, [dim], keepdim), dtype=torch.int64, device=x.device)
    if out.numel() == 0:
        return out
    splits = 1 if out.numel() > 1024 else -(-n // _CHUNK)
    how = {"LEAST": least, "BLOCK": _BLOCK if n > _BLOCK // 2 else triton.next_power_of_2(n)}
    if splits == 1:
        launch(_extreme, out.numel(), rows, out, n, 1, n, SPLIT=False, **how)
        return out
    parts = torch.empty(out.numel(), splits, dtype=torch.int64, device=x.device)
    launch(_extreme, parts.numel(), rows, parts, n, splits, _CHUNK, SPLIT=True, **how)
    return (_LOW - (parts.amax(dim=1) & _LOW)).reshape(out.shape)


def _selected(x: torch.Tensor, dim: int, keepdim: bool, least: bool) -> Selected:
    dim = axis(x, dim)
    indices = _index(x, dim, True, least)
    values = _take(x, dim, indices)
    if keepdim or x.dim() == 0:
        return Selected(values, indices)
    return Selected(values.squeeze(dim), indices.squeeze(dim))


def _over(x: torch.Tensor, dim: int | Sequence[int] | None, keepdim: bool, least: bool) -> torch.Tensor:
    if isinstance(dim, int):
        return _selected(x, dim, keepdim, least).values
    dims = sorted({axis(x, d) for d in dim}) if dim else list(range(x.dim()))
    kept = [d for d in range(x.dim()) if d not in dims]
    flat = x.permute([*kept, *dims]).reshape([x.shape[d] for d in kept] + [-1]) if x.numel() else x
    if x.numel() == 0:
        shape = reduced_shape(x, dims, keepdim)
        if any(x.shape[d] == 0 for d in dims):
            raise IndexError(f"the maximum of no elements (axes {dims} of shape {tuple(x.shape)})")
        return torch.empty(shape, dtype=x.dtype, device=x.device)
    return _selected(flat, -1, False, least).values.reshape(reduced_shape(x, dims, keepdim))


def _chosen(x: torch.Tensor, y: torch.Tensor, least: bool) -> torch.Tensor:
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        return torch.minimum(x, y) if least else torch.maximum(x, y)
    number(dtype, "a maximum")
    x, y = torch.broadcast_tensors(x.to(dtype), y.to(dtype))
    one = y.numel() > 0 and not any(y.stride())
    x, y = x.contiguous(), y if one else y.contiguous()
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    total = out.numel()
    if total:
        launch(_choose, -(-total // _BLOCK), x, y, out, total, ONE=one, LEAST=least, BLOCK=_BLOCK)
    return out


def _builds() -> Iterator[Build]:
    for kind in ("*fp32", "*bf16", "*fp16"):
        sizes = {"x": kind, "n": "i32"}
        how = {"LEAST": kind == "*bf16", "BLOCK": _BLOCK}
        split = {**how, "SPLIT": kind == "*fp32"}
        yield Build(_extreme, {**sizes, "out": "*i64", "splits": "i32", "chunk": "i32"}, split, fma=False)
        pair = {**how, "ONE": kind == "*fp16"}
        yield Build(_choose, {"x": kind, "y": kind, "out": kind, "total": "i32"}, pair, fma=False)
        sort = {"DESCENDING": True, "BLOCK": _BLOCK}
        yield Build(_sort_keys, {**sizes, "keys": "*i64", "total": "i32"}, sort, fma=False)


BUILDS = tuple(_builds())
"""Every kernel and dtype."""
