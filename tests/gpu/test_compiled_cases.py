"""The small cases as compiled code, without a GPU (``ptx_launch.py``), in processes of their own.

Elementwise operators have ``test_compiled_bits.py``: their cases would compile a kernel per function, type.
In CI the digests and the areas with an order of summation run, with REPRO_COMPILE=all every area.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AREAS = ["attention:", "digest:", "norm:", "products:", "rows:"]
if os.environ.get("REPRO_COMPILE") == "all":
    AREAS += ["fused:", "order:", "reduce:", "remainder:", "sampling:"]


@pytest.mark.parametrize("area", AREAS)
def test_compiled_code_gives_the_cpu_bits(area: str) -> None:
    pytest.importorskip("triton")
    paths = [str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in paths if p))
    environment.pop("TRITON_INTERPRET", None)
    result = subprocess.run(
        [sys.executable, "-m", "tests.gpu.ptx_launch", area],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " 0 cases" not in f" {result.stdout}", f"no small case of area {area}"
