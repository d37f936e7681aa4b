"""Casts to integers and float ranges under profile ``fp32``: the functions of ``repro_kernels.cpu.convert``.

They hold on any device. A cast widens to binary64, compares and truncates, each exact; a range is made of
Python numbers on the host, and its caller moves it. Tests: ``tests/gpu/cases_order.py``.
"""

from __future__ import annotations

from repro_kernels.cpu.convert import arange, linspace, to_integer
from repro_kernels.gpu.runtime import Build

__all__ = ["BUILDS", "arange", "linspace", "to_integer"]

BUILDS: tuple[Build, ...] = ()
"""No kernel of its own."""
