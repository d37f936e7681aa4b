"""Which compiled kernels ran: their names, what they were specialised to, and digests of their machine code.

A digest covers the loaded sections of a cubin. The others hold line tables, and with them the paths of the
sources: by those the same code would have another digest in every installation.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

LONGEST = 4096
"""Characters of a specialisation's text; a longer one ends in its SHA-256."""

_DEBUG = re.compile(r"(\.rela?)?\.(nv_)?debug")
_TABLES = frozenset({".shstrtab", ".strtab", ".symtab", ""})
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NO_BITS = 8


class Kernel(NamedTuple):
    """One compiled kernel.

    Attributes:
        name: module and function.
        specialisation: types, alignments and constants of its arguments, and the compiler's options.
        target: ``sm_90``.
        sha256: hex, of its machine code as :func:`code_digest` takes it.
    """

    name: str
    specialisation: str
    target: str
    sha256: str


def describe(compiled: Any) -> Kernel:
    """What to record of a kernel that Triton compiled (the object that a launch returns)."""
    source, made = compiled.src, compiled.metadata
    module = str(source.fn.__module__).removeprefix("repro_kernels.")
    text = f"{_arguments(source)}; {_options(made)}"
    if len(text) > LONGEST:
        digest = hashlib.sha256(text.encode()).hexdigest()
        text = f"{text[: LONGEST - 80]} sha256:{digest}"
    return Kernel(
        f"{module}.{source.fn.__name__}", text, f"sm_{made.target.arch}", code_digest(compiled.asm["cubin"])
    )


def code_digest(cubin: bytes) -> str:
    """SHA-256 (hex) over name, length and bytes of every loaded section of a cubin, in its order.

    Args:
        cubin: a 64-bit little-endian ELF file; anything else is digested as it is.
    """
    if cubin[:6] != b"\x7fELF\x02\x01":
        return hashlib.sha256(cubin).hexdigest()
    found = hashlib.sha256()
    for name, data in sections(cubin):
        if name not in _TABLES and not _DEBUG.match(name):
            found.update(f"{name} {len(data)}\n".encode() + data)
    return found.hexdigest()


def sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each section of a 64-bit little-endian ELF file."""
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, start + index * size) for index in range(count)]
    table = headers[names][4]
    for at, kind, _, _, offset, length in headers:
        name = cubin[table + at : cubin.index(b"\0", table + at)].decode()
        # Room without bytes in the file: its length is all there is to it.
        yield name, bytes(length) if kind == _NO_BITS else cubin[offset : offset + length]


def _arguments(source: Any) -> str:
    aligned = {path: _text(attributes) for path, attributes in source.attrs.items()}
    parts = []
    for index, (name, kind) in enumerate(source.signature.items()):
        if (index,) in source.constants:
            parts.append(f"{name}={_text(source.constants[index,])}")
            continue
        divisible = [text for path, text in aligned.items() if path[0] == index]
        parts.append(" ".join([f"{name}: {_text(kind)}", *divisible]))
    return ", ".join(parts)


def _options(made: Any) -> str:
    names = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "triton_version")
    return ", ".join(f"{name}={_text(getattr(made, name))}" for name in names if hasattr(made, name))


def _text(value: Any) -> str:
    """A value as the same text in every process."""
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if isinstance(value, (list, tuple)):
        return "(" + " ".join(_text(item) for item in value) + ")"
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    text = _ADDRESS.sub("", value if isinstance(value, str) else repr(value))
    return "".join(c if c.isprintable() else " " for c in text)
