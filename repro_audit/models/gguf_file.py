"""Reading a GGUF file as hostile input: metadata, tensor table, and the tensors' raw bytes, each hashed once.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian. gguf-py's
own reader takes seconds for a vocabulary and trusts every length; its tables and dequantisers are used here,
its reader is not.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.models.loaded import FileDigest
from repro_audit.progress import Observer

_DAMAGED = "the file is damaged or incomplete: fetch it again"
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_COUNT = 1 << 20
_CHUNK = 1 << 24
#: Quantisations whose dequantiser is taken from gguf-py; every other is refused by name.
SUPPORTED = frozenset(
    "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS".split()  # noqa: SIM905
)

Raw = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class GgufTensor:
    """One tensor: shape in torch's order (slowest first), ggml type name, absolute byte range."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    begin: int
    end: int


@dataclass(frozen=True)
class GgufFile:
    """A checked header.

    Attributes:
        metadata: values by key; strings are str, arrays lists.
        spans: absolute byte range of each value, for digests of exactly what the file says.
        tensors: in file order.
        size: of the whole file.
    """

    metadata: dict[str, Any]
    spans: dict[str, tuple[int, int]]
    tensors: tuple[GgufTensor, ...]
    size: int


def gguf_module() -> Any:
    """The gguf package.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import gguf
    except ImportError as error:
        raise UsageError(
            "reading GGUF needs the gguf package", hint="pip install 'repro-audit[gguf]'"
        ) from error
    return gguf


def read_gguf(path: Path, name: str) -> GgufFile:
    """Parse and check the header.

    Raises:
        InconclusiveError: not a little-endian GGUF of version 2 or 3, malformed, truncated, with trailing
            bytes, or with a quantisation outside :data:`SUPPORTED`.
    """
    size = path.stat().st_size
    if size < 24:
        raise InconclusiveError(f"{name} is too short to be a GGUF file", hint=_DAMAGED)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        try:
            return _Parser(view, size, name).parse()
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise InconclusiveError(f"{name} has a damaged GGUF header ({error})", hint=_DAMAGED) from error


def read_raw(
    path: Path, name: str, gguf: GgufFile, observer: Observer, take: Callable[[GgufTensor, Raw], None]
) -> FileDigest:
    """Read the file once from start to end, hashing all of it and handing over each tensor's bytes.

    Args:
        take: called in file order with an array that it may keep.

    Raises:
        InconclusiveError: the file shrank while it was read.
    """
    sha = hashlib.sha256()
    with path.open("rb", buffering=0) as file, ThreadPoolExecutor(1) as hashing:

        def fetch(count: int) -> Raw:
            target = np.empty(count, dtype=np.uint8)
            view = target.data
            done = 0
            while done < count:
                got = file.readinto(view[done : done + _CHUNK])
                if not got:
                    raise InconclusiveError(f"{name} ended while it was being read", hint=_DAMAGED)
                hashing.submit(sha.update, view[done : done + got])
                observer.advance(got)
                done += got
            return target

        position = 0
        for tensor in gguf.tensors:
            fetch(tensor.begin - position)
            take(tensor, fetch(tensor.end - tensor.begin))
            position = tensor.end
        fetch(gguf.size - position)
    return FileDigest(name, sha.hexdigest(), gguf.size)


def value_digest(path: Path, gguf: GgufFile, keys: list[str]) -> str:
    """SHA-256 hex over the named metadata entries, key and raw value, in the order given."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        for key in keys:
            begin, end = gguf.spans[key]
            file.seek(begin)
            sha.update(
                struct.pack("<QQ", len(key.encode()), end - begin) + key.encode() + file.read(end - begin)
            )
    return sha.hexdigest()


