"""``repro-audit kernels``: lists for a person and for a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repro_audit.cli.main import run_and_exit


def test_the_registry(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_and_exit(["kernels", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["linear", "fp32", "RN_out(RN(acc", "+", "b))"]
    assert lines[-1] == f"{len(lines) - 2} operators"


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_and_exit(["kernels", "list", "--coverage", "aten110"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 112
    assert lines[0].split() == ["abs", "exact", "torch"]
    assert lines[109].split()[0] == "where"
    assert " of 110 (" in lines[-1]


def test_coverage_as_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "coverage.json"
    arguments = ["kernels", "list", "--coverage", "aten110", "--format", "json", "-o", str(target)]
    assert run_and_exit(arguments) == 0
    assert capsys.readouterr().out == ""
    data = json.loads(target.read_text(encoding="utf-8"))
    assert (
        data["operators"] == len(data["rows"]) == data["exact"] + data["specified"] + data["refused"] == 110
    )
    assert {row["classed"] for row in data["rows"]} == {"exact", "specified", "refused"}
    assert all(row["note"] for row in data["rows"] if row["classed"] == "refused")
    assert run_and_exit(arguments) == 2


@pytest.mark.parametrize("arguments", [["prove"], ["list", "--coverage", "aten111"], []])
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_and_exit(["kernels", *arguments]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
