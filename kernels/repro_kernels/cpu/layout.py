"""How the row kernels see a tensor: [outer, n, inner] in C order, worked along the middle axis."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from repro_kernels.cpu import native
from repro_kernels.errors import KernelError, UnsupportedError

DTYPES = {getattr(torch, name): number for name, number in native.DTYPES.items()}
"""torch dtype -> its number in the C sources."""


@functools.cache
def kernel(name: str) -> Any:
    """A C function that takes one packed record (csrc/reduce.h says why); nonzero means no memory."""
    function = native.fn(name)
    function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_int
    return function


class Layout(NamedTuple):
    """A contiguous tensor and its three sizes."""

    data: torch.Tensor
    outer: int
    n: int
    inner: int


def number(dtype: torch.dtype, operation: str) -> int:
    """The C number of a floating dtype.

    Raises:
        UnsupportedError: any other dtype.
    """
    found = DTYPES.get(dtype)
    if found is None:
        raise UnsupportedError(f"{operation} of {dtype}")
    return found


def axis(x: torch.Tensor, dim: int) -> int:
    """`dim` as torch counts it, from 0; a 0-d tensor has one axis.

    Raises:
        IndexError: there is no such axis.
    """
    rank = x.dim() or 1
    if not -rank <= dim < rank:
        raise IndexError(f"dim {dim} is out of range for {x.dim()} axes")
    return dim % rank


def along(x: torch.Tensor, dim: int) -> Layout:
    """x seen along one axis; the layout keeps the order of the axes."""
    x = x.contiguous()
    if x.dim() == 0:
        return Layout(x, 1, 1, 1)
    shape = x.shape
    return Layout(x, math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))


def across(x: torch.Tensor, dims: Sequence[int]) -> Layout:
    """x seen across several axes, flattened in logical C order: in place if neighbours, else moved last.

    Args:
        x: the tensor, at least one axis.
        dims: ascending axes, none twice.
    """
    first, last = dims[0], dims[-1]
    if first == x.dim() - 1 and x.shape[-1]:  # the common case, in few calls
        x = x.contiguous()
        n = x.shape[-1]
        return Layout(x, x.numel() // n, n, 1)
    if last - first + 1 == len(dims):
        x = x.contiguous()
        shape = x.shape
        return Layout(
            x, math.prod(shape[:first]), math.prod(shape[first : last + 1]), math.prod(shape[last + 1 :])
        )
    kept = [d for d in range(x.dim()) if d not in dims]
    moved = x.permute(*kept, *dims).contiguous()
    return Layout(moved, math.prod(x.shape[d] for d in kept), math.prod(x.shape[d] for d in dims), 1)


def reduced_shape(x: torch.Tensor, dims: Sequence[int], keepdim: bool) -> list[int]:
    """The result's shape when `dims`, ascending, are reduced."""
    shape = list(x.shape)
    for d in reversed(dims if shape else ()):
        shape[d : d + 1] = [1] if keepdim else []
    return shape


def check(failed: int, operation: str) -> None:
    """Raise if a kernel reports that it had no memory.

    Raises:
        KernelError: it did.
    """
    if failed:
        raise KernelError(f"{operation}: out of memory")
