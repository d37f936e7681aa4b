"""Canonical JSON for signed payloads, and a bounded parser for hostile JSON.

Payloads hold no floats, no integer beyond 2**53 - 1, and only ASCII object keys. Under these three rules
the standard library's sorted compact output is RFC 8785 (JSON Canonicalization Scheme) byte for byte:
number serialisation (3.2.2.3) is trivial for integers, property sorting by UTF-16 code units (3.2.3) is
byte order for ASCII, and the string escapes (3.2.2.2) are those of ``json`` with ``ensure_ascii=False``.
A test compares with the ``rfc8785`` package.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from repro_audit.errors import UntrustedError

#: Largest payload, manifest or attestation, in bytes.
MAX_PAYLOAD = 16 * 1024 * 1024
#: Largest integer magnitude that every JSON reader keeps exactly (I-JSON, RFC 7493 2.2).
MAX_INT = 2**53 - 1
#: Deepest nesting of arrays and objects accepted.
MAX_DEPTH = 16

_STRINGS = re.compile(rb'"[^"]*"?')
_NO_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))

Json = Any


def dumps(value: Json) -> bytes:
    """UTF-8 bytes of ``value`` in canonical form.

    Raises:
        ValueError: for a float, an integer beyond ``MAX_INT``, a key that is not ASCII text, a lone
            surrogate, or a type that JSON does not have. Callers build the value themselves, so this is a
            programming error.
    """
    _require_canonical(value)
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode("utf-8")


def _require_canonical(value: Json) -> None:
    if value is None or isinstance(value, bool | str):
        return
    if isinstance(value, int):
        if abs(value) > MAX_INT:
            raise ValueError(f"integer {value} is beyond 2**53 - 1; write it as a string")
    elif isinstance(value, list | tuple):
        for item in value:
            _require_canonical(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not key.isascii():
                raise ValueError(f"object key {key!r} is not ASCII text")
            _require_canonical(item)
    else:
        raise ValueError(f"{type(value).__name__} has no canonical form")


def loads(data: bytes, what: str, *, limit: int = MAX_PAYLOAD, depth: int = MAX_DEPTH) -> Json:
    """Parse JSON that nobody vouches for yet.

    Args:
        data: the whole file or payload.
        what: how to name it in an error, as "the manifest".
        limit: most bytes accepted.
        depth: deepest nesting accepted.

    Raises:
        UntrustedError: too large, not UTF-8, not JSON, nested too deeply, a duplicate key, a key that is not
            ASCII, a float, NaN or Infinity, or an integer beyond 2**53 - 1.
    """
    if len(data) > limit:
        raise _malformed(what, f"is {len(data)} bytes, more than the {limit} allowed")
    _require_shallow(data, what, depth)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(what, f"is not UTF-8 (byte {error.start})") from None

    def pairs(items: list[tuple[str, Json]]) -> dict[str, Json]:
        out: dict[str, Json] = {}
        for key, value in items:
            if key in out:
                raise _malformed(what, f"repeats the key {ascii(key)[:80]}")
            if not key.isascii():
                raise _malformed(what, f"has the key {ascii(key)[:80]}, which is not ASCII")
            out[key] = value
        return out

    def integer(digits: str) -> int:
        if len(digits) > 17 or abs(int(digits)) > MAX_INT:
            raise _malformed(what, f"holds the integer {digits[:24]}, beyond 2**53 - 1")
        if digits == "-0":
            raise _malformed(what, "holds the number -0")
        return int(digits)

    def refuse(token: str) -> NoReturn:
        raise _malformed(what, f"holds the number {token[:24]}; floats, NaN and Infinity have no place in it")

    try:
        value = json.loads(
            text, object_pairs_hook=pairs, parse_int=integer, parse_float=refuse, parse_constant=refuse
        )
    except json.JSONDecodeError as error:
        raise _malformed(what, f"is not JSON ({error.msg}, character {error.pos})") from None
    except RecursionError:
        raise _malformed(what, "is nested too deeply") from None
    return value


def loads_canonical(data: bytes, what: str) -> Json:
    """Parse ``data`` and require that it is the canonical form of what it says: one value, one spelling.

    Raises:
        UntrustedError: as :func:`loads`, or another spelling (whitespace, key order, escapes, surrogates).
    """
    value = loads(data, what)
    try:
        again = dumps(value)
    except (ValueError, UnicodeEncodeError):
        raise _malformed(what, "holds text that is not Unicode") from None
    if again != data:
        raise _malformed(what, "is not in canonical form (RFC 8785)")
    return value


def _require_shallow(data: bytes, what: str, depth: int) -> None:
    # Before the real parser, whose recursion is the thing to protect, and before any signature: every step is
    # linear in time and memory, whatever the bytes. Strings without an end fail in the parser.
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    level = 0
    for byte in _STRINGS.sub(b"", unescaped.translate(None, _NO_STRUCTURE)):
        level += 1 if byte in b"[{" else -1
        if level > depth:
            raise _malformed(what, f"is nested deeper than {depth} levels")


def _malformed(what: str, why: str) -> UntrustedError:
    return UntrustedError(f"{what} {why}", hint="ask its author for an intact copy")
