"""Reports: pure functions of a result, readable at 80 columns without colour; JSON conforms to its schema."""

from __future__ import annotations

import ast
import json
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_audit.report import console
from repro_audit.report import json as report_json
from repro_audit.verdict import Finding, Result, Verdict

DIVERGED = Result(
    "verify",
    Verdict.DIVERGED,
    "bits first differ in model.layers.3.mlp at token 7 of sequence 0",
    (
        Finding("RA301", "model.layers.3.mlp.down_proj.weight has other bits", "weights"),
        Finding(
            "RA401",
            "model.layers.3.mlp at token 7 (' Paris'): all it consumed matches, its own bits do not",
            "origin",
            "model.layers.3.mlp",
            0,
            7,
            (("tokens", "7, 9-12 (5 positions)"),),
        ),
        Finding("RA203", "no trace", "note"),
    ),
    (("model", "tiny"), ("a name that is rather longer than others", "v " * 60)),
    (("identical", 12345), ("origins", 1)),
    (
        (
            "sequence 0",
            ("embed_tokens ......", "layer 0 ......", "layer 1 ......", "layer 2 ..Oxxx", "logits ___xxx"),
        ),
    ),
    "repro-audit explain RA401",
)
SCHEMA = json.loads((resources.files("repro_audit.schemas") / "result.schema.json").read_text())


def test_worst_first_and_next_command_last():
    text = console.render(DIVERGED)
    order = [
        "DIVERGED",
        "tiny",
        "RA301",
        "RA401",
        "tokens: 7, 9-12",
        "12,345",
        "layers down",
        "Next: repro-audit",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert text.rstrip().endswith("repro-audit explain RA401")


def test_eighty_columns_and_no_escapes():
    text = console.render(DIVERGED)
    assert "\x1b" not in text
    assert all(len(line) <= 80 for line in text.splitlines()), max(text.splitlines(), key=len)


def test_heat_map_merges_equal_layers_and_shows_the_origin():
    text = console.render(DIVERGED)
    assert "embed_tokens .. layer 1" in text
    lines = {
        line.split("  ")[1].strip(): line.rstrip() for line in text.splitlines() if line.startswith("  ")
    }
    assert lines["layer 2"].endswith("..Oxxx")
    assert lines["logits"].endswith("   xxx")


def test_heat_map_wider_than_the_page_keeps_the_worst_of_each_cell():
    row = "." * 500
    wide = row[:333] + "O" + "x" * 166
    result = Result(
        "verify", Verdict.DIVERGED, "s", matrix=(("sequence 0", (f"layer 0 {row}", f"layer 1 {wide}")),)
    )
    text = console.render(result)
    shown = next(line for line in text.splitlines() if "layer 1" in line).split()[-1]
    assert len(shown) <= 80
    assert shown.count("O") == 1
    assert shown.strip(".").strip("x") == "O"
    assert "tokens a cell" in text


def test_many_findings_are_cut_with_their_number():
    many = tuple(Finding("RA401", f"finding {i}", "origin") for i in range(100))
    text = console.render(Result("verify", Verdict.DIVERGED, "s", many))
    assert "and 92 more" in text


def test_text_from_a_manifest_is_not_markup():
    nasty = Result(
        "show", Verdict.VALID, "[bold]x[/bold]", facts=(("text", "[link=http://evil]click[/link] \x1b[31m"),)
    )
    text = console.render(nasty)
    assert "[bold]x[/bold]" in text
    assert "[link=http://evil]click[/link]" in text
    assert "\x1b" not in text


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20)


@st.composite
def results(draw: st.DrawFn) -> Result:
    findings = draw(
        st.lists(
            st.builds(
                Finding,
                code=st.sampled_from(["RA001", "RA401"]),
                message=TEXTS,
                kind=st.sampled_from(["origin", "weights", "note"]),
                point=st.none() | TEXTS,
                sequence=st.none() | st.integers(0, 9),
                position=st.none() | st.integers(0, 99),
                details=st.dictionaries(TEXTS, TEXTS, max_size=2).map(lambda d: tuple(d.items())),
            ),
            max_size=4,
        )
    )
    return Result(
        draw(TEXTS),
        draw(st.sampled_from(Verdict)),
        draw(TEXTS),
        tuple(findings),
        tuple(draw(st.lists(st.tuples(TEXTS, TEXTS), max_size=3))),
        tuple(draw(st.dictionaries(TEXTS, st.integers(0, 10**6), max_size=3)).items()),
        (("sequence 0", tuple(f"layer {i} {'.Ox_'[i % 4] * 5}" for i in range(draw(st.integers(0, 5))))),),
        draw(TEXTS),
    )


@settings(max_examples=30, deadline=None)
@given(results())
def test_json_conforms_and_comes_back(result: Result):
    tree = json.loads(report_json.render(result))
    jsonschema.Draft202012Validator(SCHEMA).validate(tree)
    assert report_json.from_dict(tree) == result
    assert tree["exitCode"] == result.verdict.exit_code


@settings(max_examples=30, deadline=None)
@given(results())
def test_every_result_renders_without_control_characters(result: Result):
    text = console.render(result)
    assert not any(ord(c) < 32 and c != "\n" for c in text)


@pytest.mark.parametrize("name", ["console.py", "json.py"])
def test_reports_import_the_verdict_alone(name: str):
    source = Path(console.__file__).with_name(name).read_text()
    ours = {
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("repro_")
    }
    assert ours == {"repro_audit.verdict"}
