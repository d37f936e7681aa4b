"""Strict, typed, bounded access to parsed JSON: every refusal names the place.

A :class:`Node` is a value and the path that leads to it. Its methods return plain Python values of the type
asked for or raise :class:`UntrustedError`; nothing is coerced, no unknown key is skipped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from repro_audit.errors import UntrustedError

MAX_NAME = 512
MAX_TEXT = 4 * 1024 * 1024

_HEX = re.compile(r"[0-9a-f]*")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,19}")


class Node:
    """A JSON value with its path.

    Args:
        value: as the bounded parser returned it.
        path: where it sits, as ``manifest.predicate.points[3]``.
    """

    __slots__ = ("path", "value")

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def fail(self, why: str) -> UntrustedError:
        """An error that names this place."""
        return UntrustedError(
            f"{self.path} {why}", hint="the file is malformed; ask its author for an intact copy"
        )

    def object(self, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Node]:
        """The members of an object that has every required key and none beyond the optional ones."""
        if not isinstance(self.value, dict):
            raise self.fail("is not an object")
        for key in required:
            if key not in self.value:
                raise self.fail(f"lacks {key!r}")
        for key in self.value:
            if key not in required and key not in optional:
                raise self.fail(f"has the unknown key {ascii(key)[:80]}")
        return {key: Node(item, f"{self.path}.{key}") for key, item in self.value.items()}

    def array(self, most: int, least: int = 0) -> list[Any]:
        """The raw items of an array of at least ``least`` and at most ``most``."""
        if not isinstance(self.value, list):
            raise self.fail("is not an array")
        if not least <= len(self.value) <= most:
            raise self.fail(f"has {len(self.value)} items, allowed are {least} to {most}")
        return self.value

    def items(self, most: int, least: int = 0) -> Iterator[Node]:
        """The items of an array, each with its path."""
        for index, item in enumerate(self.array(most, least)):
            yield Node(item, f"{self.path}[{index}]")

    def integer(self, least: int = 0, most: int = 2**31 - 1) -> int:
        """A JSON integer in range."""
        if type(self.value) is not int or not least <= self.value <= most:
            raise self.fail(f"is not an integer from {least} to {most}")
        return self.value

    def integers(self, count: int, least: int = 0, most: int = 2**31 - 1) -> tuple[int, ...]:
        """An array of at most ``count`` JSON integers in range."""
        values = self.array(count)
        if not all(type(value) is int and least <= value <= most for value in values):
            raise self.fail(f"holds something other than an integer from {least} to {most}")
        return tuple(values)

    def wide(self, most: int = 2**64 - 1) -> int:
        """An unsigned 64-bit integer, written in decimal as a string."""
        if (
            not isinstance(self.value, str)
            or _DECIMAL.fullmatch(self.value) is None
            or int(self.value) > most
        ):
            raise self.fail(f"is not a decimal string from 0 to {most}")
        return int(self.value)

    def boolean(self) -> bool:
        """true or false."""
        if not isinstance(self.value, bool):
            raise self.fail("is not true or false")
        return self.value

    def text(self, most: int = MAX_TEXT) -> str:
        """Any Unicode text, control characters included (prompts and model outputs)."""
        if not isinstance(self.value, str) or len(self.value) > most:
            raise self.fail(f"is not text of at most {most} characters")
        return self.value

    def name(self, most: int = MAX_NAME) -> str:
        """Printable text of 1 to ``most`` characters: no control characters, no line separators."""
        value = self.text(most)
        if not value or not value.isprintable():
            raise self.fail(f"is not a printable name of 1 to {most} characters")
        return value

    def file_name(self) -> str:
        """A relative POSIX path that stays below its folder: no empty, ``.`` or ``..`` part, no backslash."""
        value = self.name()
        if "\\" in value or ":" in value.split("/")[0] or any(p in ("", ".", "..") for p in value.split("/")):
            raise self.fail("is not a relative file name inside the model's folder")
        return value

    def choice(self, allowed: Sequence[str]) -> str:
        """One of the allowed words."""
        if not isinstance(self.value, str) or self.value not in allowed:
            raise self.fail(f"is not one of {', '.join(allowed)}")
        return self.value

    def hex(self, least: int = 32, most: int = 32) -> str:
        """Lower-case hexadecimal of ``least`` to ``most`` bytes."""
        value = self.value
        if not isinstance(value, str) or len(value) % 2 or not 2 * least <= len(value) <= 2 * most:
            raise self.fail(f"is not lower-case hexadecimal of {least} to {most} bytes")
        if _HEX.fullmatch(value) is None:
            raise self.fail("is not lower-case hexadecimal")
        return value

    def finite(self) -> float:
        """As :meth:`real`, without NaN and infinities."""
        number = self.real()
        if not math.isfinite(number):
            raise self.fail("is not finite")
        return number

    def real(self) -> float:
        """A double as ``float.hex`` writes it: one spelling per value."""
        if not isinstance(self.value, str) or len(self.value) > 32:
            raise self.fail("is not the hexadecimal form of a double")
        try:
            number = float.fromhex(self.value)
        except (ValueError, OverflowError):
            raise self.fail("is not the hexadecimal form of a double") from None
        if number.hex() != self.value:
            raise self.fail("is not written as float.hex writes it")
        return number
