"""Tiny random models on disk: real transformers classes, real safetensors files, a real tokenizer.

``tiny_folder(tmp_path, "llama")`` writes a Hugging Face folder in well under a second, ``tiny_gguf`` a
GGUF file.
``make_mlp``, ``make_mlp_with_inputs``, ``make_training`` are factories for ``python:`` models.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DATED_TEMPLATE = "Today is {{ strftime_now('%d %b %Y') }}.\n" + CHAT_TEMPLATE
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCAB = 320

_DECODER = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
#: family -> (config class, model class, config values)
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", _DECODER),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**_DECODER, "sliding_window": 16}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", _DECODER),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**_DECODER, "head_dim": 16}),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM", _DECODER),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", _DECODER),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", {**_DECODER, "head_dim": 16, "sliding_window": 16}),
    "mixtral": (
        "MixtralConfig",
        "MixtralForCausalLM",
        {**_DECODER, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {
            "vocab_size": VOCAB,
            "n_embd": 64,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 256,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "gpt_neox": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {key: value for key, value in _DECODER.items() if key != "num_key_value_heads"},
    ),
}


def byte_vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of a byte-level BPE with 3 special tokens, 256 bytes and a few merges."""
    from tokenizers.pre_tokenizers import ByteLevel

    tokens = [*SPECIAL, *sorted(ByteLevel.alphabet())]
    merges = [
        ("t", "h"),
        ("th", "e"),
        ("Ġ", "the"),
        ("i", "n"),
        ("a", "n"),
        ("Ġ", "a"),
        ("e", "r"),
        ("o", "u"),
    ]
    tokens += [left + right for left, right in merges]
    return {token: index for index, token in enumerate(tokens)}, merges


def write_tokenizer(folder: Path, *, chat_template: str | None = CHAT_TEMPLATE) -> None:
    """Write tokenizer.json and tokenizer_config.json of the tiny tokenizer."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary, merges = byte_vocabulary()
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "model_max_length": 256,
        "clean_up_tokenization_spaces": False,
    }
    if chat_template is not None:
        config["chat_template"] = chat_template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def tiny_weights(family: str, *, dtype: torch.dtype, seed: int, overrides: dict[str, Any]) -> tuple[Any, Any]:
    """(config, state dict with tied tensors once) of a tiny model with seeded weights of a sane scale."""
    import transformers

    config_class, model_class, values = FAMILIES[family]
    config = getattr(transformers, config_class)(architectures=[model_class], **{**values, **overrides})
    config.dtype = dtype
    module = getattr(transformers, model_class)(config).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in module.state_dict().items():
        if tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        if not tensor.dtype.is_floating_point:
            state[name] = tensor
            continue
        drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float32) * (
            0.3 if tensor.ndim > 1 else 0.1
        )
        if name.endswith("weight") and tensor.ndim == 1:
            drawn += 1.0
        state[name] = drawn.to(dtype)
    return config, state


def tiny_folder(
    folder: Path,
    family: str = "llama",
    *,
    dtype: torch.dtype = torch.bfloat16,
    fp32_norms: bool = False,
    shards: int = 1,
    seed: int = 0,
    generation: dict[str, Any] | None = None,
    chat_template: str | None = CHAT_TEMPLATE,
    **overrides: Any,
) -> Path:
    """Write a Hugging Face folder and return it.

    Args:
        folder: made if it does not exist.
        family: a key of ``FAMILIES``.
        dtype: of the weights.
        fp32_norms: keep one-dimensional weights in fp32 in a 16-bit checkpoint.
        shards: number of safetensors files; more than one comes with an index.
        seed: of the weights.
        generation: values of generation_config.json beside the eos id.
        chat_template: None for a model without one.
        overrides: config values.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config, state = tiny_weights(family, dtype=dtype, seed=seed, overrides=overrides)
    if fp32_norms:
        generator = torch.Generator().manual_seed(seed + 1)
        for name, tensor in state.items():
            if tensor.ndim == 1 and tensor.is_floating_point():
                state[name] = 1 + 0.1 * torch.randn(tensor.shape, generator=generator)
    config.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, **(generation or {})}))
    write_tokenizer(folder, chat_template=chat_template)
    names = list(state)
    if shards == 1:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    weight_map: dict[str, str] = {}
    for index in range(shards):
        shard = f"model-{index + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: state[name] for name in names[index::shards]}
        save_file(part, folder / shard, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, shard)
    total = sum(tensor.nbytes for tensor in state.values())
    index_file = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index_file))
    return folder


