"""A known-answer test of the loaded kernels: a miscompiled or fast-math build is refused before it is used.

The inputs come from a fixed integer recurrence; the answer was computed by ``repro_kernels.spec.dot``, and
``tests/kernels/test_known_answer.py`` computes it again.
"""

from __future__ import annotations

import ctypes
from array import array

from repro_kernels.errors import BuildMismatchError

LENGTH = 300
"""Terms of the dot product: two whole segments and a short one."""

ANSWER = 0xC3150765


def operands() -> tuple[list[int], list[int]]:
    """Bits of the two vectors: floats of both signs with exponents of 2^-12 to 2^3."""
    state, rows = 0x2545F491, []
    for _ in range(2):
        row = []
        for _ in range(LENGTH):
            state = (state * 1664525 + 1013904223) % 2**32
            row.append((state & 0x807FFFFF) | (115 + (state >> 23) % 16) << 23)
        rows.append(row)
    return rows[0], rows[1]


def compute(library: ctypes.CDLL, isa: str) -> int:
    """Bits of the dot product of :func:`operands` as the variant ``isa`` of the shared object computes it."""
    x, w = (array("I", row) for row in operands())
    out = array("I", [0])
    numbers = array("q", [1, 1, 1, LENGTH, 0, LENGTH, 1, LENGTH, 1, 0, 0, 0, 0, 0, 0])
    offset = array("q", [0])
    pointers = [ctypes.c_void_p(block.buffer_info()[0]) for block in (numbers, x, w, out, offset)]
    q, a, b, c, zero = pointers
    kernel = library[f"rk_gemm_{isa}"]
    kernel.restype = None
    kernel(q, a, b, c, None, zero, zero, zero, ctypes.c_float(1.0), ctypes.c_float(1.0))
    return out[0]


def check(library: ctypes.CDLL, isa: str) -> None:
    """Compare with the known answer.

    Raises:
        BuildMismatchError: other bits.
    """
    found = compute(library, isa)
    if found != ANSWER:
        raise BuildMismatchError(
            f"the compiled kernels ({isa}) give wrong bits ({found:#010x} for {ANSWER:#010x}): "
            "their compiler changed the arithmetic; build them with an unmodified GCC"
        )
