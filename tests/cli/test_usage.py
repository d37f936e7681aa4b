"""Bad arguments: exit 2 (or 5), one sentence that names the thing and the remedy, nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro_audit.cli.main import run_and_exit

RUN = ("--prompt", "the an", "--unsigned", "--max-new-tokens", "2")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["frobnicate"], 2, ["frobnicate"]),
        (["run"], 2, ["MODEL"]),
        (["run", "M", "--nope"], 2, ["--nope"]),
        (["run", "M", "--max-new-tokens", "-1", *RUN[:3]], 2, ["--max-new-tokens"]),
        (["run", "M", "--prompt", "", "--unsigned"], 2, ["the prompt is empty"]),
        (["run", "M", "--unsigned"], 2, ["--prompt"]),
        (["run", "M", "--prompt", "a", "--prompts", "b", "--unsigned"], 2, ["--prompts"]),
        (["run", "M", "--prompts", "/nowhere", "--unsigned"], 2, ["/nowhere"]),
        (["run", "M", "--prompt", "a"], 2, ["--key", "--unsigned"]),
        (["run", "M", *RUN, "--key", "k"], 2, ["exclude"]),
        (["run", "M", *RUN, "--profile", "bf17"], 2, ["bf17", "fp32"]),
        (["run", "M", *RUN, "--profile", "exact"], 2, ["exact", "fp32"]),
        (["run", "M", *RUN, "--profile", "stock"], 2, ["stock", "fp32"]),
        (["run", "M", *RUN, "--device", "tpu"], 2, ["tpu", "cpu"]),
        (["run", "M", *RUN, "--device", "cuda"], 5, ["cuda", "--device cpu"]),
        (["run", "M", *RUN, "--device", "cuda:1"], 5, ["cuda:1", "--device cpu"]),
        (["run", "M", *RUN, "--record", "everything"], 2, ["everything", "layers"]),
        (["run", "", *RUN], 2, ["no model is named"]),
        (["run", "M", *RUN[:3], "--max-new-tokens", str(2**31)], 2, ["--max-new-tokens"]),
        (["run", "M", *RUN, "--top-k", str(2**31)], 2, ["--top-k"]),
        (["run", "M", *RUN, "--batch-size", str(2**31)], 2, ["--batch-size"]),
        (["run", "M", *RUN, "--prefill-chunk", str(2**31)], 2, ["--prefill-chunk"]),
        (["run", "M", *RUN, "--activations", "int8"], 2, ["int8", "bf16"]),
        (["run", "M", *RUN, "--challenge", "xyz"], 2, ["challenge"]),
        (["run", "M", *RUN, "--challenge", "00"], 2, ["challenge"]),
        (["run", "M", *RUN, "--temperature", "-1"], 2, ["--temperature"]),
        (["run", "M", *RUN, "--temperature", "nan"], 2, ["--temperature"]),
        (["run", "M", *RUN, "--top-p", "0"], 2, ["--top-p"]),
        (["run", "M", *RUN, "--seed", str(2**64)], 2, ["--seed"]),
        (["run", "M", *RUN, "-f", "xml"], 2, ["xml", "json"]),
        (["run", "M", *RUN, "--report", "json"], 2, ["FMT=PATH"]),
        (["run", "M", *RUN, "--report", "pdf=x"], 2, ["pdf", "json"]),
        (["run", "M", *RUN, "--color", "blue"], 2, ["blue", "never"]),
        (["run", "M", *RUN, "--progress", "x"], 2, ["auto"]),
        (["run", "M", *RUN, "--exit-codes", "x"], 2, ["bisect"]),
        (["run", "M", *RUN, "-o", "/nowhere/at/all"], 2, ["/nowhere/at"]),
        (["run", "M", "--prompt", "a", "--key", "/nowhere"], 2, ["/nowhere"]),
        (["run", "M", "--prompt", "a", "--key", "env:NO_SUCH_KEY"], 2, ["NO_SUCH_KEY"]),
        (["run", "/nowhere/model", *RUN], 2, ["/nowhere/model"]),
        (["run", "demo:gpt5", *RUN], 2, ["demo:smollm2-135m"]),
        (["run", "python:nocolon", *RUN], 2, ["python"]),
        (["verify"], 2, ["MANIFEST"]),
        (["verify", "/nowhere.manifest.json"], 2, ["/nowhere"]),
        (["verify", "/nowhere.manifest.json", "--trusted-key", "/no.pub"], 2, ["/no.pub"]),
        (["verify", "/nowhere.manifest.json", "--attest", "x"], 2, ["--key"]),
        (["verify", "/nowhere.manifest.json", "--key", "x"], 2, ["--attest"]),
        (["check"], 2, ["MANIFEST"]),
        (["check", "/nowhere.manifest.json"], 2, ["/nowhere"]),
        (["diff", "/nowhere.manifest.json"], 2, []),
        (["show", "/nowhere.manifest.json"], 2, ["/nowhere"]),
        (["schema", "nonsense"], 2, ["nonsense", "manifest"]),
        (["explain", "RA999"], 2, ["RA999"]),
        (["keygen", "/nowhere/at/all/key.pem"], 2, ["/nowhere"]),
        (["bench", "--only", "everything"], 2, ["everything", "gemm"]),
        (["bench", "--only", "gemv", "--shape", "huge"], 2, ["huge", "llama-3-8b", "tiny"]),
        (["bench", "--shape", "tiny", "--model", "demo:smollm2-135m"], 2, ["--shape", "--model"]),
        (["bench", "--only", "gemv", "-o", "/nowhere/at/all.json"], 2, ["/nowhere"]),
    ],
)
def test_one_sentence(cli, model, tmp_path, monkeypatch, arguments, code, words):  # noqa: PLR0917
    monkeypatch.chdir(tmp_path)
    ran = cli(*[str(model) if argument == "M" else argument for argument in arguments])
    ran.refused(code, *words)
    assert ran.out == ""
    assert list(tmp_path.iterdir()) == []


def test_refusals_come_before_the_model(cli, tmp_path, monkeypatch):
    """An empty folder is no model; a bad prompt or output must be found first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    cli("run", "empty", "--prompt", "", "--unsigned").refused(2, "prompt is empty")
    cli("run", "empty", "--prompt", "a", "--unsigned", "-o", "no/where").refused(2, "no")
    (tmp_path / "taken.manifest.json").write_text("mine")
    cli("run", "empty", "--prompt", "a", "--unsigned", "-o", "taken").refused(2, "taken.manifest.json exists")
    assert (tmp_path / "taken.manifest.json").read_text() == "mine"


