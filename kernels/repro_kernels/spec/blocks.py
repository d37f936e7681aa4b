"""Steps of decoder blocks that one kernel may fuse, written as the unfused sequence that model code runs.

Each step rounds to its result type (numerics.md, "Ground rules": result types). RMSNorm modules are in
:mod:`repro_kernels.spec.norm`.
"""

from __future__ import annotations

from repro_kernels.spec.composite import silu
from repro_kernels.spec.dot import Vector
from repro_kernels.spec.floats import BINARY32, Format, add, mul, rn


def swiglu(gate: Vector, up: Vector, a: Format = BINARY32) -> list[float]:
    """RN_a(RN_a(silu(gate)) * up), element by element."""
    return [rn(mul(rn(silu(g), a), u), a) for g, u in zip(gate, up, strict=True)]


def rotary(x: Vector, cos: Vector, sin: Vector, a: Format = BINARY32) -> list[float]:
    """RN_a(RN_a(x * cos) + RN_a(rotated * sin)), rotated = (-second half, first half).

    Args:
        x: one head's query or key, an even number of elements of format a.
        cos: as many cosines of the position's angles, of format a.
        sin: as many sines.
        a: the activation format.
    """
    half = len(x) // 2
    rotated = [-v for v in x[half:]] + list(x[:half])
    return [
        rn(add(rn(mul(v, c), a), rn(mul(r, s), a)), a)
        for v, r, c, s in zip(x, rotated, cos, sin, strict=True)
    ]
