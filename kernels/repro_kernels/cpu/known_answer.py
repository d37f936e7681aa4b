"""A known-answer test of the loaded kernels: a miscompiled or fast-math build is refused before it is used.

The inputs come from a fixed integer recurrence. ``tests/kernels/test_known_answer.py`` computes the answer
again with ``repro_kernels.spec.dot``, and shows that two roundings for an FMA, another order, another segment
length and flushed subnormals each give another one.
"""

from __future__ import annotations

import ctypes
import hashlib
from array import array

from repro_kernels.errors import BuildMismatchError

LENGTH = 300
"""Terms of each dot product: two whole segments and a short one."""

ROWS = 40
"""Dot products: more than a vector is wide."""

ANSWER = "787b4d66cda156b9"
"""BLAKE2b (8 bytes, hex) of the results' bits, little-endian."""


def operands() -> tuple[list[int], list[list[int]]]:
    """Bits of the left vector and of the right ones: both signs, exponents -12 to 3.

    The last eight right vectors have exponents -127 (subnormal) to -112.
    """
    state = 0x2545F491

    def vector(lowest: int) -> list[int]:
        nonlocal state
        row = []
        for _ in range(LENGTH):
            state = (state * 1664525 + 1013904223) % 2**32
            row.append((state & 0x807FFFFF) | (lowest + (state >> 23) % 16) << 23)
        return row

    return vector(115), [vector(115 if n < ROWS - 8 else 0) for n in range(ROWS)]


def digest(bits: list[int]) -> str:
    """The digest of results given as bits."""
    content = b"".join(value.to_bytes(4, "little") for value in bits)
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def compute(library: ctypes.CDLL, isa: str) -> str:
    """The digest as the variant ``isa`` of the shared object computes it."""
    left, right = operands()
    x, w, out = (
        array("I", left),
        array("I", [bits for row in right for bits in row]),
        array("I", bytes(4 * ROWS)),
    )
    numbers = array("q", [1, 1, ROWS, LENGTH, 0, LENGTH, 1, LENGTH, 1, 0, 0, 0, 0, 0, 0])
    q, a, b, c = (ctypes.c_void_p(block.buffer_info()[0]) for block in (numbers, x, w, out))
    one = ctypes.c_float(1.0)
    kernel = library[f"rk_gemm_{isa}"]
    kernel.restype = ctypes.c_int
    if kernel(q, a, b, c, None, None, None, None, one, one):
        raise MemoryError("no memory for the known-answer test")
    return digest(out.tolist())


def check(library: ctypes.CDLL, isa: str) -> None:
    """Compare with the known answer.

    Raises:
        BuildMismatchError: other bits.
    """
    found = compute(library, isa)
    if found != ANSWER:
        raise BuildMismatchError(
            f"the compiled kernels ({isa}) give wrong bits ({found} for {ANSWER}): "
            "their compiler changed the arithmetic; build them with an unmodified GCC"
        )
