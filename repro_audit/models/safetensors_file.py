"""Reading safetensors files as hostile input: the header bounded and checked, each byte read and hashed once.

Format: https://huggingface.co/docs/safetensors (u64le header length, JSON header, tensors without holes).
Nothing is mapped: the bytes that are hashed are the bytes that the model computes with, and a file that
changes afterwards changes neither. Peak memory is the tensors themselves.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch

from repro_audit.errors import InconclusiveError
from repro_audit.models.digests import tensor_bytes
from repro_audit.models.loaded import FileDigest
from repro_audit.progress import Observer

MAX_HEADER = 100_000_000
_CHUNK = 1 << 24
_DAMAGED = "the file is damaged or incomplete: fetch it again"
_DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@dataclass(frozen=True)
class Entry:
    """One tensor of a file: absolute byte range ``begin`` to ``end``."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """A checked header: entries in file order, covering every byte from ``data_start`` to ``size``."""

    entries: tuple[Entry, ...]
    data_start: int
    size: int


def read_header(path: Path, name: str) -> Header:
    """Read and check a file's header.

    Args:
        path: the file.
        name: how errors call it.

    Raises:
        InconclusiveError: the header is zeroed, malformed, too large, or does not cover the file exactly
            (truncated file, trailing bytes), or a dtype lies outside the contract.
    """
    with path.open("rb") as file:
        return _parse(file, os.fstat(file.fileno()).st_size, name)


def read_tensors(
    path: Path, name: str, observer: Observer, keep: Callable[[str], bool] = lambda _: True
) -> tuple[dict[str, torch.Tensor], FileDigest]:
    """Read every tensor whose name ``keep`` accepts, and the SHA-256 of the whole file, in one pass.

    Returns:
        The tensors, in memory of their own, and the file's digest.

    Raises:
        InconclusiveError: as :func:`read_header`, or the file shrank while it was read.
    """
    tensors: dict[str, torch.Tensor] = {}
    sha = hashlib.sha256()
    # One hashing thread beside the reading one: SHA-256 (1.8 GB/s) hides behind the copy, in order.
    with path.open("rb", buffering=0) as file, ThreadPoolExecutor(1) as hashing:
        header = _parse(file, os.fstat(file.fileno()).st_size, name)
        file.seek(0)
        sha.update(_read(file, memoryview(bytearray(header.data_start)), name))
        scratch = memoryview(bytearray(_CHUNK))
        for entry in header.entries:
            if keep(entry.name):
                tensor = torch.empty(entry.shape, dtype=entry.dtype)
                tensors[entry.name] = tensor
                target = tensor_bytes(tensor)
                for start in range(0, len(target), _CHUNK):
                    piece = _read(file, target[start : start + _CHUNK], name)
                    hashing.submit(sha.update, piece)
                    observer.advance(len(piece))
            else:
                for start in range(entry.begin, entry.end, _CHUNK):
                    piece = _read(file, scratch[: min(_CHUNK, entry.end - start)], name)
                    hashing.submit(sha.update, piece).result()
                    observer.advance(len(piece))
    return tensors, FileDigest(name, sha.hexdigest(), header.size)


def _read(file: BinaryIO, target: memoryview, name: str) -> memoryview:
    done = 0
    while done < len(target):
        count = file.readinto(target[done:])  # type: ignore[attr-defined]
        if not count:
            raise InconclusiveError(f"{name} ended while it was being read", hint=_DAMAGED)
        done += count
    return target


def _parse(file: BinaryIO, size: int, name: str) -> Header:
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length == 0:
        raise InconclusiveError(f"{name} has no safetensors header (empty, or zeroed)", hint=_DAMAGED)
    if length > min(MAX_HEADER, size - 8):
        raise InconclusiveError(
            f"{name} says its header has {length} bytes, more than the file holds or the format allows",
            hint=_DAMAGED,
        )
    raw = file.read(length)
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise InconclusiveError(f"{name} has a damaged header ({error})", hint=_DAMAGED) from error
    if not isinstance(header, dict):
        raise InconclusiveError(f"{name} has a header that is not an object", hint=_DAMAGED)
    start = 8 + length
    entries = [_entry(key, value, start, name) for key, value in header.items() if key != "__metadata__"]
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    reached = start
    for entry in entries:
        if entry.begin != reached:
            raise InconclusiveError(
                f"{name}: tensor {entry.name} does not start where the one before it ends", hint=_DAMAGED
            )
        reached = entry.end
    if reached > size:
        raise InconclusiveError(
            f"{name} is truncated: {size} bytes where its header needs {reached}", hint=_DAMAGED
        )
    if reached < size:
        raise InconclusiveError(
            f"{name} has {size - reached} trailing bytes that belong to no tensor", hint=_DAMAGED
        )
    return Header(tuple(entries), start, size)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


def _entry(key: str, value: object, start: int, name: str) -> Entry:
    if not key.isprintable() or len(key) > 1000:
        raise InconclusiveError(f"{name} holds a tensor whose name cannot be printed", hint=_DAMAGED)
    if not isinstance(value, dict):
        raise InconclusiveError(f"{name}: tensor {key} has no description", hint=_DAMAGED)
    code, shape, offsets = value.get("dtype"), _sizes(value.get("shape")), _sizes(value.get("data_offsets"))
    if shape is None or offsets is None or len(offsets) != 2 or not isinstance(code, str):
        raise InconclusiveError(f"{name}: tensor {key} has a malformed description", hint=_DAMAGED)
    if code not in _DTYPES:
        raise InconclusiveError(
            f"{name}: tensor {key} has dtype {code}, outside the contract",
            hint="use a checkpoint in float32, bfloat16 or float16; others are not covered",
        )
    dtype = _DTYPES[code]
    begin, end = offsets
    if end - begin != prod(shape) * dtype.itemsize:
        raise InconclusiveError(f"{name}: tensor {key} has a size that is not its shape's", hint=_DAMAGED)
    return Entry(key, dtype, shape, start + begin, start + end)


def _sizes(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) > 16:
        return None
    sizes = tuple(item for item in value if type(item) is int and 0 <= item < 1 << 48)
    return sizes if len(sizes) == len(value) else None
