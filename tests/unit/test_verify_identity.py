"""Which model may be loaded on behalf of a manifest, and when it is not the model described."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from manifests import synthetic
from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.manifest.parse import parse_manifest
from repro_audit.manifest.types import Manifest
from repro_audit.models import loader
from repro_audit.models import spec as kinds
from repro_audit.models.loaded import GenerationDefaults
from repro_audit.progress import NullObserver
from repro_audit.settings import Decoding
from repro_audit.verify import identity


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return parse_manifest(synthetic.make().write()[0])


def named(manifest: Manifest, **changes: Any) -> Manifest:
    return replace(manifest, model=replace(manifest.model, **changes))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[kinds.ModelSpec, bool]]:
    """What the loader was asked for, and whether it might download."""
    calls: list[tuple[kinds.ModelSpec, bool]] = []

    def load_spec(spec: kinds.ModelSpec, *, online: bool, **_: object) -> str:
        calls.append((spec, online))
        return "a model"

    monkeypatch.setattr(loader, "load_spec", load_spec)
    return calls


def test_without_a_model_only_a_pinned_hub_revision_from_the_cache(manifest, asked, tmp_path, monkeypatch):
    """A folder of the same spelling in the working directory is not opened, and nothing is downloaded."""
    (tmp_path / manifest.model.name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    identity.load(None, manifest, True, NullObserver())
    ((spec, online),) = asked
    assert (spec.kind, spec.name, spec.revision, spec.path) == (
        "hub",
        "synthetic/two-blocks",
        manifest.model.revision,
        None,
    )
    assert online is False


def test_the_packaged_demo_needs_no_name(manifest, asked):
    identity.load(
        None, named(manifest, name="demo:smollm2-135m", kind="gguf", revision=None), True, NullObserver()
    )
    assert [(spec.kind, online) for spec, online in asked] == [("demo", False)]


@pytest.mark.parametrize(
    "changes",
    [
        {"revision": None},
        {"revision": "main"},
        {"name": "../../etc/passwd"},
        {"name": "/etc/passwd"},
        {"name": "python:os:getcwd"},
        {"name": "demo:other"},
        {"name": "a/b/c"},
        {"kind": "python", "name": "synthetic/two-blocks"},
    ],
)
def test_a_manifest_names_nothing_else(manifest, asked, changes):
    with pytest.raises(UsageError, match="--model"):
        identity.load(None, named(manifest, **changes), True, NullObserver())
    assert asked == []


def test_the_same_model_has_no_findings(manifest):
    assert identity.compare(synthetic.identity(), manifest) == ([], set())


def test_a_changed_tensor_is_named_with_its_ties(manifest):
    given = synthetic.identity()
    tensors = tuple(
        replace(tensor, digest="00" * 32) if tensor.name == "model.embed_tokens.weight" else tensor
        for tensor in given.tensors
    )
    findings, changed = identity.compare(replace(given, tensors=tensors), manifest)
    assert [finding.code for finding in findings] == ["RA301"]
    assert "model.embed_tokens.weight" in findings[0].message
    assert changed == {"model.embed_tokens.weight", "lm_head.weight"}


def test_another_tokenizer_is_a_note(manifest):
    findings, changed = identity.compare(replace(synthetic.identity(), tokenizer_digest="11" * 32), manifest)
    assert ([finding.code for finding in findings], changed) == (["RA305"], set())


def test_other_files_of_the_same_tensors_are_a_note(manifest):
    findings, changed = identity.compare(replace(synthetic.identity(), root="11" * 32), manifest)
    assert ([finding.code for finding in findings], changed) == (["RA306"], set())
    given = synthetic.identity()
    files = (replace(given.files[0], sha256="11" * 32), given.files[1])
    findings, _ = identity.compare(replace(given, root="11" * 32, files=files), manifest)
    assert findings[0].message.endswith("given here: config.json")


def test_decoding_that_is_not_the_model_s(manifest):
    decoding = manifest.settings.decoding
    own = GenerationDefaults(
        temperature=decoding.temperature,
        top_k=decoding.top_k,
        top_p=decoding.top_p,
        eos_token_ids=decoding.stop_token_ids,
    )

    def found(claimed: Decoding, model: GenerationDefaults) -> list[str]:
        other = replace(manifest, settings=replace(manifest.settings, decoding=claimed))
        return [f.code for f in identity.compare_decoding(SimpleNamespace(generation=model), other)]

    for source in ("arguments", "generation_config"):
        claimed = replace(decoding, source=source)
        assert found(claimed, own) == []
        assert found(replace(claimed, stop_token_ids=(*decoding.stop_token_ids, 7)), own) == ["RA308"]
        expected = ["RA308"] if source == "generation_config" else []
        assert found(replace(claimed, temperature=decoding.temperature + 1), own) == expected
        assert found(replace(claimed, top_k=decoding.top_k + 1), own) == expected
        assert found(replace(claimed, top_p=decoding.top_p / 2), own) == expected


@pytest.mark.parametrize("what", ["kind", "config", "missing", "extra", "shape", "dtype", "tied"])
def test_not_the_model_described(manifest, what):
    given = synthetic.identity()
    first, *rest = given.tensors
    changed = {
        "kind": {"kind": "gguf"},
        "config": {"config_digest": "00" * 32},
        "missing": {"tensors": tuple(rest)},
        "extra": {"tensors": (*given.tensors, replace(first, name="stray"))},
        "shape": {"tensors": (replace(first, shape=(2, 8)), *rest)},
        "dtype": {"tensors": (replace(first, dtype="float16"), *rest)},
        "tied": {"tied": ()},
    }[what]
    with pytest.raises(InconclusiveError, match="not the model described"):
        identity.compare(replace(given, **changed), manifest)


def test_scalars_buffers_and_constants_are_compared(manifest):
    record = synthetic.make().record
    assert identity.compare_derived(manifest, record) == ([], set())
    record.scalars = (*record.scalars[:1], replace(record.scalars[1], value=(0.25).hex()))
    record.buffers = (replace(record.buffers[0], digest="00" * 32),)
    record.constants = (replace(record.buffers[0], name="constant"),)
    findings, changed = identity.compare_derived(manifest, record)
    assert [finding.code for finding in findings] == ["RA302", "RA304", "RA303", "RA303"]
    assert changed == {"model.rotary_emb.inv_freq", "constant"}
