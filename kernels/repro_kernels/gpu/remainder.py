"""Division with a whole quotient under profile ``fp32``: the functions of ``repro_kernels.cpu.remainder``.

They hold on any device: integers, single IEEE-754 operations between two tensors, and no kernel of their own.
Tests: ``tests/gpu/cases_remainder.py``.
"""

from __future__ import annotations

from repro_kernels.cpu.remainder import div_floor, div_trunc, fmod, remainder
from repro_kernels.gpu.runtime import Build

__all__ = ["BUILDS", "div_floor", "div_trunc", "fmod", "remainder"]

BUILDS: tuple[Build, ...] = ()
"""No kernel of its own."""
