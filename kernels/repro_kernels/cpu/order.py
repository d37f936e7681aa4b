"""Maxima, sorting and selection under profile ``fp32`` on CPU tensors.

The bit contract (``repro_kernels.spec.order``): +0 and -0 compare equal and the first operand or the lowest
index wins, with its own sign; a NaN is the result of any maximum or minimum that meets one (the first), and
sorts above every number. No arithmetic on floats takes place: torch orders integers, of which no two are
equal. Tests: ``tests/kernels/test_order.py``.

Operands: float32, bfloat16, float16; integer tensors too, which torch itself orders (stably).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from repro_kernels.cpu import native
from repro_kernels.cpu.layout import axis, number, reduced_shape

_LOW = 0x7FFFFFFF


class Selected(NamedTuple):
    """Values and the indices (int64) they came from."""

    values: torch.Tensor
    indices: torch.Tensor


@functools.cache
def _extreme() -> Any:
    function = native.fn("extreme")
    pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    function.argtypes = [pointer, integer, size, size, integer, pointer]
    function.restype = None
    return function


@functools.cache
def _sort_keys() -> Any:
    function = native.fn("sort_keys")
    pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    function.argtypes = [pointer, integer, size, size, integer, pointer]
    function.restype = None
    return function


@functools.cache
def _pick() -> Any:
    function = native.fn("choose")
    pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    function.argtypes = [pointer, pointer, integer, size, size, integer, pointer]
    function.restype = None
    return function


def argmax(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """The lowest index of the greatest element, over an axis or (None) the flattened tensor; int64.

    Raises:
        IndexError: no such axis, or nothing to choose from.
    """
    return _index(x, dim, keepdim, False)


def argmin(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """The lowest index of the least element; as :func:`argmax`."""
    return _index(x, dim, keepdim, True)


def max(x: torch.Tensor, dim: int, keepdim: bool = False) -> Selected:
    """The greatest element along an axis and its index; errors as in :func:`argmax`."""
    return _selected(x, dim, keepdim, False)


def min(x: torch.Tensor, dim: int, keepdim: bool = False) -> Selected:
    """The least element along an axis and its index; errors as in :func:`argmax`."""
    return _selected(x, dim, keepdim, True)


def amax(x: torch.Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    """The greatest element over one axis, several, or (None or empty) all; errors as in :func:`argmax`."""
    return _over(x, dim, keepdim, False)


def amin(x: torch.Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    """The least element; as :func:`amax`."""
    return _over(x, dim, keepdim, True)


def maximum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Element by element the greater, x if they compare equal; broadcasts and promotes as torch does."""
    return _choose(x, y, False)


def minimum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Element by element the lesser, x if they compare equal; broadcasts and promotes as torch does."""
    return _choose(x, y, True)


def relu(x: torch.Tensor) -> torch.Tensor:
    """``maximum(x, +0)``: -0 stays -0, NaN stays NaN."""
    return _choose(x, torch.zeros((), dtype=x.dtype), False)


def clamp(
    x: torch.Tensor, low: float | torch.Tensor | None = None, high: float | torch.Tensor | None = None
) -> torch.Tensor:
    """``minimum(maximum(x, low), high)``; a Python number is used as its nearest value of x's type."""
    for bound, choose in ((low, maximum), (high, minimum)):
        if bound is not None:
            x = choose(x, bound if isinstance(bound, torch.Tensor) else torch.tensor(bound, dtype=x.dtype))
    return x


def sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Selected:
    """Sort along an axis, NaN as the greatest, equal elements by ascending index in both directions.

    Raises:
        UnsupportedError: a floating dtype other than float32, bfloat16, float16.
        IndexError: no such axis.
    """
    indices = argsort(x, dim, descending)
    return Selected(_take(x, axis(x, dim), indices), indices)


def argsort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> torch.Tensor:
    """The indices of :func:`sort`."""
    dim = axis(x, dim)
    if not x.is_floating_point():
        return torch.sort(x, dim=dim, descending=descending, stable=True).indices
    rows = _rows(x, dim)
    keys = torch.sort(_keys(rows, descending), dim=-1, descending=descending).values
    return _back(_indices(keys, descending), x, dim)


def topk(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True) -> Selected:
    """The first k of :func:`sort`, best first: of equal elements at the edge the lowest indices stay.

    Raises:
        UnsupportedError: a floating dtype other than float32, bfloat16, float16.
        IndexError: no such axis, or k is not between 0 and its size.
    """
    dim = axis(x, dim)
    size = x.shape[dim] if x.dim() else 1
    if not 0 <= k <= size:
        raise IndexError(f"topk: k {k} of an axis of {size}")
    if not x.is_floating_point():
        ordered = torch.sort(x, dim=dim, descending=largest, stable=True)
        return Selected(ordered.values.narrow(dim, 0, k), ordered.indices.narrow(dim, 0, k))
    rows = _rows(x, dim)
    keys = torch.topk(_keys(rows, largest), k, dim=-1, largest=largest, sorted=True).values
    indices = _back(_indices(keys, largest), x, dim)
    return Selected(_take(x, dim, indices), indices)


def _rows(x: torch.Tensor, dim: int) -> torch.Tensor:
    """x with one axis moved to the end, contiguous."""
    return (x if x.dim() <= 1 or dim == x.dim() - 1 else x.movedim(dim, -1)).contiguous()


def _back(rows: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    return rows if x.dim() <= 1 or dim == x.dim() - 1 else rows.movedim(-1, dim)


def _take(x: torch.Tensor, dim: int, indices: torch.Tensor) -> torch.Tensor:
    return x.gather(dim, indices) if x.dim() else x.expand(indices.shape).clone()


def _keys(rows: torch.Tensor, descending: bool) -> torch.Tensor:
    source = number(rows.dtype, "sorting")
    keys = torch.empty(rows.shape, dtype=torch.int64)
    n = rows.shape[-1] if rows.dim() else 1
    if keys.numel():
        _sort_keys()(rows.data_ptr(), source, rows.numel() // n, n, descending, keys.data_ptr())
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
    source = number(x.dtype, "argmax")
    rows = _rows(x, dim)
    out = torch.empty(reduced_shape(x, [dim], keepdim), dtype=torch.int64)
    if out.numel():
        _extreme()(rows.data_ptr(), source, out.numel(), n, least, out.data_ptr())
    return out


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
        return torch.empty(shape, dtype=x.dtype)
    return _selected(flat, -1, False, least).values.reshape(reduced_shape(x, dims, keepdim))


def _choose(x: torch.Tensor, y: torch.Tensor, least: bool) -> torch.Tensor:
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        return torch.minimum(x, y) if least else torch.maximum(x, y)
    kind = number(dtype, "a maximum")
    x, y = torch.broadcast_tensors(x.to(dtype), y.to(dtype))  # type: ignore[no-untyped-call]
    one = y.numel() > 0 and not any(y.stride())
    x, y = x.contiguous(), y if one else y.contiguous()
    out = torch.empty(x.shape, dtype=dtype)
    _pick()(x.data_ptr(), y.data_ptr(), kind, out.numel(), not one, least, out.data_ptr())
    return out
