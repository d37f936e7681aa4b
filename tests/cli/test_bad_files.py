"""Bad models, manifests and traces: exit code, one sentence, no traceback, no file, nothing overwritten."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from repro_audit.cli.app import _called
from tests.helpers.tiny_models import tiny_folder, tiny_gguf

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT / "manifests" / "vectors"
EXPECTED = json.loads((VECTORS / "expected.json").read_text())


def edited(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """The folder with its weights changed."""
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def set_value(name: str, value: float) -> Callable[[dict[str, torch.Tensor]], object]:
    def change(weights: dict[str, torch.Tensor]) -> None:
        weights[name].reshape(-1)[3] = value

    return change


def deleted_shard(path: Path) -> Path:
    folder = tiny_folder(path, shards=3)
    next(folder.glob("model-00002*")).unlink()
    return folder


def truncated_shard(path: Path) -> Path:
    folder = tiny_folder(path, shards=3)
    shard = next(folder.glob("model-00002*"))
    shard.write_bytes(shard.read_bytes()[:-100])
    return folder


def trailing_bytes(path: Path) -> Path:
    folder = tiny_folder(path)
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"\0" * 8)
    return folder


def zeroed_header(path: Path) -> Path:
    folder = tiny_folder(path)
    with (folder / "model.safetensors").open("r+b") as file:
        file.write(b"\0" * 64)
    return folder


def without_head(path: Path) -> Path:
    return edited(tiny_folder(path, tie_word_embeddings=False), lambda weights: weights.pop("lm_head.weight"))


def extra_tensor(path: Path) -> Path:
    return edited(tiny_folder(path), lambda weights: weights.update(stray=torch.zeros(3)))


def no_config(path: Path) -> Path:
    folder = tiny_folder(path)
    (folder / "config.json").unlink()
    return folder


def unknown_quantisation(path: Path) -> Path:
    """A GGUF file whose tensors claim a type that nobody can dequantise."""
    file = tiny_gguf(path.with_suffix(".gguf"))
    data = bytearray(file.read_bytes())
    name = b"blk.0.ffn_up.weight"
    # After the name: uint32 rank, uint64 dimensions, uint32 type.
    at = data.index(name) + len(name) + 4 + 2 * 8
    data[at : at + 4] = (39).to_bytes(4, "little")
    file.write_bytes(bytes(data))
    return file


MODELS = {
    "deleted shard": (deleted_shard, "model-00002"),
    "truncated shard": (truncated_shard, "model-00002"),
    "trailing bytes": (trailing_bytes, "model.safetensors"),
    "zeroed header": (zeroed_header, "model.safetensors"),
    "no lm_head": (without_head, "lm_head.weight"),
    "stray tensor": (extra_tensor, "stray"),
    "NaN": (
        lambda path: edited(tiny_folder(path), set_value("model.norm.weight", float("nan"))),
        "model.norm.weight",
    ),
    "Inf": (
        lambda path: edited(tiny_folder(path), set_value("model.layers.0.mlp.up_proj.weight", float("inf"))),
        "model.layers.0.mlp.up_proj.weight",
    ),
    "quantisation": (unknown_quantisation, "blk.0.ffn_up.weight"),
    "no config": (no_config, "config.json"),
}


@pytest.mark.parametrize("name", MODELS)
def test_bad_model(cli, tmp_path, name):
    make, word = MODELS[name]
    folder = make(tmp_path / "model")
    ran = cli("run", folder, "--prompt", "an", "--unsigned", "-o", tmp_path / "out")
    assert ran.code in (2, 5), ran.err
    ran.refused(ran.code, word)
    assert not list(tmp_path.glob("out*"))
    assert not list(tmp_path.glob(".out*"))


@pytest.mark.parametrize(
    ("factory", "code", "word"),
    [("make_training", 5, "training"), ("make_nothing", 5, "Module"), ("no_such", 2, "no_such")],
)
def test_bad_factory(cli, tmp_path, factory, code, word):
    ran = cli("run", f"python:tests.helpers.tiny_models:{factory}", "--unsigned", "-o", tmp_path / "out")
    assert ran.code in (2, 5), ran.err
    ran.refused(ran.code, word)
    assert not list(tmp_path.iterdir())


def test_operator_outside_the_table(cli, tmp_path, monkeypatch):
    (tmp_path / "odd_model.py").write_text(
        "import torch\n"
        "class Odd(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return torch.linalg.svdvals(x)\n"
        "def make():\n"
        "    return Odd().eval(), {'x': torch.eye(3)}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    cli("run", "python:odd_model:make", "--unsigned", "-o", "out").refused(5, "svd")
    assert not list(tmp_path.glob("out*"))


@pytest.fixture(scope="module")
def recorded(model, key, tmp_path_factory) -> Path:
    from repro_audit.cli.main import run_and_exit

    stem = tmp_path_factory.mktemp("record") / "good"
    arguments = ["run", model, "--prompt", "the an", "--key", key, "--max-new-tokens", "3", "-o", stem, "-q"]
    assert run_and_exit([str(argument) for argument in arguments]) == 0
    return stem.with_name("good.manifest.json")


@pytest.fixture
def no_load(monkeypatch) -> None:
    """Nothing may be loaded, imported or downloaded on behalf of what nobody trusted vouches for."""

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a model load began")

    from repro_audit.models import loader, spec

    monkeypatch.setattr(loader, "load_spec", forbidden)
    monkeypatch.setattr(spec, "parse_spec", forbidden)


def copied(recorded: Path, folder: Path) -> Path:
    for path in recorded.parent.iterdir():
        shutil.copy(path, folder / path.name)
    return folder / recorded.name


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(bytes(data))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def oversize(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(200 << 20)


def flip_signature(path: Path) -> None:
    tree = json.loads(path.read_text())
    signature = tree["signatures"][0]["sig"]
    tree["signatures"][0]["sig"] = ("A" if signature[0] != "A" else "B") + signature[1:]
    path.write_text(json.dumps(tree))


def drop_signature(path: Path) -> None:
    tree = json.loads(path.read_text())
    tree["signatures"] = []
    path.write_text(json.dumps(tree))


def flip_payload(path: Path) -> None:
    flip(path, path.read_bytes().index(b'"payload"') + 400)


DAMAGES = {
    "truncated": truncate,
    "oversized": oversize,
    "not JSON": lambda path: path.write_bytes(b"\x00\x01"),
    "empty": lambda path: path.write_bytes(b""),
    "signature flipped": flip_signature,
    "signature dropped": drop_signature,
    "payload flipped": flip_payload,
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("command", ["verify", "check"])
def test_damaged_manifest(cli, recorded, model, key, tmp_path, no_load, name, command):  # noqa: PLR0917
    manifest = copied(recorded, tmp_path)
    DAMAGES[name](manifest)
    before = manifest.stat().st_size
    extra = ("--model", model) if command == "verify" else ()
    ran = cli(command, manifest, "--trusted-key", f"{key}.pub", *extra)
    assert ran.code == 4, (ran.err, ran.out)
    if command == "verify":
        ran.refused(4)
    assert manifest.stat().st_size == before


@pytest.mark.parametrize(
    "damage", [truncate, lambda path: flip(path, 3000), lambda path: path.write_bytes(b"")]
)
def test_damaged_trace(cli, recorded, model, key, tmp_path, no_load, damage):  # noqa: PLR0917
    manifest = copied(recorded, tmp_path)
    damage(tmp_path / "good.trace.safetensors")
    cli("verify", manifest, "--model", model, "--trusted-key", f"{key}.pub").refused(4, "trace")


def test_another_key_is_not_trusted(cli, recorded, model, tmp_path, no_load):
    assert cli("keygen", tmp_path / "eve.pem").code == 0
    cli("verify", recorded, "--model", model, "--trusted-key", tmp_path / "eve.pem.pub").refused(4, "trusted")
    cli("verify", recorded, "--model", model).refused(4, "--trusted-key")


def test_trust_cannot_be_waived_by_environment_or_file(cli, recorded, model, tmp_path, monkeypatch, no_load):  # noqa: PLR0917
    monkeypatch.setenv("REPRO_AUDIT_INSECURE_ALLOW_UNTRUSTED", "1")
    ran = cli("verify", recorded, "--model", model)
    assert ran.code == 4
    assert "INSECURE" in ran.err
    (tmp_path / "c.yaml").write_text("insecure-allow-untrusted: true\n")
    cli("verify", recorded, "--model", model, "-c", tmp_path / "c.yaml").refused(2, "flag only")


def test_untrusted_manifest_imports_nothing(recorded, tmp_path):
    """In a fresh process: no torch, no transformers, no module of the model's, no socket."""
    hook = (
        "import sys, socket\n"
        "def no(*a, **k): raise AssertionError('network')\n"
        "socket.socket.connect = no\n"
        "class Hook:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'transformers', 'evil_model', 'huggingface_hub'):\n"
        "            raise AssertionError('import of ' + name)\n"
        "sys.meta_path.insert(0, Hook())\n"
        "from repro_audit.cli.main import run_and_exit\n"
        "sys.exit(run_and_exit(sys.argv[1:]))\n"
    )
    for spec in ("python:evil_model:make", "demo:smollm2-135m", "some/model"):
        done = subprocess.run(
            [sys.executable, "-c", hook, "verify", str(recorded), "--model", spec, "--online"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 4, done.stderr
        assert "Assertion" not in done.stderr


@pytest.mark.parametrize("name", sorted(name for name in EXPECTED if EXPECTED[name]["verdict"] != "VALID"))
def test_verify_refuses_every_vector_before_any_load(cli, no_load, name):
    runner = ROOT / "manifests" / "keys" / "runner.pub"
    vector = VECTORS / f"{name}.manifest.json"
    ran = cli("verify", vector, "--model", "demo:smollm2-135m", "--trusted-key", runner)
    ran.refused({"UNTRUSTED": 4, "INCONCLUSIVE": 5}[EXPECTED[name]["verdict"]], EXPECTED[name]["says"])
    assert ran.out == ""


def test_interrupt_in_the_middle(model, tmp_path):
    """Ctrl-C while it runs: 130, one sentence, no file under any name."""
    arguments = ["run", str(model), "--prompt", "the an " * 20, "--unsigned", "--max-new-tokens", "120"]
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "repro_audit.cli.main",
            *arguments,
            "--repeat",
            "200",
            "-o",
            str(tmp_path / "x"),
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        # A shell's background jobs, and these tests if they are one, ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    deadline = time.monotonic() + 60
    while "torch" not in Path(f"/proc/{process.pid}/maps").read_text() and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    # Python ends by the signal itself, which a shell shows as 130 too, if it interrupted an exec() of text.
    assert process.returncode in (130, -signal.SIGINT), err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_interrupt_while_a_class_is_made():
    """Most of a start is imports, and Python 3.11 turns Ctrl-C in one of them into a RuntimeError."""

    class Field:
        def __set_name__(self, owner, name):
            raise KeyboardInterrupt

    def command(common):
        try:
            type("Info", (), {"field": Field()})
        except RuntimeError as error:
            raise ImportError("cannot import Info") from error

    with pytest.raises(KeyboardInterrupt):
        _called(command, None, {})


def test_full_disk(model, tmp_path):
    """A file-size limit stands for a full disk: the write fails in the middle."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    arguments = ["run", str(model), "--prompt", "the an", "--unsigned", "--max-new-tokens", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "repro_audit.cli.main", *arguments, "-o", str(tmp_path / "x")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=ROOT,
    )
    assert done.returncode == 2, done.stderr
    assert "x." in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
