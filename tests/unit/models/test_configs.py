"""Configurations and generation settings that are wrong: each is one sentence that names what is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.models.generation import resolve
from repro_audit.models.hf import load_folder
from repro_audit.progress import NullObserver
from tests.helpers.tiny_models import tiny_folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("configs") / "tiny")


def load(folder: Path, tmp_path: Path, **changes: Any) -> Any:
    """The model with other config values; files are links, but for config.json."""
    values = json.loads((folder / "config.json").read_text()) | changes
    other = tmp_path / "model"
    other.mkdir()
    for file in folder.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    (other / "config.json").write_text(json.dumps(values))
    return load_folder(other, "model", observer=NullObserver())


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 0},
        {"num_attention_heads": 3},
        {"rms_norm_eps": "x"},
        {"rms_norm_eps": float("nan")},
        {"rms_norm_eps": float("inf")},
        {"num_hidden_layers": 2.0},
        {"max_position_embeddings": "x"},
        {"hidden_act": 5},
        {"rope_parameters": [1]},
        {"architectures": 5},
        {"vocab_size": 10**12},
        {"num_labels": 10**12},
        {"text_config": {"num_hidden_layers": 10**12}},
    ],
    ids=lambda changes: "-".join(f"{key}-{value}" for key, value in changes.items()),
)
def test_what_a_config_may_not_say(tiny, tmp_path, changes):
    with pytest.raises(InconclusiveError, match=r"config\.json|architectures"):
        load(tiny, tmp_path, **changes)


def test_a_number_too_large_for_a_double(tiny, tmp_path):
    folder = tiny_folder(tmp_path / "tiny")
    config = folder / "config.json"
    config.write_text(config.read_text().replace("{", '{"x": 1e999,', 1))
    with pytest.raises(InconclusiveError, match="too large"):
        load_folder(folder, "tiny", observer=NullObserver())


def test_how_a_forward_pass_wraps_its_results_is_ours_to_say(tiny, tmp_path):
    assert load(tiny, tmp_path, return_dict=False).module.config.return_dict is True


@pytest.mark.parametrize(
    "eos", ["abc", [[1]], -1, 2**31, 10**30, 2.5, True, {"a": 1}, list(range(5000))], ids=str
)
def test_stop_tokens_are_token_ids(eos):
    with pytest.raises(InconclusiveError, match="eos_token_id"):
        resolve({"eos_token_id": eos}, {})
    assert resolve({"eos_token_id": [7, 2, 7]}, {}).eos_token_ids == (2, 7)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", "x"),
        ("temperature", [1]),
        ("temperature", -1.0),
        ("temperature", True),
        ("top_k", "a"),
        ("top_k", -1),
        ("top_k", 2**31),
        ("top_k", 1.5),
        ("top_p", 0.0),
        ("top_p", 1.5),
    ],
)
def test_sampling_options_out_of_their_range_are_named(option, value):
    assert resolve({"do_sample": True, option: value}, {}).unsupported == ((option, json.dumps(value)),)
    assert resolve({"do_sample": False, option: value}, {}).unsupported == ()
    assert resolve({"do_sample": "true"}, {}).unsupported == (("do_sample", '"true"'),)


@pytest.mark.parametrize(
    "template", ["{{ 1 / 0 }}", "{{ messages[9].x.y }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"]
)
def test_a_template_that_fails(tmp_path, template):
    model = load_folder(
        tiny_folder(tmp_path / "tiny", chat_template=template), "tiny", observer=NullObserver()
    )
    with pytest.raises(InconclusiveError, match="chat template"):
        model.encode("the", chat=True)


def test_text_that_is_not_unicode(tmp_path):
    model = load_folder(
        tiny_folder(tmp_path / "tiny", chat_template="{{ '\\ud800' }}"), "tiny", observer=NullObserver()
    )
    with pytest.raises(UsageError, match="not Unicode"):
        model.encode("the \udcff")
    with pytest.raises(InconclusiveError, match="not Unicode"):
        model.encode("the", chat=True)
