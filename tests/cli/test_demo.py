"""The demo on the real model: reproduced, damaged, caught, with the files left for a closer look."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))
import blocks


@pytest.mark.model
def test_demo(cli, tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    monkeypatch.chdir(tmp_path)
    ran = cli("demo")
    assert ran.code == 0, ran.err
    for words in (
        "The model wrote: The capital of France is Paris.",
        "REPRODUCED  every recorded bit was computed again and is the same",
        "DIVERGED",
        "RA301  model.layers.12.mlp.down_proj.weight",
        "RA402  model.layers.12.mlp at token 0 ('The')",
        "layer 12",
        "Next: repro-audit show",
    ):
        assert words in ran.out
    folder = tmp_path / "repro-audit-demo"
    assert {path.name for path in folder.iterdir()} == {
        "key.pem", "key.pem.pub", "smollm2.manifest.json", "smollm2.trace.safetensors", "tampered",
    }  # fmt: skip
    checked = cli(
        "check", folder / "smollm2.manifest.json", "--trusted-key", folder / "key.pem.pub", "-f", "json"
    )
    assert checked.code == 0
    cli("demo").refused(2, "repro-audit-demo", "--force")
    root = {fact["name"]: fact["value"] for fact in json.loads(checked.out)["facts"]}["run root"]
    transcript = blocks.read(blocks.README.read_text(encoding="utf-8"), "demo-transcript") or ""
    assert root in transcript, "README shows another run: python tests/docs/blocks.py --demo"
