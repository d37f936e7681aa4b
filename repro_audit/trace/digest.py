"""Typed row digests, point digests and Merkle roots: the exact bytes that a manifest binds.

Every digest is typed and domain-separated. Raw bytes collide across shapes and dtypes, a transpose shares its
storage bytes with the original, and order-free hashes collide under permutation.

Formats::

    header       = sorted compact JSON {"dtype":"float32","shape":[576]}
    row key      = BLAKE3("repro-audit row v1" || header), keyed by a 32-byte salt if there is one
    row digest   = BLAKE3 keyed_hash(row key, row bytes): logical C order, little-endian, NaN canonical
    point digest = BLAKE3("repro-audit point v1" || u32le(len(J)) || J || row digests)
                   J = sorted compact JSON {"count","dtype","first","name","shape"}
                   row digests token by token, in a cache point head by head within a token
    leaf, node   = SHA-256(0x00 || data), SHA-256(0x01 || left || right)  (RFC 6962, 2.1)
    sequence root = Merkle root over the point digests in canonical order
    run root      = Merkle root over the sequence roots in request order

The engine hashes rows in bulk with :mod:`repro_kernels.cpu.digest`; this module is the definition, in numpy.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from repro_audit.manifest.canonical import dumps
from repro_audit.trace.record import Digests, RowHeader

ROW_DOMAIN = b"repro-audit row v1"
POINT_DOMAIN = b"repro-audit point v1"

#: dtype name -> bytes an element takes; the names are torch's, without the prefix.
ITEM_SIZES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}

#: float dtype -> (unsigned view, mask of all bits but the sign, largest non-NaN magnitude, canonical NaN).
_NAN: dict[str, tuple[type[np.unsignedinteger[Any]], int, int, int]] = {
    "float8_e4m3fn": (np.uint8, 0x7F, 0x7E, 0x7F),
    "float8_e5m2": (np.uint8, 0x7F, 0x7C, 0x7E),
    "float16": (np.uint16, 0x7FFF, 0x7C00, 0x7E00),
    "bfloat16": (np.uint16, 0x7FFF, 0x7F80, 0x7FC0),
    "float32": (np.uint32, 0x7FFFFFFF, 0x7F800000, 0x7FC00000),
    "float64": (np.uint64, 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF8000000000000),
}


def header_bytes(header: RowHeader) -> bytes:
    """Canonical JSON of a row's dtype and shape."""
    return dumps({"dtype": header.dtype, "shape": list(header.shape)})


def row_key(header: RowHeader, salt: bytes | None = None) -> bytes:
    """The 32-byte key under which rows of this type are hashed.

    Args:
        header: dtype and shape of one row.
        salt: 32 secret bytes of a run with private inputs, or None.

    Raises:
        ValueError: a salt that is not 32 bytes.
    """
    data = ROW_DOMAIN + header_bytes(header)
    if salt is None:
        return blake3(data).digest()
    if len(salt) != 32:
        raise ValueError(f"a salt has 32 bytes, not {len(salt)}")
    return blake3(data, key=salt).digest()


def row_bytes(row: npt.NDArray[np.generic], dtype: str) -> bytes:
    """The bytes of a row that are hashed: logical C order, little-endian, every NaN the positive quiet one.

    Args:
        row: any shape and strides, items as wide as ``dtype``. Types that numpy lacks (bfloat16, float8)
            come as unsigned integers of the same width.
        dtype: the dtype's name, a key of ``ITEM_SIZES``.

    Raises:
        ValueError: an unknown dtype, or items of another width.
    """
    size = ITEM_SIZES.get(dtype)
    if size is None:
        raise ValueError(f"no digest is defined for dtype {dtype!r}")
    if row.dtype.itemsize != size:
        raise ValueError(f"{dtype} takes {size} bytes an element, the array has {row.dtype.itemsize}")
    data = np.ascontiguousarray(row).reshape(-1)
    data = data.astype(data.dtype.newbyteorder("<"), copy=False)
    if dtype in _NAN:
        unsigned, magnitude, largest, canonical = _NAN[dtype]
        bits = data.view(np.dtype(unsigned).newbyteorder("<")).copy()
        bits[(bits & unsigned(magnitude)) > unsigned(largest)] = unsigned(canonical)
        return bits.tobytes()
    return data.tobytes()


def row_digest(row: npt.NDArray[np.generic], dtype: str, *, salt: bytes | None = None) -> bytes:
    """Digest of one row; its shape is the header's shape. See :func:`row_bytes`."""
    key = row_key(RowHeader(dtype, tuple(row.shape)), salt)
    return blake3(row_bytes(row, dtype), key=key).digest()


def row_digests(rows: npt.NDArray[np.generic], dtype: str, *, salt: bytes | None = None) -> Digests:
    """Digests of ``rows[0]``, ``rows[1]`` ...: uint8 [len(rows), 32]."""
    key = row_key(RowHeader(dtype, tuple(rows.shape[1:])), salt)
    out = np.empty((rows.shape[0], 32), dtype=np.uint8)
    for index in range(rows.shape[0]):
        out[index] = np.frombuffer(blake3(row_bytes(rows[index], dtype), key=key).digest(), dtype=np.uint8)
    return out


def tensor_digest(tensor: npt.NDArray[np.generic], dtype: str) -> str:
    """Hex digest of a whole tensor taken as one row; never salted, since weights are compared across runs."""
    return row_digest(tensor, dtype).hex()


def point_digest(name: str, header: RowHeader, first: int, digests: Digests) -> bytes:
    """Digest of one point of one sequence.

    Args:
        name: the point's name.
        header: dtype and shape of one row.
        first: position of ``digests[0]``.
        digests: uint8 [count, 32], or [count, kv_heads, 32] for a cache point.

    Raises:
        ValueError: digests of another dtype or shape.
    """
    if digests.dtype != np.uint8 or digests.ndim not in (2, 3) or digests.shape[-1] != 32:
        raise ValueError(f"row digests are uint8 [count, 32] or [count, heads, 32], not {digests.shape}")
    described = dumps(
        {
            "count": int(digests.shape[0]),
            "dtype": header.dtype,
            "first": first,
            "name": name,
            "shape": list(header.shape),
        }
    )
    hasher = blake3(POINT_DOMAIN)
    hasher.update(struct.pack("<I", len(described)))
    hasher.update(described)
    hasher.update(np.ascontiguousarray(digests).tobytes())
    return hasher.digest()


def leaf_hash(data: bytes) -> bytes:
    """RFC 6962 2.1: hash of a leaf."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """RFC 6962 2.1: hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """RFC 6962 2.1: Merkle Tree Hash of a list of entries; the empty list hashes to SHA-256 of nothing.

    The tree splits at the largest power of two below the number of entries, which is the same as pairing
    neighbours level by level and carrying an odd last node up unchanged.
    """
    if not leaves:
        return hashlib.sha256(b"").digest()
    level = [leaf_hash(leaf) for leaf in leaves]
    while len(level) > 1:
        paired = [node_hash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = paired + level[2 * len(paired) :]
    return level[0]


def sequence_root(point_digests: Sequence[bytes]) -> bytes:
    """Root of one sequence over its point digests in canonical order."""
    return merkle_root(point_digests)


def run_root(sequence_roots: Sequence[bytes]) -> bytes:
    """Root of a run over its sequence roots in request order."""
    return merkle_root(sequence_roots)
