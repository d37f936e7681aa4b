"""README says what the program says: help, exit codes, and every command line that it shows."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from repro_audit.cli.app import SETTINGS, app
from repro_audit.cli.main import run_and_exit
from repro_audit.verdict import Verdict
from repro_audit.verify.explain import CODES, EXIT_CODES

sys.path.insert(0, str(Path(__file__).parent))
import blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "manifests" / "README.md"])


@pytest.mark.parametrize("name", sorted(blocks.blocks()))
def test_generated_block_is_current(name: str):
    shown = blocks.read(blocks.README.read_text(encoding="utf-8"), name)
    assert shown is not None, f"README.md lacks <!-- {name} -->"
    assert shown == blocks.blocks()[name], "run: python tests/docs/blocks.py"


def command_lines() -> list[tuple[str, list[str]]]:
    """(page, words) of every ``$ repro-audit ...`` line in the documentation."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in re.findall(r"^\$ (?:.*&& )?repro-audit (.*)$", text, re.MULTILINE):
            found.append((page.name, shlex.split(line, comments=True)))
    return found


def test_every_command_line_shown_exists():
    """Commands exist, and so does every option that a line uses."""
    seen = command_lines()
    assert seen
    commands = {command.name for command in app.registered_commands}
    for page, words in seen:
        if words[0].startswith("-"):
            assert words[0] in ("--help", "-h", "--version", "-V"), (page, words)
            continue
        assert words[0] in commands, (page, words)
        known = known_options(words[0])
        for word in words[1:]:
            if word.startswith("--"):
                assert word.split("=")[0] in known, (page, words)


def known_options(command: str) -> set[str]:
    """Every long option of a command, from its own help."""
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run_and_exit([command, "--help"]) == 0
    return set(re.findall(r"--[a-z][a-z-]*", out.getvalue()))


def test_exit_code_table_is_complete():
    assert {code for code, _, _ in EXIT_CODES} == {verdict.exit_code for verdict in Verdict}
    for code, words, _ in EXIT_CODES:
        for verdict in Verdict:
            if re.search(rf"\b{verdict.value}\b", words):
                assert verdict.exit_code == code


def test_codes_named_in_the_documentation_exist():
    for page in PAGES:
        for code in re.findall(r"\bRA\d{3}\b", page.read_text(encoding="utf-8")):
            assert code in CODES, (page.name, code)


def test_every_code_that_the_program_uses_is_explained():
    used = set()
    for path in (ROOT / "repro_audit").rglob("*.py"):
        if path.name == "explain.py":
            continue
        used |= set(re.findall(r"\"(RA\d{3})\"", path.read_text(encoding="utf-8")))
    assert used == set(CODES)


def test_variables_are_those_of_the_options():
    assert SETTINGS["run"]["profile"] == "profile"
    assert SETTINGS["verify"]["trusted-key"] == "trusted_key"
    assert not any("insecure" in option for options in SETTINGS.values() for option in options)
