"""The safetensors container, written deterministically and read with bounds of our own.

The format is an 8-byte little-endian header length, a JSON header that maps names to dtype, shape and byte
range, and the bytes. A file of ours is one of many spellings: bytes without gaps in the order given, the
header in canonical JSON padded with spaces to a multiple of 8. The reader accepts no other, so overlaps,
gaps, stray bytes and shapes that do not match their bytes cannot occur.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from repro_audit.errors import UntrustedError
from repro_audit.manifest.canonical import dumps, loads_canonical
from repro_audit.manifest.reader import Node
from repro_audit.trace.digest import ITEM_SIZES

MAX_HEADER = 16 * 1024 * 1024
MAX_TENSORS = 1_048_576
MAX_RANK = 24
CHUNK = 1 << 20

#: torch's dtype name -> the container's code.
CODES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "int64": "I64",
    "uint64": "U64",
    "float64": "F64",
}


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of the container: name, dtype (torch's name) and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes its elements take."""
        return math.prod(self.shape) * ITEM_SIZES[self.dtype]


def header_for(specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> bytes:
    """Length field and header of a container that holds ``specs`` in this order.

    Raises:
        ValueError: a name is used twice, or the header would be larger than ``MAX_HEADER``.
    """
    entries: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for spec in specs:
        if spec.name in entries:
            raise ValueError(f"two tensors are called {spec.name}")
        end = offset + spec.nbytes
        entries[spec.name] = {
            "data_offsets": [offset, end],
            "dtype": CODES[spec.dtype],
            "shape": list(spec.shape),
        }
        offset = end
    text = dumps(entries)
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise ValueError(f"a header of {len(text)} bytes is more than {MAX_HEADER}")
    return struct.pack("<Q", len(text)) + text


def write_container(
    write: Callable[[bytes], None],
    specs: Sequence[TensorSpec],
    metadata: Mapping[str, str],
    tensors: Iterable[bytes],
) -> tuple[int, str]:
    """Write a container through ``write``.

    Args:
        write: takes the next bytes.
        specs: what it holds, in order.
        metadata: text for the header.
        tensors: the bytes of each tensor, in the order of ``specs``; consumed one at a time.

    Returns:
        Size and SHA-256 (hex) of everything written.

    Raises:
        ValueError: a tensor's bytes do not match its spec.
    """
    hasher = hashlib.sha256()
    head = header_for(specs, metadata)
    write(head)
    hasher.update(head)
    size = len(head)
    for spec, data in zip(specs, tensors, strict=True):
        if len(data) != spec.nbytes:
            raise ValueError(f"{spec.name} has {len(data)} bytes, its shape {spec.shape} takes {spec.nbytes}")
        write(data)
        hasher.update(data)
        size += len(data)
    return size, hasher.hexdigest()


def hash_stream(stream: IO[bytes], size: int, keep: int) -> tuple[str, bytes]:
    """SHA-256 (hex) of exactly ``size`` bytes from the start, and the first ``keep`` of them as hashed.

    Raises:
        UntrustedError: the stream ends early or goes on.
    """
    stream.seek(0)
    hasher = hashlib.sha256()
    head = bytearray()
    left = size
    while left:
        chunk = stream.read(min(CHUNK, left))
        if not chunk:
            raise UntrustedError(f"the trace ends {left} bytes early", hint="ask for an intact copy")
        hasher.update(chunk)
        if len(head) < keep:
            head += chunk[: keep - len(head)]
        left -= len(chunk)
    if stream.read(1):
        raise UntrustedError("the trace goes on after its end", hint="ask for an intact copy")
    return hasher.hexdigest(), bytes(head)


def parse_header(head: bytes, size: int, metadata: Mapping[str, str]) -> dict[str, tuple[TensorSpec, int]]:
    """Read the header of a container of ``size`` bytes, nothing of which is believed.

    Args:
        head: the first bytes of the file, at least the header if it is within bounds.
        size: bytes of the whole file.
        metadata: what the header's own text must be.

    Returns:
        By name: the tensor and its offset from the start of the file.

    Raises:
        UntrustedError: anything but one gapless container as :func:`write_container` makes it.
    """
    if size < 8 or len(head) < 8:
        raise _lies(f"{size} bytes are too few for a header")
    (length,) = struct.unpack("<Q", head[:8])
    if length > MAX_HEADER or 8 + length > size or length % 8:
        raise _lies(f"a header of {length} bytes does not fit a file of {size}")
    text = head[8 : 8 + length].rstrip(b" ")
    if len(text) + 8 <= length:
        raise _lies("its header is padded by more than 7 spaces")
    node = Node(loads_canonical(text, "the trace's header"), "trace header")
    entries = node.object(("__metadata__",), _keys(node))
    if entries.pop("__metadata__").value != dict(metadata):
        raise _lies("its metadata is not that of a trace of this format")
    ordered = sorted((_entry(name, entry) for name, entry in entries.items()), key=lambda item: item[1:])
    names = {code: name for name, code in CODES.items()}
    found: dict[str, tuple[TensorSpec, int]] = {}
    position = 0
    for spec_name, start, end, code, shape in ordered:
        spec = TensorSpec(spec_name, names[code], shape)
        if start != position:
            raise _lies(f"{spec_name} starts at byte {start}, the tensor before it ends at {position}")
        if end - start != spec.nbytes:
            raise _lies(f"{spec_name} has {end - start} bytes, its shape takes {spec.nbytes}")
        found[spec_name] = (spec, 8 + length + start)
        position = end
    if 8 + length + position != size:
        raise _lies(f"its tensors end at byte {8 + length + position} of {size}")
    return found


def _keys(node: Node) -> tuple[str, ...]:
    if not isinstance(node.value, dict) or len(node.value) > MAX_TENSORS:
        raise _lies(f"its header is not an object of at most {MAX_TENSORS} tensors")
    return tuple(node.value)


def _entry(name: str, node: Node) -> tuple[str, int, int, str, tuple[int, ...]]:
    if len(name) > 64 or not name.isprintable():
        raise _lies("a tensor's name is too long or not printable")
    parts = node.object(("data_offsets", "dtype", "shape"))
    offsets = parts["data_offsets"].integers(2, most=2**53 - 1)
    if len(offsets) != 2:
        raise parts["data_offsets"].fail("is not a pair")
    code = parts["dtype"].choice(tuple(CODES.values()))
    return name, offsets[0], offsets[1], code, parts["shape"].integers(MAX_RANK, most=2**40)


def _lies(why: str) -> UntrustedError:
    return UntrustedError(f"the trace is malformed: {why}", hint="ask its author for an intact copy")
