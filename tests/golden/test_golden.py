"""The golden manifests: recorded once, reproduced by every later version, or the profile has changed.

Other sources, another instruction set or another release of a library must give the same bits. If one of
these fails, the change is wrong; recording them again is for a new version of the profile.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from repro_kernels.cpu import native

from manifests import record_golden
from repro_audit import models
from repro_audit.errors import UntrustedError
from repro_audit.manifest.keys import load_public
from repro_audit.models.loaded import LoadedModel
from repro_audit.progress import NullObserver
from repro_audit.verdict import Result
from repro_audit.verify import identity
from repro_audit.verify.verify import Options, verify

pytestmark = pytest.mark.model
ROOT = record_golden.FOLDER.parent
GOLDEN = record_golden.FOLDER / "golden" / "fp32"
NAMES = [golden.name for golden in record_golden.GOLDEN]
GPU_KEY = record_golden.key_of("cuda")
DAMAGED = "model.layers.12.mlp.down_proj.weight"


@functools.cache
def _load(name: str) -> LoadedModel:
    return models.load(name, observer=NullObserver())


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return _load(record_golden.MODEL)


def _verify(
    path: Path, model: LoadedModel, monkeypatch: pytest.MonkeyPatch, key: Path = GPU_KEY, device: str = "cpu"
) -> Result:
    """The verdict with this model at hand, whose file is read once for all tests here."""
    monkeypatch.setattr(identity, "load", lambda *_: model)
    options = Options(path, trusted=(load_public(str(key)),), device=device)
    return verify(options, NullObserver()).result


@pytest.fixture
def damaged(model: LoadedModel) -> Iterator[None]:
    """One bit of one weight flipped in memory, and flipped back."""
    bits = model.module.get_parameter(DAMAGED).data.view(torch.int32).view(-1)
    bits[794_761] ^= 1 << 20
    yield
    bits[794_761] ^= 1 << 20


def test_the_folder_holds_what_the_script_lists() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {
        name + suffix for name in NAMES for suffix in (".manifest.json", ".trace.safetensors")
    }
    assert sum(path.stat().st_size for path in GOLDEN.iterdir()) < 2 << 20


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("golden", record_golden.GOLDEN, ids=NAMES)
def test_every_bit_is_reproduced(golden, device, monkeypatch) -> None:
    path, key = GOLDEN / f"{golden.name}.manifest.json", record_golden.key_of(golden.device)
    result = _verify(path, _load(golden.model), monkeypatch, key, device)
    assert result.verdict.value == "REPRODUCED", result.findings
    assert result.findings == ()
    payload = json.loads((GOLDEN / f"{golden.name}.manifest.json").read_text())["payload"]
    predicate = json.loads(base64.b64decode(payload))["predicate"]
    assert [s["promptText"] for s in predicate["sequences"] if "promptText" in s] == list(golden.prompts)
    recorded = {fact["name"]: fact["value"] for fact in predicate["environment"]}
    assert recorded["device"].startswith(golden.device)
    assert predicate["level"] == golden.level
    assert predicate["profile"]["activations"] == golden.activations


def test_the_instruction_set_without_fma_gives_the_same_bits() -> None:
    if native.available() == ["neon"]:
        pytest.skip("aarch64 has one instruction set")
    command = ["verify", GOLDEN / "greedy.manifest.json", "--trusted-key", GPU_KEY, "-q"]
    script = "import sys; from repro_audit.cli.main import run_and_exit; sys.exit(run_and_exit(sys.argv[1:]))"
    ran = subprocess.run(
        [sys.executable, "-c", script, *map(str, command)],
        env=os.environ | {native.ISA_VARIABLE: "base"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_prover_with_another_weight_is_caught(model, damaged, monkeypatch) -> None:
    # The digests say the genuine weights: what ran is seen at the point that read the damaged one.
    result = _verify(GOLDEN / "greedy.manifest.json", model, monkeypatch)
    assert result.verdict.value == "DIVERGED"
    origins = [finding for finding in result.findings if finding.kind == "origin"]
    assert {(f.code, f.point) for f in origins} == {("RA401", "model.layers.12.mlp")}
    assert {f.sequence for f in origins} == {0, 1}


def test_a_verifier_with_another_weight_is_told_which(model, damaged, monkeypatch) -> None:
    other = dataclasses.replace(
        model,
        tensors=tuple(
            dataclasses.replace(t, digest="00" * 32) if t.name == DAMAGED else t for t in model.tensors
        ),
    )
    result = _verify(GOLDEN / "greedy.manifest.json", other, monkeypatch)
    assert result.verdict.value == "DIVERGED"
    assert [f.message for f in result.findings if f.code == "RA301"] == [
        f"{DAMAGED} (float32 [576, 1536]) has other bits"
    ]
    assert {f.point for f in result.findings if f.code == "RA402"} == {"model.layers.12.mlp"}


@pytest.mark.parametrize("suffix", [".manifest.json", ".trace.safetensors"])
def test_a_changed_byte_is_not_trusted(suffix, tmp_path, model, monkeypatch) -> None:
    for path in GOLDEN.glob("greedy.*"):
        shutil.copy(path, tmp_path)
    changed = tmp_path / f"greedy{suffix}"
    data = bytearray(changed.read_bytes())
    data[len(data) // 2] ^= 1
    changed.write_bytes(data)
    with pytest.raises(UntrustedError):
        _verify(tmp_path / "greedy.manifest.json", model, monkeypatch)
