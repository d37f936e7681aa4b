"""What a GGUF file of a known architecture means in transformers' terms: config values and tensor names.

The table is small on purpose: a setting or a tensor that is not in it is refused, never ignored, because an
ignored rope scaling is another model. A test compares it with transformers' own conversion.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from repro_audit.errors import InconclusiveError
from repro_audit.models.gguf_file import GgufFile

Array = npt.NDArray[np.float32]
_Item = TypeVar("_Item", bound=np.generic)

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
#: metadata key after the architecture -> config key
_CONFIG = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
#: Settings that are read in another way, or that change nothing at the value given.
_READ_ELSEWHERE = {"rope.freq_base", "rope.dimension_count", "vocab_size", "attention.key_length"}
_NEUTRAL = {"expert_count": (0,), "expert_used_count": (0,), "rope.scaling.type": ("none",)}
#: attention.value_length is checked against the head size below.
_VALUE_LENGTH = "attention.value_length"


@dataclass(frozen=True)
class Architecture:
    """transformers' names for one GGUF architecture.

    ``permuted``: llama.cpp's converter interleaves the two halves of each rotary pair in q and k.
    """

    config_class: str
    model_class: str
    permuted: bool = False


ARCHITECTURES = {
    "llama": Architecture("LlamaConfig", "LlamaForCausalLM", permuted=True),
    "qwen2": Architecture("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": Architecture("Qwen3Config", "Qwen3ForCausalLM"),
}


def architecture(gguf: GgufFile, name: str) -> tuple[str, Architecture]:
    """The file's architecture and its row of the table.

    Raises:
        InconclusiveError: an architecture that is not in the table.
    """
    stated = ascii(gguf.metadata.get("general.architecture", "none")).strip("'")[:60]
    if stated not in ARCHITECTURES:
        raise InconclusiveError(
            f"{name} has GGUF architecture {stated}, which is not covered",
            hint=f"covered are {', '.join(ARCHITECTURES)}; use the model's safetensors folder instead",
        )
    return stated, ARCHITECTURES[stated]


def config_values(gguf: GgufFile, stated: str, name: str) -> dict[str, Any]:
    """Arguments of the config class.

    Raises:
        InconclusiveError: a setting is missing, or one is present that the table does not cover.
    """
    prefix = stated + "."
    found = {
        key.removeprefix(prefix): value for key, value in gguf.metadata.items() if key.startswith(prefix)
    }
    missing = next((key for key in _CONFIG if key not in found and key != "attention.head_count_kv"), None)
    if missing is not None:
        raise InconclusiveError(f"{name} does not state {prefix}{missing}", hint="convert the model again")
    for key, value in found.items():
        covered = key in _CONFIG or key in _READ_ELSEWHERE or key == _VALUE_LENGTH
        if not covered and value not in _NEUTRAL.get(key, ()):
            raise InconclusiveError(
                f"{name} states {prefix}{key} = {value!a:.60}, which is not covered",
                hint="use the model's safetensors folder instead",
            )
    values: dict[str, Any] = {target: found[key] for key, target in _CONFIG.items() if key in found}
    values.setdefault("num_key_value_heads", values["num_attention_heads"])
    blocks = len({match[1] for tensor in gguf.tensors if (match := _BLOCK_NAME.fullmatch(tensor.name))})
    whole = {key: value for key, value in values.items() if key != "rms_norm_eps"}
    if not all(type(value) is int and 0 < value < 1 << 31 for value in whole.values()):
        raise InconclusiveError(
            f"{name} has settings that differ between layers, or are no sizes",
            hint="use the safetensors folder",
        )
    if values["num_hidden_layers"] != blocks:
        raise InconclusiveError(
            f"{name} states {values['num_hidden_layers']} blocks and holds {blocks}",
            hint="fetch the file again",
        )
    theta = found.get("rope.freq_base", 10000.0)
    if not (isinstance(theta, float) and isinstance(values["rms_norm_eps"], float)):
        raise InconclusiveError(f"{name} has settings that are no numbers", hint="convert the model again")
    head = found.get("attention.key_length", values["hidden_size"] // values["num_attention_heads"])
    if found.get("rope.dimension_count", head) != head or found.get(_VALUE_LENGTH, head) != head:
        raise InconclusiveError(
            f"{name} has rotary or value sizes other than its head size {head}",
            hint="use the safetensors folder",
        )
    values["head_dim"] = head
    values["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    values["vocab_size"] = found.get("vocab_size", len(tokens) if isinstance(tokens, list) else 0)
    values["tie_word_embeddings"] = all(tensor.name != "output.weight" for tensor in gguf.tensors)
    for target, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        values[f"{target}_token_id"] = gguf.metadata.get(f"tokenizer.ggml.{key}_token_id")
    sizes = (values["vocab_size"], *(values[f"{role}_token_id"] or 0 for role in ("bos", "eos", "pad")))
    if not all(type(value) is int for value in sizes):
        raise InconclusiveError(f"{name} has token ids that are no integers", hint="convert the model again")
    return values


def parameter_name(tensor: str) -> str:
    """transformers' name of a GGUF tensor; the GGUF name itself when the table has none."""
    if tensor in _TOP:
        return _TOP[tensor]
    match = _BLOCK_NAME.fullmatch(tensor)
    if match is None or match[2] not in _BLOCK:
        return tensor
    return f"model.layers.{match[1]}.{_BLOCK[match[2]]}.{match[3]}"


def unpermute(parameter: str, value: npt.NDArray[_Item], values: dict[str, Any]) -> npt.NDArray[_Item]:
    """Undo llama.cpp's interleaving of a q or k projection's rows, head by head; others stay as they are.

    Raises:
        InconclusiveError: the rows do not divide into the heads.
    """
    if parameter.endswith("self_attn.q_proj.weight"):
        heads = values["num_attention_heads"]
    elif parameter.endswith("self_attn.k_proj.weight"):
        heads = values["num_key_value_heads"]
    else:
        return value
    if value.ndim != 2 or value.shape[0] % (2 * heads):
        raise InconclusiveError(
            f"{parameter} has shape {list(value.shape)}, which {heads} heads do not divide",
            hint="fetch the file again",
        )
    paired = value.reshape(heads, value.shape[0] // heads // 2, 2, *value.shape[1:])
    return np.ascontiguousarray(paired.swapaxes(1, 2)).reshape(value.shape)
