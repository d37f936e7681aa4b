"""``python -m repro_audit`` is the console script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from repro_audit import __version__


def test_the_package_runs():
    done = subprocess.run(
        [sys.executable, "-m", "repro_audit", "--version"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert __version__ in done.stdout


def test_its_exit_code_is_the_commands():
    done = subprocess.run(
        [sys.executable, "-m", "repro_audit", "check", "missing.json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.returncode == 2
    assert "missing.json" in done.stderr
