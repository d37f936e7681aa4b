"""Typed digests of whole tensors, and the search for NaN and Inf. Only integer views of floats are compared.

The digest of a tensor is the row digest of the whole tensor taken as one row (manifest.md): BLAKE3 keyed_hash
under the row key of its dtype and shape, over its elements in logical C order, little-endian.
"""

from __future__ import annotations

import hashlib
import json
import sys
from math import isnan
from typing import Any

import blake3
import numpy as np
import torch

from repro_audit.trace.digest import row_key
from repro_audit.trace.record import RowHeader, TensorDigest

#: Elements looked at together: what fits the cache.
_CHUNK = 1 << 16
#: dtype -> (unsigned view, mask of all bits but the sign, magnitude of Inf)
_FLOAT_BITS: dict[torch.dtype, tuple[type[np.unsignedinteger[Any]], int, int]] = {
    torch.float32: (np.uint32, 0x7FFFFFFF, 0x7F800000),
    torch.bfloat16: (np.uint16, 0x7FFF, 0x7F80),
    torch.float16: (np.uint16, 0x7FFF, 0x7C00),
}

if sys.byteorder != "little":
    raise ImportError("repro-audit hashes tensors little-endian and runs on little-endian machines only")


def dtype_name(dtype: torch.dtype) -> str:
    """The dtype as torch prints it, without the prefix: ``bfloat16``."""
    return str(dtype).removeprefix("torch.")


def canonical(value: Any) -> bytes:
    """Sorted compact ASCII JSON; the value's strings and numbers only, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def sha256_of(value: Any) -> str:
    """SHA-256 hex of the value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """The elements' bytes in logical C order; a view when the tensor is contiguous, else of a copy."""
    flat = tensor.detach().contiguous().reshape(-1)
    data: Any = flat.view(torch.uint8).numpy()
    return memoryview(data)


def tensor_digest(name: str, tensor: torch.Tensor) -> TensorDigest:
    """Typed digest of one tensor of any dtype and shape, free of NaN (see :func:`first_bad`)."""
    dtype, shape = dtype_name(tensor.dtype), tuple(tensor.shape)
    hasher = blake3.blake3(key=row_key(RowHeader(dtype, shape)), max_threads=blake3.blake3.AUTO)
    hasher.update(tensor_bytes(tensor))
    return TensorDigest(name, dtype, shape, hasher.hexdigest())


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have the same dtype, shape and bits (+0 and -0 differ, equal NaNs do not)."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.data_ptr() == b.data_ptr() and a.stride() == b.stride():
        return True
    left, right = (np.frombuffer(tensor_bytes(t), dtype=np.uint8) for t in (a, b))
    step = _CHUNK * 4
    return all(
        np.array_equal(left[start : start + step], right[start : start + step])
        for start in range(0, left.size, step)
    )


def first_bad(tensor: torch.Tensor, *, nan_only: bool = False) -> int | None:
    """Flat index, in logical C order, of the first NaN or (unless ``nan_only``) Inf; None without one."""
    if tensor.dtype not in _FLOAT_BITS:
        return None
    unsigned, magnitude, infinity = _FLOAT_BITS[tensor.dtype]
    flat = np.frombuffer(tensor_bytes(tensor), dtype=unsigned)
    bits = np.empty(min(_CHUNK, flat.size), dtype=unsigned)
    worst = infinity + 1 if nan_only else infinity
    for start in range(0, flat.size, _CHUNK):
        piece = flat[start : start + _CHUNK]
        masked = np.bitwise_and(piece, unsigned(magnitude), out=bits[: piece.size])
        if int(masked.max()) >= worst:
            return start + int(np.argmax(masked >= worst))
    return None


def describe_bad(name: str, tensor: torch.Tensor, *, nan_only: bool = False) -> str | None:
    """What is wrong with a weight that holds NaN or (unless ``nan_only``) Inf: tensor, value, flat index."""
    index = first_bad(tensor, nan_only=nan_only)
    if index is None:
        return None
    value = float(tensor.detach().reshape(-1)[index])
    what = "NaN" if isnan(value) else ("Inf" if value > 0 else "-Inf")
    return f"weight {name} holds {what} at flat index {index}"
