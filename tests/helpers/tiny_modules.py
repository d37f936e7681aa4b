"""Tiny encoders, an image model and encoder-decoders with their inputs, for ``python:`` runs."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from repro_audit.models.loaded import LoadedModel
from tests.helpers.engine_runs import loaded

_ENCODER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
_TOKENS = torch.tensor([[5, 9, 31, 4, 77, 8, 60, 2, 2], [7, 7, 12, 90, 3, 0, 0, 0, 0]])
_LEFT = torch.tensor([[5, 9, 31, 4, 77, 8, 60, 2, 2], [0, 0, 0, 0, 7, 7, 12, 90, 3]])
_PIXELS = torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16).sin()


def _bert() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.BertConfig(vocab_size=99, max_position_embeddings=64, **_ENCODER)
    return transformers.BertModel(config), {"input_ids": _TOKENS, "attention_mask": (_TOKENS > 0).long()}


def _bert_left() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    return _bert()[0], {"input_ids": _LEFT, "attention_mask": (_LEFT > 0).long()}


def _vit() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.ViTConfig(image_size=16, patch_size=4, **_ENCODER)
    return transformers.ViTForImageClassification(config), {"pixel_values": _PIXELS}


def _whisper() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    sides = {"layers": 2, "attention_heads": 4, "ffn_dim": 48}
    layers = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in sides.items()}
    lengths = {"max_source_positions": 20, "max_target_positions": 20}
    config = transformers.WhisperConfig(
        vocab_size=99, d_model=32, num_mel_bins=8, **lengths, **layers, **_SPECIAL
    )
    features = torch.linspace(-2, 2, 2 * 8 * 40).reshape(2, 8, 40).cos()
    model = transformers.WhisperForConditionalGeneration(config)
    return model, {"input_features": features, "decoder_input_ids": _TOKENS[:, :5]}


def _t5() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, **_SPECIAL
    )
    model = transformers.T5ForConditionalGeneration(config)
    return model, {"input_ids": _TOKENS, "decoder_input_ids": _TOKENS[:, :5]}


MODULES: dict[str, Any] = {
    "bert": _bert, "bert, left padding": _bert_left, "vit": _vit, "whisper": _whisper, "t5": _t5
}  # fmt: skip


def tiny_module(name: str) -> LoadedModel:
    """One of :data:`MODULES` with seeded weights, in evaluation mode, as a loaded model with its inputs."""
    module, inputs = MODULES[name]()
    torch.manual_seed(2)
    for parameter in module.parameters():
        parameter.data = torch.randn_like(parameter) * 0.2
    return loaded(module.eval(), example_inputs=inputs)
