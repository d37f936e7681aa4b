"""Additions through an index under profile ``fp32`` on CPU tensors.

The bit contract (``repro_kernels.spec.index``): the destination's value first, source elements in ascending
index order along the axis, each addition rounded once to the destination's type; never atomics. Duplicates
are therefore exactly defined. Tests: ``tests/kernels/test_index.py``.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from repro_kernels.arguments import checked_index, require_index_add, require_scatter_add, same_type
from repro_kernels.cpu import native
from repro_kernels.cpu.layout import along, axis


@functools.cache
def _index_add() -> Any:
    function = native.fn("index_add")
    pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    function.argtypes = [pointer, integer, pointer, pointer, size, size, size, size, ctypes.c_float]
    function.restype = None
    return function


@functools.cache
def _scatter_add() -> Any:
    function = native.fn("scatter_add")
    pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    function.argtypes = [pointer, integer, pointer, pointer, size, size, size, size]
    function.restype = None
    return function


def index_add(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1.0
) -> torch.Tensor:
    """A copy of x to whose slice index_i ``RN(alpha * source_i)`` is added, i ascending, ``RN_x`` each time.

    Args:
        x: float32, bfloat16 or float16.
        dim: the axis that `index` indexes.
        index: int64 or int32 [n].
        source: x's shape and dtype, but n along `dim`.
        alpha: used as its nearest float.

    Raises:
        UnsupportedError: another dtype, or two dtypes.
        ValueError: the shapes do not fit.
        IndexError: no such axis, or an index out of range.
    """
    dim = axis(x, dim)
    kind = same_type("index_add", x, source)
    if x.dim() == 0:
        return index_add(x.view(1), 0, index.view(-1), source.view(-1), alpha=alpha).view(())
    require_index_add(x, dim, index, source)
    indices = checked_index(index, x.shape[dim])
    result = x.clone(memory_format=torch.contiguous_format)
    data, outer, n, inner = along(source, dim)
    if data.numel():
        _index_add()(
            *(result.data_ptr(), kind, indices.data_ptr(), data.data_ptr()),
            *(outer, x.shape[dim], n, inner, alpha),
        )
    return result


def scatter_add(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """A copy of x with source added at the places that index names along `dim`, ascending along `dim`.

    Args:
        x: float32, bfloat16 or float16.
        dim: the axis that the elements of `index` index.
        index: int64; no larger than `source` along any axis, nor than x along the other axes.
        source: x's dtype; only the part that `index` covers is read.

    Raises:
        UnsupportedError: another dtype, or two dtypes.
        ValueError: the shapes do not fit.
        IndexError: no such axis, or an index out of range.
    """
    dim = axis(x, dim)
    kind = same_type("scatter_add", x, source)
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
    data, outer, n, inner = along(part, dim)
    _scatter_add()(
        *(work.data_ptr(), kind, indices.data_ptr(), data.data_ptr(), outer, x.shape[dim], n, inner)
    )
    if work.data_ptr() != result.data_ptr():
        covered.copy_(work)
    return result
