"""Hub ids against a loopback server: pinned, cached, offline by default, hostile content refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from repro_audit import models
from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.progress import NullObserver
from tests.helpers.tiny_models import tiny_folder
from tests.unit.models.hub_server import Hub, serve

FIRST, SECOND = "1" * 40, "2" * 40


class Bytes(NullObserver):
    """Adds up what each stage advances."""

    def __init__(self) -> None:
        self.stages: dict[str, int] = {}
        self.current = ""

    def stage(self, name: str, total: int | None = None) -> None:
        self.current = name
        self.stages[name] = 0

    def advance(self, n: int = 1) -> None:
        self.stages[self.current] += n


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A server with org/tiny: two commits, main and v1."""
    with serve() as running:
        first = tiny_folder(tmp_path / "first", shards=2)
        (first / "pytorch_model.bin").write_bytes(b"\x80\x04pickle")
        (first / "modeling_evil.py").write_text("raise SystemExit(1)")
        running.add("org/tiny", FIRST, first, "v1")
        running.add("org/tiny", SECOND, tiny_folder(tmp_path / "second", seed=1), "main")
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        yield running


def test_fetches_the_revision_and_then_needs_no_network(hub, tmp_path):
    observer = Bytes()
    model = models.load("org/tiny@v1", online=True, observer=observer)
    weights = sum(file.size for file in model.files if file.name.endswith(".safetensors"))
    assert observer.stages["Fetching org/tiny@v1"] >= weights
    assert (model.name, model.revision, model.kind) == ("org/tiny", FIRST, "hf")
    assert model.tensors == models.load(str(tmp_path / "first")).tensors
    assert not {"pytorch_model.bin", "modeling_evil.py"} & {file.name for file in model.files}
    asked = len(hub.requests)
    again = models.load(f"org/tiny@{FIRST}")
    assert again.tensors == model.tensors and again.root == model.root
    assert len(hub.requests) == asked


def test_no_revision_means_main_and_the_commit_is_recorded(hub):
    assert models.load("org/tiny", online=True).revision == SECOND


def test_offline_by_default(hub):
    with pytest.raises(UsageError, match="not in the local hub cache; add --online"):
        models.load("org/tiny@v1")
    assert hub.requests == []


def test_another_revision_is_not_taken_from_the_cache(hub):
    models.load("org/tiny@v1", online=True)
    with pytest.raises(UsageError, match="not in the local hub cache"):
        models.load(f"org/tiny@{SECOND}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [("org/tiny@nope", "no revision nope of org/tiny"), ("org/other", "no model org/other")],
)
def test_what_the_hub_does_not_have(hub, spec, message):
    with pytest.raises(UsageError, match=message):
        models.load(spec, online=True)


def test_a_file_that_is_not_what_the_hub_said(hub):
    hub.corrupt.add("model-00001-of-00002.safetensors")
    with pytest.raises(
        InconclusiveError, match=r"model-00001-of-00002\.safetensors in the hub cache hashes to"
    ):
        models.load("org/tiny@v1", online=True)


def test_unreachable(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UsageError, match="could not be fetched"):
        models.load("org/tiny@v1", online=True)


def test_offline_switch(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match=r"HF_HUB_OFFLINE|not be fetched"):
        models.load("org/tiny@v1", online=True)


def test_a_link_out_of_the_snapshot(hub, tmp_path):
    models.load("org/tiny@v1", online=True)
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    snapshot = tmp_path / "cache" / "models--org--tiny" / "snapshots" / FIRST
    (snapshot / "generation_config.json").unlink()
    (snapshot / "generation_config.json").symlink_to(secret)
    with pytest.raises(InconclusiveError, match=r"generation_config\.json is a link that leads out"):
        models.load("org/tiny@v1")
