"""flag > REPRO_AUDIT_* > file > default; unknown keys are refused; refusals reach machines as results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = ("--prompt", "the an", "--unsigned", "--dry-run", "-f", "json")


def facts(out: str) -> dict[str, str]:
    return {fact["name"]: fact["value"] for fact in json.loads(out)["facts"]}


def test_precedence(cli, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "audit.yaml"
    assert facts(cli("run", model, *RUN).out)["record"] == "layers"
    config.write_text("record: ops\n")
    assert facts(cli("run", model, *RUN, "-c", config).out)["record"] == "ops"
    config.write_text("record: ops\nrun:\n  record: logits\n")
    assert facts(cli("run", model, *RUN, "-c", config).out)["record"] == "logits"
    monkeypatch.setenv("REPRO_AUDIT_RECORD", "ops")
    assert facts(cli("run", model, *RUN, "-c", config).out)["record"] == "ops"
    assert facts(cli("run", model, *RUN, "-c", config, "--record", "layers").out)["record"] == "layers"


def test_bad_values_are_named_wherever_they_come_from(cli, model, tmp_path, monkeypatch):
    config = tmp_path / "audit.yaml"
    config.write_text("record: everything\n")
    cli("run", model, *RUN, "-c", config).refused(2, "everything")
    config.write_text("max-new-tokens: many\n")
    cli("run", model, *RUN, "-c", config).refused(2, "--max-new-tokens")
    monkeypatch.setenv("REPRO_AUDIT_PROFILE", "bf17")
    cli("run", model, *RUN).refused(2, "bf17")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("recrod: ops\n", "did you mean record"),
        ("run:\n  trusted-key: a\n", "is not an option of run"),
        ("run: ops\n", "not a mapping"),
        ("- a\n- b\n", "not a mapping"),
        ("{: \n", "not YAML"),
        ("record: {a: b}\n", "neither a value nor a list"),
        ("record: !!python/object/apply:os.system ['true']\n", "not YAML"),
        ("insecure_allow_untrusted: true\n", "flag only"),
        ("unsigned: true\n", "unsigned"),
        ("force: true\n", "force"),
    ],
)
def test_bad_files(cli, model, tmp_path, text, word):
    config = tmp_path / "audit.yaml"
    config.write_text(text)
    cli("run", model, *RUN, "-c", config).refused(2, word)


def test_missing_file(cli, model, tmp_path):
    cli("run", model, *RUN, "-c", tmp_path / "no.yaml").refused(2, "no.yaml")


def test_options_of_other_commands_may_share_a_file(cli, model, tmp_path):
    config = tmp_path / "audit.yaml"
    config.write_text("trusted-key: [a.pub]\nverify:\n  online: true\nrecord: ops\n")
    ran = cli("run", model, *RUN, "-c", config)
    assert ran.code == 0, ran.err


def test_misspelt_variable_is_noticed(cli, model, tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_AUDIT_RECRD", "ops")
    ran = cli("run", model, *RUN)
    assert ran.code == 0
    assert "REPRO_AUDIT_RECRD" in ran.err
    assert "REPRO_AUDIT_RECRD" not in cli("run", model, *RUN, "-q").err


def test_a_refusal_is_a_result_where_a_machine_asked_for_one(cli, model, tmp_path):
    bad = tmp_path / "x.manifest.json"
    bad.write_text("{}")
    report = tmp_path / "r.json"
    ran = cli("verify", bad, "--model", model, "-f", "json", "--report", f"json={report}")
    assert ran.code == 4
    assert json.loads(ran.out)["verdict"] == "UNTRUSTED"
    assert json.loads(report.read_text())["exitCode"] == 4
    assert len(ran.err.splitlines()) == 1


def test_closed_pipe_is_quiet():
    done = subprocess.run(
        f"{sys.executable} -m repro_audit.cli.main explain | true; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--help > /dev/full", 2),
        ("-V > /dev/full", 2),
        ("check --help > /dev/full", 2),
        ("check /nowhere 2>&-", 2),
        ("explain 3 >&- 2>&-", 0),
        ("run M --prompts - --unsigned <&-", 2),
        ("check a -c /dev/zero", 2),
        ("", 2),
    ],
)
def test_streams_that_take_or_give_nothing(tmp_path, command, code):
    done = subprocess.run(
        f"ulimit -v 4000000; {sys.executable} -m repro_audit.cli.main {command}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.returncode == code, done.stderr
    assert "rash" not in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == (0 if "2>&-" in command else 1), done.stderr


def test_a_nul_character_in_the_configuration(cli, tmp_path):
    (tmp_path / "c.yaml").write_text('output: "a\\0b"\n')
    cli("check", "m", "-c", tmp_path / "c.yaml").refused(2, "NUL")


def test_no_color_and_always(cli, model, monkeypatch):
    assert "\x1b" not in cli("run", model, *RUN[:-2]).out
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b" in cli("run", model, *RUN[:-2], "--color", "always").out
    assert "\x1b" not in cli("run", model, *RUN[:-2], "--color", "never").out
