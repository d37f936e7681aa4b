"""BLAKE3 ``keyed_hash`` of the rows of CUDA tensors: the digests of ``repro_kernels.cpu.digest``.

Rows are read where they lie if each is contiguous and all start at multiples of 16 bytes; others are copied
side by side first. Small tensors are gathered into one run of bytes, so that a launch hashes all of them, and
another their trees: a tensor of few rows alone would leave most of a GPU idle.

What a launch needs to know of shapes and keys lies in tables on the device, made when a batch is new and kept
for when it comes again. Then nothing is waited for and nothing is copied from the host, so that a call can be
captured in a CUDA graph; whoever replays it keeps the :class:`Batch`. Tests: ``tests/gpu/cases_digest.py``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from repro_kernels.errors import UnsupportedError
from repro_kernels.gpu import blake3
from repro_kernels.gpu.runtime import device_of, launch

DIGEST_SIZE = 32
KEY_SIZE = 32
GATHERED = 1 << 20
"""Tensors of at most this many bytes are gathered."""

_ALIGNED = 16
"""Rows start at multiples of this many bytes, and are padded to them."""

_PACKED = 64
"""Joins of the lowest level that a program of the trees is given, if rows are short enough for several."""

_RAW = (0, 0, 0)
_NAN: dict[torch.dtype, tuple[int, int, int]] = {
    torch.float32: (0x80000000, 0x007FFFFF, 0x7FC00000),
    torch.bfloat16: (0x80008000, 0x007F007F, 0x7FC07FC0),
    torch.float16: (0x80008000, 0x03FF03FF, 0x7E007E00),
    torch.float8_e5m2: (0x80808080, 0x03030303, 0x7E7E7E7E),
    torch.float8_e4m3fn: (0x80808080, 0x01010101, 0x7F7F7F7F),
    torch.complex64: (0x80000000, 0x007FFFFF, 0x7FC00000),
}
"""How NaN is found in a word, as ``blake3.ITEM_FIELDS`` says; float64 is made canonical before."""

_DTYPES = {
    *_NAN, torch.float64, torch.complex128, torch.bool, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.float8_e5m2fnuz, torch.float8_e4m3fnuz, torch.float8_e8m0fnu,
}  # fmt: skip


class Rows(NamedTuple):
    """Where the rows of an item lie; a hashable description that says nothing of addresses.

    Attributes:
        outer, inner: the rows are outer x inner, in C order.
        outer_stride, inner_stride: bytes between them.
        row_bytes: bytes of a row.
        nan: the dtype's entry of the table of NaNs, or zeros.
        key: 32 bytes.
    """

    outer: int
    inner: int
    outer_stride: int
    inner_stride: int
    row_bytes: int
    nan: tuple[int, int, int]
    key: bytes

    @property
    def rows(self) -> int:
        """How many rows."""
        return self.outer * self.inner

    @property
    def chunks(self) -> int:
        """Chunks of a row; an empty row has one."""
        return max(1, -(-self.row_bytes // blake3.CHUNK))

    @property
    def bytes(self) -> int:
        """Bytes of all rows, padded and side by side."""
        return self.rows * -(-self.row_bytes // _ALIGNED) * _ALIGNED


def row_digests(values: torch.Tensor, key: bytes, *, row_dims: int = 1) -> torch.Tensor:
    """Digest every row: :func:`repro_kernels.cpu.digest.row_digests`, on the tensor's device.

    Returns:
        uint8 [rows, 32].
    """
    return digest_many([(values, key, row_dims)])[0]


def digest_many(items: Iterable[tuple[torch.Tensor, bytes, int]]) -> list[torch.Tensor]:
    """:func:`row_digests` of many (values, key, row_dims): :func:`repro_kernels.cpu.digest.digest_many`.

    Returns:
        uint8 [rows, 32] per item, views of one tensor.
    """
    batch, tensors = prepare(items)
    digests = batch.run(tensors)
    return [digests[start : start + rows] for start, rows in zip(batch.starts, batch.counts, strict=True)]


def prepare(items: Iterable[tuple[torch.Tensor, bytes, int]]) -> tuple[Batch, list[torch.Tensor]]:
    """The batch of some items, and what its :meth:`Batch.run` takes.

    Raises:
        UnsupportedError: a dtype without a digest, or a tensor that is not on a GPU.
        ValueError: a key is not 32 bytes, or there are fewer dimensions than ``row_dims``.
    """
    located = [_locate(values, key, row_dims) for values, key, row_dims in items]
    tensors = [tensor for tensor, _ in located]
    device = device_of(*tensors) if tensors else torch.device("cpu")
    return _batch(device, tuple(rows for _, rows in located)), tensors


class Batch:
    """Items of given shapes, types and keys: their tables on a device.

    Args:
        device: where the tensors will be.
        rows: per item.

    Attributes:
        starts: per item, where its digests begin in what :meth:`run` returns.
        counts: per item, how many rows it has.
    """

    def __init__(self, device: torch.device, rows: Sequence[Rows]) -> None:
        small = [index for index, item in enumerate(rows) if item.bytes <= GATHERED]
        # A single tensor needs no gathering, whatever its size.
        self._gathered = small if len(small) > 1 else []
        apart = set(range(len(rows))).difference(self._gathered)
        self._device = device
        self._alone = [(index, _alone(device, rows[index])) for index in sorted(apart)]
        self._together = _Launch(device, [rows[index] for index in self._gathered], packed=True)
        self.counts = tuple(item.rows for item in rows)
        starts, self._total = [0] * len(rows), 0
        for index in (*self._gathered, *sorted(apart)):
            starts[index] = self._total
            self._total += self.counts[index]
        self.starts = tuple(starts)

    def run(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Digests of tensors as :func:`prepare` returned them: uint8 [rows of all items, 32]."""
        digests = torch.empty((self._total, DIGEST_SIZE // 4), dtype=torch.int32, device=self._device)
        for index, work in self._alone:
            work.run(tensors[index], digests[self.starts[index] :])
        if self._gathered:
            flat = torch.cat([tensors[index].reshape(-1) for index in self._gathered])
            self._together.run(flat, digests)
        return digests.view(torch.uint8)


class _Launch:
    """Items in one run of memory: the tables of the launch for their chunks, and of those for their trees.

    Args:
        device: where.
        rows: per item.
        packed: the items lie side by side without gaps, whatever their strides were.
    """

    def __init__(self, device: torch.device, rows: Sequence[Rows], *, packed: bool) -> None:
        self._device = device
        keys = list(dict.fromkeys(item.key for item in rows))
        place = {key: index for index, key in enumerate(keys)}
        self._keys = _upload(np.frombuffer(b"".join(keys), np.int32), device)
        items = np.zeros((len(rows), blake3.ITEM_FIELDS), np.int64)
        trees: list[tuple[int, int, int, int, int]] = []  # first node, nodes per row, rows, key, first digest
        offset = nodes = digests = 0
        for fields, item in zip(items, rows, strict=True):
            padded = -(-item.row_bytes // _ALIGNED) * _ALIGNED
            strides = (padded * item.inner, padded) if packed else (item.outer_stride, item.inner_stride)
            lanes, key = item.rows * item.chunks, place[item.key]
            if lanes >= 2**31:
                raise UnsupportedError(f"digests of {item.rows} rows of {item.row_bytes} bytes at once")
            first = digests if item.chunks == 1 else nodes
            fields[:] = (
                offset, item.inner, strides[0] // 4, strides[1] // 4, item.chunks, item.row_bytes, lanes, key,
                first, *item.nan,
            )  # fmt: skip
            if item.chunks > 1:
                trees.append((nodes, item.chunks, item.rows, key, digests))
                nodes += lanes
            digests += item.rows
            offset += padded * item.rows // 4
        self._chunks = self._tables(items, items[:, 6], np.full(len(rows), blake3.LANES), counted=False)
        self._levels: list[tuple[torch.Tensor, torch.Tensor]] = []
        while trees:
            level, following = [], []
            for source, count, of, key, digest in trees:
                groups = -(-count // blake3.GROUP)
                last = groups == 1
                level.append((source, count, groups, of * groups, key, digest if last else nodes, last))
                if not last:
                    following.append((nodes, groups, of, key, digest))
                    nodes += of * groups
            table = np.array(level, np.int64)
            pairs = np.minimum(table[:, 1] + 1, blake3.GROUP) // 2
            share = np.maximum(1, _PACKED // pairs)
            self._levels.append(self._tables(table, table[:, 3], share, counted=True))
            trees = following
        self._nodes = nodes

    def _tables(
        self, items: Any, lanes: Any, share: Any, *, counted: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Items and programs on the device: each program has `share` of an item's lanes, or groups."""
        programs = -(-lanes // share)
        owner = np.repeat(np.arange(len(items)), programs)
        turn = np.arange(len(owner)) - np.repeat(np.cumsum(programs) - programs, programs)
        first = turn * share[owner]
        columns = [owner, first]
        if counted:
            columns.append(np.minimum(share[owner], lanes[owner] - first))
        table = np.stack(columns, axis=1).astype(np.int32)
        return _upload(items, self._device), _upload(table, self._device)

    def run(self, data: torch.Tensor, digests: torch.Tensor) -> None:
        """Digest the rows in memory that begins with a tensor's; digests: int32 [at least the rows, 8]."""
        nodes = digests
        if self._nodes:
            nodes = torch.empty((self._nodes, DIGEST_SIZE // 4), dtype=torch.int32, device=self._device)
        how: dict[str, Any] = {"LANES": blake3.LANES, "num_warps": blake3.LANES // 32}
        items, programs = self._chunks
        launch(
            blake3.chunks, len(programs), data, items, programs, self._keys, nodes, digests,
            FIELDS=blake3.ITEM_FIELDS, VECTOR=blake3.VECTOR, **how,
        )  # fmt: skip
        for items, programs in self._levels:
            launch(
                blake3.parents, len(programs), nodes, items, programs, self._keys, digests,
                FIELDS=blake3.GROUP_FIELDS, GROUP=blake3.GROUP, **how,
            )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _alone(device: torch.device, rows: Rows) -> _Launch:
    return _Launch(device, [rows], packed=False)


@functools.lru_cache(maxsize=256)
def _batch(device: torch.device, rows: tuple[Rows, ...]) -> Batch:
    return Batch(device, rows)


def _upload(array: Any, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.array(array)).to(device)


def _locate(values: torch.Tensor, key: bytes, row_dims: int) -> tuple[torch.Tensor, Rows]:
    """The rows as 4-byte words [outer, inner, words], in place where they can be, and what they are.

    The words of a row are a multiple of four, with zeros behind the row's end.
    """
    if len(key) != KEY_SIZE:
        raise ValueError(f"a row key is {KEY_SIZE} bytes, not {len(key)}")
    if values.dtype not in _DTYPES or values.is_sparse or values.is_quantized:
        raise UnsupportedError(f"the digest of a tensor of {str(values.dtype).removeprefix('torch.')}")
    if values.dim() < row_dims:
        raise ValueError(f"rows over {row_dims} dimensions of a tensor of shape {list(values.shape)}")
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    if values.is_neg():
        values = values.resolve_neg()
    if values.dtype is torch.float64:
        values = _canonical(values)
    rows = _place(values.dtype, values.shape, values.stride(), row_dims, key)
    if rows is not None and values.data_ptr() % _ALIGNED == 0:
        size = values.dtype.itemsize
        shape = rows.outer, rows.inner, rows.row_bytes // size
        found = values.as_strided(shape, (rows.outer_stride // size, rows.inner_stride // size, 1))
        return found.view(torch.int32), rows
    count, length = math.prod(values.shape[:row_dims]), math.prod(values.shape[row_dims:])
    row_bytes = length * values.dtype.itemsize
    flat = values.contiguous().reshape(count, length).view(torch.uint8).reshape(count, row_bytes)
    padded = -(-row_bytes // _ALIGNED) * _ALIGNED
    held = flat.new_zeros(count, 1, max(padded, _ALIGNED))
    held[:, 0, :row_bytes] = flat
    return held.view(torch.int32)[..., : padded // 4], Rows(
        count, 1, padded, padded, row_bytes, _NAN.get(values.dtype, _RAW), key
    )


@functools.lru_cache(maxsize=4096)
def _place(
    dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], row_dims: int, key: bytes
) -> Rows | None:
    """The rows where they lie; None if they cannot be read there."""
    if row_dims > 2 or 0 in shape:
        return None
    size = row_bytes = dtype.itemsize
    for length, stride in zip(reversed(shape[row_dims:]), reversed(strides[row_dims:]), strict=True):
        if stride * size != row_bytes and length != 1:
            return None
        row_bytes *= length
    outer, inner = (1, 1, *shape[:row_dims])[-2:]
    outer_stride, inner_stride = (
        stride * size if length > 1 else row_bytes
        for stride, length in zip((0, 0, *strides[:row_dims])[-2:], (outer, inner), strict=True)
    )
    if row_bytes % _ALIGNED or outer_stride % _ALIGNED or inner_stride % _ALIGNED:
        return None
    return Rows(outer, inner, outer_stride, inner_stride, row_bytes, _NAN.get(dtype, _RAW), key)


def _canonical(values: torch.Tensor) -> torch.Tensor:
    """float64 with the canonical NaN for every NaN, by integers."""
    bits = values.contiguous().view(torch.int64)
    nan = (bits & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000
    return torch.where(nan, 0x7FF8000000000000, bits).view(torch.float64)


BUILDS = blake3.BUILDS
"""The kernels are those of ``blake3``."""