class _Parser:
    def __init__(self, view: mmap.mmap, size: int, name: str) -> None:
        self._view = view
        self._size = size
        self._name = name
        self._at = 0

    def parse(self) -> GgufFile:
        if self._view[:4] != b"GGUF":
            raise InconclusiveError(
                f"{self._name} is not a GGUF file (its first bytes are not GGUF)", hint=_DAMAGED
            )
        self._at = 4
        version, tensor_count, value_count = self._unpack("<IQQ")
        if version not in (2, 3):
            raise InconclusiveError(
                f"{self._name} is GGUF version {version}, or big-endian",
                hint="convert it to version 3, little-endian",
            )
        if tensor_count > _MAX_COUNT or value_count > _MAX_COUNT:
            raise InconclusiveError(f"{self._name} has an impossible number of entries", hint=_DAMAGED)
        metadata: dict[str, Any] = {}
        spans: dict[str, tuple[int, int]] = {}
        for _ in range(value_count):
            key = self._name_string()
            if key in metadata:
                raise InconclusiveError(f"{self._name} states {key} twice", hint=_DAMAGED)
            begin = self._at
            (kind,) = self._unpack("<I")
            metadata[key] = self._value(kind)
            spans[key] = (begin, self._at)
        tensors = self._tensors(tensor_count, metadata.get("general.alignment", 32))
        return GgufFile(metadata, spans, tensors, self._size)

    def _unpack(self, pattern: str) -> tuple[Any, ...]:
        values = struct.unpack_from(pattern, self._view, self._at)
        self._at += struct.calcsize(pattern)
        return values

    def _string(self) -> str:
        (length,) = self._unpack("<Q")
        if length > self._size - self._at:
            raise InconclusiveError(f"{self._name} has a string longer than the file", hint=_DAMAGED)
        text = self._view[self._at : self._at + length].decode("utf-8")
        self._at += length
        return text

    def _name_string(self) -> str:
        text = self._string()
        if not text.isprintable() or len(text) > 1000:
            raise InconclusiveError(f"{self._name} has an entry whose name cannot be printed", hint=_DAMAGED)
        return text

    def _value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self._unpack("<" + _SCALARS[kind])[0]
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            raise InconclusiveError(f"{self._name} has a value of unknown type {kind}", hint=_DAMAGED)
        element, count = self._unpack("<IQ")
        if count > self._size - self._at:
            raise InconclusiveError(f"{self._name} has an array longer than the file", hint=_DAMAGED)
        if element in _SCALARS:
            return list(self._unpack(f"<{count}{_SCALARS[element]}"))
        if element != _STRING:
            raise InconclusiveError(f"{self._name} has an array of unknown type {element}", hint=_DAMAGED)
        return [self._string() for _ in range(count)]

    def _tensors(self, count: int, alignment: Any) -> tuple[GgufTensor, ...]:
        if not (isinstance(alignment, int) and 0 < alignment <= 1 << 20):
            raise InconclusiveError(f"{self._name} has an impossible alignment", hint=_DAMAGED)
        table: list[tuple[str, tuple[int, ...], str, int, int]] = []
        names: set[str] = set()
        for _ in range(count):
            name = self._name_string()
            (dimensions,) = self._unpack("<I")
            if dimensions > 8 or name in names:
                raise InconclusiveError(
                    f"{self._name}: tensor {name} is malformed or listed twice", hint=_DAMAGED
                )
            names.add(name)
            shape = tuple(reversed(self._unpack(f"<{dimensions}Q")))
            type_id, offset = self._unpack("<IQ")
            type_name, nbytes = self._storage(name, type_id, shape)
            table.append((name, shape, type_name, offset, nbytes))
        start = self._at + -self._at % alignment
        reached, tensors = start, []
        for name, shape, type_name, offset, nbytes in sorted(table, key=lambda row: row[3]):
            if start + offset != reached + -reached % alignment:
                raise InconclusiveError(
                    f"{self._name}: tensor {name} does not start where the one before it ends", hint=_DAMAGED
                )
            reached = start + offset + nbytes
            tensors.append(GgufTensor(name, shape, type_name, start + offset, reached))
        if reached > self._size:
            raise InconclusiveError(
                f"{self._name} is truncated: {self._size} bytes where its header needs {reached}",
                hint=_DAMAGED,
            )
        if self._size not in (reached, reached + -reached % alignment):
            raise InconclusiveError(
                f"{self._name} has {self._size - reached} trailing bytes that belong to no tensor",
                hint=_DAMAGED,
            )
        return tuple(tensors)

    def _storage(self, name: str, type_id: int, shape: tuple[int, ...]) -> tuple[str, int]:
        gguf = gguf_module()
        try:
            kind = gguf.GGMLQuantizationType(type_id)
        except ValueError:
            kind = None
        if kind is None or kind.name not in SUPPORTED:
            called = f"type {type_id}" if kind is None else kind.name
            raise InconclusiveError(
                f"{self._name}: tensor {name} has quantisation {called}, which is not supported",
                hint=f"use a file quantised with one of {', '.join(sorted(SUPPORTED))}",
            )
        block, nbytes = gguf.GGML_QUANT_SIZES[kind]
        if any(side > 1 << 40 for side in shape) or (shape[-1] if shape else 1) % block:
            raise InconclusiveError(f"{self._name}: tensor {name} has an impossible shape", hint=_DAMAGED)
        return kind.name, prod(shape) // block * nbytes