def test_prompt_longer_than_the_context_is_found_before_the_weights(cli, model, tmp_path, monkeypatch):
    import shutil

    monkeypatch.chdir(tmp_path)
    copy = shutil.copytree(model, tmp_path / "copy")
    for weights in copy.glob("*.safetensors"):
        weights.write_bytes(b"not even weights")
    ran = cli("run", copy, "--prompt", "x " * 300, "--unsigned")
    ran.refused(2, "context of 256")
    ran = cli("run", copy, "--prompt", "x", "--unsigned", "--max-new-tokens", "1000")
    ran.refused(2, "context of 256", "--max-new-tokens")


def test_prompts_file(cli, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.txt").write_text("one\n\nthree\n")
    cli("run", model, "--prompts", "p.txt", "--unsigned").refused(2, "line 2 of p.txt is empty")
    (tmp_path / "p.txt").write_text("")
    cli("run", model, "--prompts", "p.txt", "--unsigned").refused(2, "holds no prompt")
    (tmp_path / "p.txt").write_bytes(b"\xff\xfe")
    cli("run", model, "--prompts", "p.txt", "--unsigned").refused(2, "not UTF-8")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(cli, model, tmp_path):
    folder = tmp_path / "sealed"
    folder.mkdir(mode=0o500)
    cli("run", model, *RUN, "-o", folder / "x").refused(2, "sealed")


def test_bisect_exit_codes(cli, model, tmp_path):
    ran = cli("run", model, *RUN, "--exit-codes", "bisect", "-o", tmp_path / "no" / "where")
    ran.refused(125)


def test_dry_run_writes_nothing(cli, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = cli("run", model, *RUN, "--dry-run")
    assert ran.code == 0
    assert "nothing was run" in ran.out
    assert list(tmp_path.iterdir()) == []


def test_verbose_shows_the_traceback(cli, tmp_path):
    ran = cli("show", tmp_path / "no.manifest.json", "-v")
    assert ran.code == 2
    assert "Traceback" in ran.err


def test_version_and_help(cli):
    from repro_audit import __version__

    assert cli("-V").out == f"repro-audit {__version__}\n"
    assert "verify" in cli("-h").out


def test_help_is_instant_and_light():
    """Well under what a person notices: no torch, no numpy, no rich, no transformers."""
    code = (
        "import sys; from repro_audit.cli.main import run_and_exit; run_and_exit(['--help']); "
        "heavy = {'torch', 'numpy', 'rich', 'transformers', 'cryptography', 'yaml'} & set(sys.modules); "
        "sys.exit(f'help imports {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    times = []
    for _ in range(3):
        before = os.times()
        subprocess.run([sys.executable, "-m", "repro_audit.cli.main", "-h"], capture_output=True, check=True)
        after = os.times()
        times.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    assert min(times) < 0.6, times


def test_commands_of_a_laptop_without_torch(tmp_path: Path):
    """check, diff, show, explain, schema, env and keygen where torch cannot be imported."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    for arguments in (
        ["explain"],
        ["schema", "manifest"],
        ["keygen", str(tmp_path / "k.pem")],
        ["check", "no"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "repro_audit.cli.main", *arguments],
            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "no torch here" not in done.stderr, done.stderr
        assert done.returncode == (2 if arguments[0] == "check" else 0), (arguments, done.stderr)


def test_interrupt_is_130(monkeypatch, capfd, model, tmp_path):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("repro_audit.cli.run.record", interrupted)
    monkeypatch.chdir(tmp_path)
    assert run_and_exit(["run", str(model), *RUN]) == 130
    assert "Traceback" not in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_one_sentence(monkeypatch, capfd, model, tmp_path):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "x.manifest.json")

    monkeypatch.setattr("repro_audit.cli.run.record", full)
    monkeypatch.chdir(tmp_path)
    assert run_and_exit(["run", str(model), *RUN]) == 2
    assert "disk is full" in capfd.readouterr().err
