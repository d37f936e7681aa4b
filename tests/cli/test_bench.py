"""``repro-audit bench`` from the command line: its table, its document, what it refuses to print."""

from __future__ import annotations

import json
from importlib import resources

import jsonschema

from repro_audit.bench import rows as benchrows
from repro_audit.bench.roofline import Roofline

TINY = ("bench", "--device", "cpu", "--shape", "tiny", "--quick", "--rounds", "1")


def test_table_and_document(cli, tmp_path):
    out, table = tmp_path / "bench.json", tmp_path / "bench.txt"
    ran = cli(*TINY, "--only", "gemv,prefill", "-o", str(out), "--report", f"table={table}")
    assert ran.code == 0, ran.err
    tree = json.loads(out.read_text())
    schema = json.loads((resources.files("repro_audit.schemas") / "bench.schema.json").read_text())
    jsonschema.validate(tree, schema)
    assert tree["settings"]["model"] == "shape:tiny"
    assert {row["area"] for row in tree["rows"]} == {"gemv", "prefill"}
    for text in (ran.out, table.read_text()):
        assert "gemv: 1 x 2048 x 2048" in text
        assert "HF fp32" in text
    assert "prefill: 128 tokens: repro-audit" in ran.err


def test_json_on_stdout(cli):
    ran = cli(*TINY, "--only", "gemv", "-q", "-f", "json")
    assert ran.code == 0
    assert ran.err == ""
    assert [row["stack"] for row in json.loads(ran.out)["rows"]] == ["repro-audit", "torch fp32", "LayerCast"]


def test_an_impossible_figure_ends_with_exit_code_5(cli, monkeypatch, tmp_path):
    slow = Roofline(1.0, {"fp32": 1e30}, 1 << 20, "a test")
    real = benchrows.judged
    monkeypatch.setattr(benchrows, "judged", lambda row, peaks: real(row, slow))
    out = tmp_path / "bench.json"
    ran = cli(*TINY, "--only", "gemv", "-q", "-o", str(out))
    assert ran.code == 5
    assert "above the roofline" in ran.err
    assert "refused: above the roofline" in ran.out
    assert [row["seconds"] for row in json.loads(out.read_text())["rows"]] == [None, None, None]


def test_a_spent_budget_is_said(cli):
    ran = cli(*TINY, "--budget", "0", "-q")
    assert ran.code == 0
    assert ran.out.count("skipped: the --budget is spent") >= 9