def tiny_gguf(
    path: Path,
    arch: str = "llama",
    *,
    quantisation: str = "Q4_1",
    seed: int = 0,
    tie: bool = True,
    settings: dict[str, Any] | None = None,
) -> Path:
    """Write a GGUF file: quantised projections, fp32 norms, the tiny tokenizer.

    Args:
        arch: ``llama``, ``qwen2`` or ``qwen3``.
        quantisation: ggml type name of the two-dimensional weights.
        tie: leave out output.weight.
        settings: further metadata, ``{"llama.rope.scaling.type": "linear"}``; strings, ints and floats.
    """
    import gguf

    hidden, inner, heads, kv_heads, head = 64, 96, 4, 2, 16
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(256)
    writer.add_embedding_length(hidden)
    writer.add_block_count(2)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    if arch == "llama":
        writer.add_rope_dimension_count(head)
        writer.add_vocab_size(VOCAB)
    if arch == "qwen3":
        writer.add_key_length(head)
        writer.add_value_length(head)
    for key, value in (settings or {}).items():
        add = writer.add_string if isinstance(value, str) else None
        add = add or (writer.add_uint32 if isinstance(value, int) else writer.add_float32)
        add(key, value)
    vocabulary, merges = byte_vocabulary()
    tokens = list(vocabulary)
    tokens += [f"[PAD{index}]" for index in range(len(tokens), VOCAB)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)

    generator = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> None:
        data = (generator.standard_normal(shape) * (0.3 if len(shape) > 1 else 0.1)).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, data + np.float32(1))
            return
        kind = gguf.GGMLQuantizationType[quantisation]
        writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)

    weight("token_embd.weight", VOCAB, hidden)
    for block in range(2):
        weight(f"blk.{block}.attn_norm.weight", hidden)
        weight(f"blk.{block}.attn_q.weight", heads * head, hidden)
        weight(f"blk.{block}.attn_k.weight", kv_heads * head, hidden)
        weight(f"blk.{block}.attn_v.weight", kv_heads * head, hidden)
        if arch == "qwen2":
            weight(f"blk.{block}.attn_q.bias", heads * head)
            weight(f"blk.{block}.attn_k.bias", kv_heads * head)
            weight(f"blk.{block}.attn_v.bias", kv_heads * head)
        if arch == "qwen3":
            weight(f"blk.{block}.attn_q_norm.weight", head)
            weight(f"blk.{block}.attn_k_norm.weight", head)
        weight(f"blk.{block}.attn_output.weight", hidden, heads * head)
        weight(f"blk.{block}.ffn_norm.weight", hidden)
        weight(f"blk.{block}.ffn_gate.weight", inner, hidden)
        weight(f"blk.{block}.ffn_up.weight", inner, hidden)
        weight(f"blk.{block}.ffn_down.weight", hidden, inner)
    weight("output_norm.weight", hidden)
    if not tie:
        weight("output.weight", VOCAB, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Mlp(torch.nn.Module):
    """Two linears and a norm: [batch, 8] -> [batch, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.up = torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 4)
        self.register_buffer("scale", torch.full((4,), 0.5))
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x float32 [batch, 8] -> float32 [batch, 4]."""
        return self.down(torch.relu(self.up(self.norm(x)))) * self.scale


def make_mlp() -> torch.nn.Module:
    """An nn.Module in evaluation mode."""
    return Mlp().eval()


def make_mlp_with_inputs() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The same with its inputs: x float32 [3, 8]."""
    return make_mlp(), {"x": torch.arange(24, dtype=torch.float32).reshape(3, 8) / 8 - 1}


def make_training() -> torch.nn.Module:
    """A model that was left in training mode."""
    return Mlp()


def make_nothing() -> object:
    """A factory that makes no module."""
    return object()
