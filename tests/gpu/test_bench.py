"""The benchmark on a GPU, end to end on a tiny model."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.gpu


def test_tiny(tmp_path, capfd):
    from repro_audit.cli.main import run_and_exit

    path = tmp_path / "bench.json"
    arguments = ["bench", "--device", "cuda", "--shape", "tiny", "--quick", "-o", str(path)]
    arguments += ["--only", "gemv,skinny,attention,hash,prefill,decode,record,verify"]
    assert run_and_exit(arguments) == 0, capfd.readouterr().err
    rows = json.loads(path.read_text())["rows"]
    measured = {(row["area"], row["stack"]) for row in rows if row["seconds"]}
    for area in ("gemv", "skinny", "attention", "hash", "prefill", "decode", "record", "verify"):
        assert (area, "repro-audit") in measured
    assert {("gemv", "cuBLAS bf16"), ("decode", "HF bf16, static + graph"), ("decode", "HF fp32")} <= measured
    assert all(row["graph"] for row in rows if row["area"] in ("gemv", "skinny", "attention"))
    assert all(row["fraction"] <= 1.05 for row in rows if row["fraction"])
