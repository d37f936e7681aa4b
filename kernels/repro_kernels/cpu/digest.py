"""BLAKE3 ``keyed_hash`` of the rows of tensors and arrays, in C, many rows at a time.

A row's bytes are its elements in logical C order, little-endian, every NaN read as the canonical one of its
dtype (sign 0, quiet, no payload). Digests are 32 bytes, those that the ``blake3`` package gives for them.
Rows are read in place where each is contiguous, whatever the strides between rows. No thread count, batch or
instruction set shows in the result. Tests: ``tests/kernels/test_digest.py``.

numpy arrays need no torch. A call costs a few microseconds, so where many small tensors are ready,
:func:`digest_many` hashes them in one.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from repro_kernels.cpu import native
from repro_kernels.errors import UnsupportedError

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

DIGEST_SIZE = 32
KEY_SIZE = 32

_RAW = 0
_KINDS = {
    "float32": 1,
    "complex64": 1,
    "bfloat16": 2,
    "float16": 3,
    "float64": 4,
    "complex128": 4,
    "float8_e5m2": 5,
    "float8_e4m3fn": 6,
    **dict.fromkeys(("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), _RAW),
    # one NaN, or none: nothing to make canonical
    **dict.fromkeys(("float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu"), _RAW),
}
"""Name of a dtype -> how the C code reads it (the enum of blake3.c)."""


def row_digests(values: torch.Tensor | NDArray[Any], key: bytes, *, row_dims: int = 1) -> NDArray[np.uint8]:
    """Digest every row.

    Args:
        values: [rows, ...], or with ``row_dims`` = 2 [outer, inner, ...], whose rows come in C order;
            in the CPU's memory.
        key: 32 bytes.
        row_dims: how many leading dimensions count rows; 0: the whole tensor is one row.

    Returns:
        uint8 [rows, 32].

    Raises:
        UnsupportedError: a dtype without a digest, or a tensor that is not in this machine's memory.
        ValueError: the key is not 32 bytes, or there are fewer dimensions than ``row_dims``.
    """
    return digest_many([(values, key, row_dims)])[0]


def digest_many(
    items: Iterable[tuple[torch.Tensor | NDArray[Any], bytes, int]],
) -> list[NDArray[np.uint8]]:
    """:func:`row_digests` of many (values, key, row_dims) in one call: rows of all items share vector lanes.

    Returns:
        uint8 [rows, 32] per item.

    Raises:
        UnsupportedError, ValueError: as for :func:`row_digests`; nothing is hashed then.
    """
    held = []  # the owners of the memory at the addresses
    jobs = []
    for values, key, row_dims in items:
        key_address, key_buffer = _key(key)
        address, layout, owner = _locate(values, row_dims)
        held.append((owner, key_buffer))
        jobs.append((address, layout, key_address))
    ends = list(itertools.accumulate(layout[0] * layout[1] for _, layout, _ in jobs))
    digests = array("B", bytes(DIGEST_SIZE * ends[-1] if ends else 0))
    fields, out = array("q"), digests.buffer_info()[0]
    for (address, layout, key_address), start in zip(jobs, [0, *ends], strict=False):
        fields.extend((address, *layout, key_address, out + DIGEST_SIZE * start))
    if jobs and _kernel()(fields.buffer_info()[0], len(jobs)) != 0:
        raise MemoryError("no memory for the digests of rows")
    table = np.frombuffer(digests, np.uint8).reshape(-1, DIGEST_SIZE)
    return [table[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@functools.cache
def _kernel() -> Any:
    function = native.fn("row_digests")
    function.restype = ctypes.c_int
    function.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    return function


@functools.lru_cache(maxsize=1024)
def _key(key: bytes) -> tuple[int, ctypes.Array[ctypes.c_uint32]]:
    """The address of a word-aligned copy of the key, and the copy."""
    if len(key) != KEY_SIZE:
        raise ValueError(f"a row key is {KEY_SIZE} bytes, not {len(key)}")
    buffer = (ctypes.c_uint32 * (KEY_SIZE // 4)).from_buffer_copy(key)
    return ctypes.addressof(buffer), buffer


_Layout = tuple[int, int, int, int, int, int]
"""Rows outer and inner, byte stride of each, bytes per row, kind of element: the ``job`` of blake3.c."""


def _locate(values: Any, row_dims: int) -> tuple[int, _Layout, object]:
    """The first row's address, the layout, and the owner of the memory; a copy where rows lie scattered."""
    if isinstance(values, np.ndarray):
        if values.dtype.byteorder == ">":
            values = values.astype(values.dtype.newbyteorder("<"))
        layout = _layout(values.dtype, values.shape, values.strides, 1, row_dims)
        address = values.__array_interface__["data"][0] if layout else 0
    else:
        if not values.is_cpu or values.is_sparse or values.is_quantized:
            raise UnsupportedError(f"the digest of a tensor on {values.device.type}, {values.layout}")
        if values.is_neg() or values.is_conj():
            values = values.resolve_conj().resolve_neg()
        layout = _layout(values.dtype, values.shape, values.stride(), values.dtype.itemsize, row_dims)
        address = values.data_ptr()
    if layout is not None:
        return address, layout, values
    rows, length = math.prod(values.shape[:row_dims]), math.prod(values.shape[row_dims:])
    flat = values.copy(order="C") if isinstance(values, np.ndarray) else values.contiguous()
    return _locate(flat.reshape(rows, length), 1)


@functools.lru_cache(maxsize=4096)
def _layout(
    dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], unit: int, row_dims: int
) -> _Layout | None:
    """The layout where each row is contiguous, else None. ``unit``: bytes per 1 of ``strides``.

    Raises:
        UnsupportedError: the dtype has no digest.
        ValueError: there are fewer dimensions than ``row_dims``.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in _KINDS:
        raise UnsupportedError(f"the digest of a tensor of {name}")
    if len(shape) < row_dims:
        raise ValueError(f"rows over {row_dims} dimensions of a tensor of shape {list(shape)}")
    row_bytes, in_place = dtype.itemsize, row_dims <= 2
    for size, stride in zip(reversed(shape[row_dims:]), reversed(strides[row_dims:]), strict=True):
        in_place = in_place and (stride * unit == row_bytes or size == 1)
        row_bytes *= size
    if not in_place and 0 not in shape:
        return None
    outer, inner = (*shape[:row_dims], 1, 1)[:2] if row_dims <= 2 else (math.prod(shape[:row_dims]), 1)
    outer_stride, inner_stride = (*strides[:row_dims], 0, 0)[:2]
    return outer, inner, outer_stride * unit, inner_stride * unit, row_bytes, _KINDS[name]
