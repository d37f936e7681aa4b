"""What the rounding test of a first step leaves open: the second steps' errors, and the tables they read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_errors_are_below_their_bounds() -> None:
    pytest.importorskip("triton")
    paths = [str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]
    result = subprocess.run(
        [sys.executable, "-m", "tests.gpu.second_steps"],
        env=dict(os.environ, TRITON_INTERPRET="1", PYTHONPATH=os.pathsep.join(p for p in paths if p)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("\n") == 20


def test_the_tables_are_what_their_script_prints() -> None:
    pytest.importorskip("triton")
    from repro_kernels.gpu import elementary_tables, tables

    assert Path(elementary_tables.__file__).read_text() == tables.module()
