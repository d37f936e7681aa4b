"""Hugging Face folders: the module holds the file's bits, and what lies outside the contract is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import blake3
import pytest
import torch
from safetensors.torch import load_file, save_file

from repro_audit import models
from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.models.build import build
from repro_audit.progress import NullObserver
from tests.helpers.tiny_models import FAMILIES, tiny_folder

SHARD = "model-00002-of-00003.safetensors"


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_parameters_hold_the_files_bits_and_dtypes(tmp_path, family):
    folder = tiny_folder(tmp_path / "m", family, shards=2, fp32_norms=True)
    model = models.load(str(folder))
    stored = {k: v for shard in folder.glob("*.safetensors") for k, v in load_file(shard).items()}
    assert {item.name for item in model.tensors} == set(stored)
    state = model.module.state_dict()
    for name, value in stored.items():
        assert state[name].dtype == value.dtype and bits(state[name]) == bits(value), name
    assert {item.dtype for item in model.tensors} == {"bfloat16", "float32"}
    assert not any(child.training for child in model.module.modules())
    assert not any(parameter.requires_grad for parameter in model.module.parameters())
    assert model.module.config._attn_implementation == "eager"
    assert model.context_length == 256 and model.ignored_keys == () and model.cast_keys == ()


def test_digest_of_a_tensor_is_the_documented_one(tmp_path):
    folder = tiny_folder(tmp_path / "m", seed=3)
    model = models.load(str(folder))
    value = load_file(folder / "model.safetensors")["model.layers.1.mlp.up_proj.weight"]
    key = blake3.blake3(b'repro-audit row v1{"dtype":"bfloat16","shape":[96,64]}').digest()
    found = next(item for item in model.tensors if item.name == "model.layers.1.mlp.up_proj.weight")
    assert (found.dtype, found.shape) == ("bfloat16", (96, 64))
    assert found.digest == blake3.blake3(bits(value), key=key).hexdigest()


def test_root_is_model_signings(tmp_path):
    hashing = pytest.importorskip("model_signing.hashing", reason="model-signing is not installed")
    folder = tiny_folder(tmp_path / "m", shards=3)
    (folder / "README.md").write_text("a model")
    model = models.load(str(folder))
    manifest = hashing.Config().hash(folder)
    listed = {str(item.identifier): item.digest.digest_hex for item in manifest.resource_descriptors()}
    assert {file.name: file.sha256 for file in model.files} == listed
    assert all(file.size == (folder / file.name).stat().st_size for file in model.files)


def test_name_is_never_a_path(tmp_path, monkeypatch):
    folder = tiny_folder(tmp_path / "secret-place" / "m")
    monkeypatch.chdir(folder)
    model = models.load(".")
    assert model.name == "m" and "secret-place" not in repr([model.name, model.files, model.config_digest])


def test_config_digest_ignores_what_transformers_says_about_itself(tmp_path):
    folder = tiny_folder(tmp_path / "m")
    before = models.load(str(folder)).config_digest
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "transformers_version": "5.0.0"}, indent=7))
    assert models.load(str(folder)).config_digest == before
    (folder / "config.json").write_text(json.dumps({**values, "rms_norm_eps": 1e-5}))
    assert models.load(str(folder)).config_digest != before


def test_casts_are_undone_unless_asked_for(tmp_path):
    folder = tiny_folder(tmp_path / "m", fp32_norms=True)
    kept = models.load(str(folder), cast_weights=True)
    assert {item.dtype for item in kept.tensors} == {"bfloat16"}
    norms = {item.name for item in models.load(str(folder)).tensors if item.dtype == "float32"}
    assert norms and set(kept.cast_keys) == norms
    assert {source.parameter for source in kept.sources if source.how == "cast"} == norms


def test_tied_weights_are_listed_once(tmp_path):
    model = models.load(str(tiny_folder(tmp_path / "m", tie_word_embeddings=True)))
    assert model.tied == (("model.embed_tokens.weight", "lm_head.weight"),)
    assert "lm_head.weight" not in {item.name for item in model.tensors}


def test_keys_that_the_class_ignores_are_recorded(tmp_path):
    notes: list[str] = []
    observer = NullObserver()
    observer.note = notes.append
    for family, key in [
        ("gpt2", "transformer.h.0.attn.bias"),
        ("llama", "model.layers.0.self_attn.rotary_emb.inv_freq"),
    ]:
        folder = tiny_folder(tmp_path / family, family)
        before = models.load(str(folder))
        edit(folder, lambda state, key=key: state.__setitem__(key, torch.ones(4)))
        after = models.load(str(folder), observer=observer)
        assert after.ignored_keys == (key,) and after.tensors == before.tensors
        assert notes.pop().startswith(f"{key} is left out")


def test_a_checkpoint_of_the_inner_model(tmp_path):
    folder = tiny_folder(tmp_path / "m", "gpt2")
    before = models.load(str(folder))
    state = load_file(folder / "model.safetensors")
    save_file(
        {key.removeprefix("transformer."): value for key, value in state.items()},
        folder / "model.safetensors",
    )
    after = models.load(str(folder))
    assert after.tensors == before.tensors
    assert ("transformer.wte.weight", "rename", ("wte.weight",)) in [
        (s.parameter, s.how, s.keys) for s in after.sources
    ]


def test_stacked_experts_are_accounted_for(tmp_path):
    folder = tiny_folder(tmp_path / "m", "mixtral")
    before = models.load(str(folder))

    def unstack(state: dict[str, torch.Tensor]) -> None:
        for layer in range(2):
            base = f"model.layers.{layer}.mlp"
            fused, down = state.pop(f"{base}.experts.gate_up_proj"), state.pop(f"{base}.experts.down_proj")
            state[f"model.layers.{layer}.block_sparse_moe.gate.weight"] = state.pop(f"{base}.gate.weight")
            for expert in range(4):
                at = f"model.layers.{layer}.block_sparse_moe.experts.{expert}"
                state[f"{at}.w1.weight"], state[f"{at}.w3.weight"] = (
                    half.clone() for half in fused[expert].chunk(2)
                )
                state[f"{at}.w2.weight"] = down[expert].clone()

    edit(folder, unstack)
    after = models.load(str(folder))
    assert after.tensors == before.tensors
    how = {source.parameter: source for source in after.sources}
    fused = how["model.layers.1.mlp.experts.gate_up_proj"]
    assert fused.how == "stack-concatenate"
    at = "model.layers.1.block_sparse_moe.experts"
    assert fused.keys == tuple(f"{at}.{expert}.{w}.weight" for expert in range(4) for w in ("w1", "w3"))
    assert how["model.layers.0.mlp.experts.down_proj"].how == "stack"
    assert how["model.layers.0.mlp.gate.weight"].how == "rename"


def edit(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def set_json(folder: Path, name: str, **values: object) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def poison(key: str, index: int, value: float) -> Callable[[Path], object]:
    return lambda folder: edit(folder, lambda state: state[key].reshape(-1).__setitem__(index, value))


def pickle_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def escape(folder: Path) -> None:
    shutil.move(folder / "config.json", folder.parent / "config.json")
    (folder / "config.json").symlink_to(folder.parent / "config.json")


def break_merges(folder: Path) -> None:
    values = json.loads((folder / "tokenizer.json").read_text())
    values["model"]["merges"].append(["zz", "qq"])
    (folder / "tokenizer.json").write_text(json.dumps(values))


SINGLE: list[tuple[Callable[[Path], object], str]] = [
    (lambda f: (f / "config.json").unlink(), r"the model has no config\.json; "),
    (lambda f: (f / "config.json").write_text("{"), r"config\.json is not valid JSON"),
    (
        lambda f: set_json(f, "config.json", model_type="unheard_of"),
        r"cannot read config\.json \(unheard_of\)",
    ),
    (
        lambda f: set_json(f, "config.json", model_type="odd", auto_map={"AutoConfig": "x.Y"}),
        "asks for code of its own, which is never run",
    ),
    (lambda f: set_json(f, "config.json", architectures=["NoSuchModel"]), "no model class NoSuchModel"),
    (lambda f: set_json(f, "config.json", architectures=["AutoConfig"]), "no model class AutoConfig"),
    (
        lambda f: set_json(f, "config.json", architectures=["GPT2LMHeadModel"]),
        "not a class for model_type llama",
    ),
    (
        lambda f: set_json(f, "config.json", quantization_config={"quant_method": "fp8"}),
        r"the model is quantised \(fp8\)",
    ),
    (
        lambda f: set_json(f, "config.json", num_hidden_layers=3),
        r"no tensor for parameter model\.layers\.2\..* random",
    ),
    (
        lambda f: set_json(f, "config.json", num_hidden_layers=1),
        r"model\.layers\.1\..* and 8 more, for which Llama",
    ),
    (lambda f: set_json(f, "config.json", intermediate_size=80), "has shape .* where the config asks for"),
    (pickle_only, r"the weights are in pytorch_model\.bin, a pickle"),
    (
        lambda f: (f / "model.safetensors").unlink(),
        r"neither model\.safetensors nor model\.safetensors\.index\.json",
    ),
    (escape, r"config\.json is a link that leads out of the model folder"),
    (
        lambda f: edit(f, lambda s: s.pop("lm_head.weight")),
        r"no lm_head\.weight and the config does not tie it",
    ),
    (lambda f: edit(f, lambda s: s.pop("model.norm.weight")), r"no tensor for parameter model\.norm\.weight"),
    (
        lambda f: edit(f, lambda s: s.__setitem__("extra", torch.ones(2))),
        "the checkpoint holds extra, for which",
    ),
    (poison("model.norm.weight", 5, float("nan")), r"weight model\.norm\.weight holds NaN at flat index 5;"),
    (poison("lm_head.weight", 70, float("-inf")), r"weight lm_head\.weight holds -Inf at flat index 70;"),
    (
        lambda f: edit(
            f, lambda s: s.__setitem__("lm_head.weight", s["lm_head.weight"].to(torch.float8_e4m3fn))
        ),
        r"lm_head\.weight has dtype F8_E4M3, outside the contract",
    ),
    (
        lambda f: edit(f, lambda s: s.__setitem__("lm_head.weight", s["lm_head.weight"].double())),
        r"lm_head\.weight has dtype F64, outside the contract",
    ),
    (lambda f: (f / "tokenizer.json").write_text("{}"), "the tokenizer of m cannot be read"),
    (
        lambda f: set_json(f, "config.json", num_hidden_layers=10**9),
        "states 1000000000 layers where the checkpoint",
    ),
    (break_merges, r"the tokenizer of m cannot be read \(.*zz.*\)"),
    (lambda f: (f / "adapter_config.json").write_text("{}"), r"holds an adapter \(adapter_config\.json\)"),
]


@pytest.mark.parametrize(("damage", "message"), SINGLE)
def test_refused(tmp_path, damage, message):
    folder = tiny_folder(tmp_path / "m")
    damage(folder)
    with pytest.raises(InconclusiveError, match=message) as caught:
        models.load(str(folder))
    assert caught.value.hint and "\n" not in str(caught.value) and str(tmp_path) not in caught.value.message


def test_tied_by_config_but_two_tensors_in_the_file(tmp_path):
    folder = tiny_folder(tmp_path / "m")
    set_json(folder, "config.json", tie_word_embeddings=True)
    try:
        model = models.load(str(folder))
    except InconclusiveError as error:
        assert "differ in the checkpoint" in error.message
    else:
        # transformers unties what differs: then both are there, with the file's bits.
        stored = load_file(folder / "model.safetensors")["lm_head.weight"]
        assert bits(model.module.get_parameter("lm_head.weight")) == bits(stored)


def change_bytes(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def point_index(shard: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        name = "model.safetensors.index.json"
        weight_map = json.loads((folder / name).read_text())["weight_map"]
        set_json(folder, name, weight_map={**weight_map, "lm_head.weight": shard})

    return change


def unlist(folder: Path) -> None:
    name = "model.safetensors.index.json"
    weight_map = json.loads((folder / name).read_text())["weight_map"]
    set_json(folder, name, weight_map={k: v for k, v in weight_map.items() if k != "lm_head.weight"})


def hole(folder: Path) -> None:
    data = (folder / SHARD).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    next(value for key, value in header.items() if key != "__metadata__")["data_offsets"] = [4, 8]
    raw = json.dumps(header).encode()
    (folder / SHARD).write_bytes(len(raw).to_bytes(8, "little") + raw + data[8 + length :])


SHARDED: list[tuple[Callable[[Path], object], str]] = [
    (lambda f: (f / SHARD).unlink(), f"the shard {SHARD} is missing"),
    (lambda f: change_bytes(f / SHARD, lambda b: b[:-1]), f"{SHARD} is truncated: "),
    (lambda f: change_bytes(f / SHARD, lambda b: b[:5]), f"{SHARD} has no safetensors header"),
    (lambda f: change_bytes(f / SHARD, lambda b: b[:100]), f"{SHARD} says its header has "),
    (lambda f: change_bytes(f / SHARD, lambda b: b + b"\0"), f"{SHARD} has 1 trailing bytes"),
    (lambda f: change_bytes(f / SHARD, lambda b: bytes(64) + b[64:]), f"{SHARD} has no safetensors header"),
    (
        lambda f: change_bytes(f / SHARD, lambda b: b[:8] + bytes(64) + b[72:]),
        f"{SHARD} has a damaged header",
    ),
    (lambda f: change_bytes(f / SHARD, lambda b: b"\xff" * 8 + b[8:]), f"{SHARD} says its header has "),
    (hole, f"{SHARD}: tensor .* has a size that is not its shape's"),
    (point_index("../other.safetensors"), "which is not a safetensors file of this folder"),
    (point_index("/etc/passwd"), "which is not a safetensors file of this folder"),
    (point_index("absent.safetensors"), r"the shard absent\.safetensors is missing"),
    (point_index(SHARD), f"expects lm_head.weight in {SHARD}, which does not hold it"),
    (unlist, r"holds lm_head\.weight, which model\.safetensors\.index\.json does not list"),
]


@pytest.mark.parametrize(("damage", "message"), SHARDED)
def test_refused_shards(tmp_path, damage, message):
    folder = tiny_folder(tmp_path / "m", shards=3)
    damage(folder)
    with pytest.raises(InconclusiveError, match=message) as caught:
        models.load(str(folder))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no/such/place", "no model at 'no/such/place'"),
        ("demo:other", "no packaged model 'demo:other'"),
        ("python:a.py:f", "is not a Python model"),
        ("org/name@../../x", "is not a hub revision"),
    ],
)
def test_specs_that_name_nothing(spec, message):
    with pytest.raises(UsageError, match=message):
        models.load(spec)


def test_a_pickle_by_name(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"")
    with pytest.raises(UsageError, match=r"w\.bin is a pickle"):
        models.load(str(tmp_path / "w.bin"))


def test_accounting_does_not_believe_the_loader(tmp_path, monkeypatch):
    """Control: a loader that changes one bit of one weight after the fact is caught by name."""
    import transformers

    folder = tiny_folder(tmp_path / "m")
    state = load_file(folder / "model.safetensors")
    config = transformers.AutoConfig.from_pretrained(folder)
    genuine = transformers.LlamaForCausalLM.from_pretrained.__func__

    def corrupting(cls, *args, **kwargs):
        module, info = genuine(cls, *args, **kwargs)
        changed = module.model.norm.weight.data.clone()
        changed.view(torch.int16)[3] ^= 1
        module.model.norm.weight.data = changed
        return module, info

    build(config, state)
    monkeypatch.setattr(transformers.LlamaForCausalLM, "from_pretrained", classmethod(corrupting))
    with pytest.raises(InconclusiveError, match=r"model\.norm\.weight .* does not hold the values"):
        build(config, state)
