"""A verifier's weights that nothing can be computed with: still the weights are what is named."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.campaigns.weight_flips import Flip, flipped_file, tensors_of

NORM = "model.layers.0.post_attention_layernorm.weight"


@pytest.mark.parametrize(
    "damage",
    [
        (0x7F80, "holds Inf at flat index 5"),
        (0xFFC1, "holds NaN at flat index 5"),
        (0x7E3A, "non-finite"),
    ],
)
def test_tensor_is_named(cli, key, model, tmp_path, damage):
    bits, said = damage
    folder = shutil.copytree(model, tmp_path / "model")
    arguments = [
        "--prompt",
        "the man",
        "--max-new-tokens",
        "2",
        "--key",
        key,
        "-o",
        tmp_path / "record",
        "-q",
    ]
    assert cli("run", folder, *arguments).code == 0
    weights = folder / "model.safetensors"
    place = tensors_of(weights)[NORM]
    with weights.open("rb") as file:
        file.seek(place.start + 10)
        before = int.from_bytes(file.read(2), "little")
    changed = before ^ bits
    verify = ("verify", tmp_path / "record.manifest.json", "--model", folder)
    with flipped_file(weights, Flip(NORM, 5, changed, before)):
        ran = cli(*verify, "--trusted-key", key.with_name(key.name + ".pub"), "-f", "json")
    assert ran.code == 3, (ran.err, ran.out)
    findings = json.loads(ran.out)["findings"]
    assert [finding["code"] for finding in findings] == ["RA301", "RA504"]
    assert NORM in findings[0]["message"]
    assert said in findings[1]["message"]
