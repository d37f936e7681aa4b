"""The small cases in Triton's interpreter, in a process of its own: kernels must be imported under it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

AREAS = sorted(path.stem.removeprefix("cases_") for path in Path(__file__).parent.glob("cases_*.py"))


@pytest.mark.parametrize("area", AREAS)
def test_interpreter_gives_the_cpu_bits(area: str) -> None:
    pytest.importorskip("triton")
    root = Path(__file__).resolve().parents[2]
    paths = [str(root), str(root / "kernels"), os.environ.get("PYTHONPATH", "")]
    result = subprocess.run(
        [sys.executable, "-m", "tests.gpu.interpreted", area],
        env=dict(os.environ, TRITON_INTERPRET="1", PYTHONPATH=os.pathsep.join(p for p in paths if p)),
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " 0 cases" not in f" {result.stdout}", f"no small case of area {area}"
