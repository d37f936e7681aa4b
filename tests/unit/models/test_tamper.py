"""A changed copy loads as the same model and differs in exactly one element of one tensor."""

from __future__ import annotations

import pytest
import torch

from repro_audit import models
from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.models.tamper import tampered_copy
from tests.helpers.tiny_models import tiny_folder, tiny_gguf


def spec_of(kind: str, tmp_path) -> str:
    if kind == "folder":
        return str(tiny_folder(tmp_path / "m", shards=2, fp32_norms=True))
    return str(tiny_gguf(tmp_path / "m.gguf", kind.split("-")[1], quantisation=kind.split("-")[2]))


@pytest.mark.parametrize("kind", ["folder", "gguf-llama-Q4_1", "gguf-llama-Q8_0", "gguf-qwen2-BF16"])
def test_one_element_of_one_tensor(tmp_path, kind):
    spec = spec_of(kind, tmp_path)
    base = models.load(spec)
    for seed in range(4):
        changed = tampered_copy(spec, tmp_path / f"copy{seed}", seed)
        model = models.load(str(changed.path))
        assert (model.config_digest, model.tokenizer_digest) == (base.config_digest, base.tokenizer_digest)
        assert [a.name for a, b in zip(base.tensors, model.tensors, strict=True) if a != b] == [
            changed.tensor
        ]
        before, after = (m.module.get_parameter(changed.tensor).reshape(-1) for m in (base, model))
        integer = torch.int16 if before.element_size() == 2 else torch.int32
        differing = (before.view(integer) != after.view(integer)).nonzero().reshape(-1).tolist()
        assert differing == [changed.element]
        assert (float(before[changed.element]), float(after[changed.element])) == (
            changed.before,
            changed.after,
        )


def test_a_named_tensor_and_a_seed_are_followed(tmp_path):
    spec = spec_of("folder", tmp_path)
    first = tampered_copy(spec, tmp_path / "a", 5, tensor="model.norm.weight")
    second = tampered_copy(spec, tmp_path / "b", 5, tensor="model.norm.weight")
    assert first.tensor == "model.norm.weight"
    assert (first.element, first.bit, first.after) == (second.element, second.bit, second.after)
    with pytest.raises(InconclusiveError, match="no tensor nowhere"):
        tampered_copy(spec, tmp_path / "c", tensor="nowhere")


def test_nothing_is_overwritten(tmp_path):
    spec = spec_of("folder", tmp_path)
    with pytest.raises(UsageError, match="is not empty"):
        tampered_copy(spec, tmp_path / "m")
    with pytest.raises(UsageError, match="cannot be copied with a change"):
        tampered_copy("python:tests.helpers.tiny_models:make_mlp", tmp_path / "n")
