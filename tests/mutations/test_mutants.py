"""Wrong sources are caught by tests: quick mutants on every change, all by ``python -m tests.mutations``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations import runner
from tests.mutations.mutant import Edit, Mutant
from tests.mutations.mutants import MUTANTS

QUICK = [mutant for mutant in MUTANTS if mutant.quick]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_edits_fit_the_sources(mutant: Mutant) -> None:
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        text = texts.get(edit.file) or (runner.ROOT / edit.file).read_text(encoding="utf-8")
        texts[edit.file] = runner.replaced(text, edit)
        if edit.file.endswith(".py"):
            compile(texts[edit.file], edit.file, "exec")
    for listed in mutant.tests:
        file, _, function = listed.partition("::")
        assert f"def {function}" in (runner.ROOT / file).read_text(encoding="utf-8"), listed


def test_names_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_quick_mutants_are_caught(tmp_path: Path) -> None:
    alive = [outcome for outcome in runner.run(QUICK, tmp_path) if outcome.verdict != runner.KILLED]
    assert not alive


def test_a_harmless_change_survives(tmp_path: Path) -> None:
    # The control: what no test can notice is not called caught.
    edit = Edit("repro_audit/trace/digest.py", '"""RFC 6962 2.1: hash of a leaf."""', '"""A leaf."""')
    mutant = Mutant(
        "comment", (edit,), ("tests/unit/trace/test_digest.py::test_leaves_and_nodes_are_kept_apart",)
    )
    (outcome,) = runner.run([mutant], tmp_path)
    assert (outcome.verdict, outcome.missed) == (runner.SURVIVED, mutant.tests)
    before = (runner.ROOT / edit.file).read_text(encoding="utf-8")
    assert edit.old in before, "the tree itself stays as it is"


def test_a_failing_test_is_no_evidence(tmp_path: Path) -> None:
    missing = "tests/unit/trace/test_digest.py::test_that_does_not_exist"
    mutant = Mutant("x", (Edit("README.md", "# repro-audit", "# other"),), (missing,))
    with pytest.raises(RuntimeError, match="does not pass on the unchanged copy"):
        runner.run([mutant], tmp_path)
