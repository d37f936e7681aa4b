"""Two models whose weights are made of integers, for golden manifests that no package carries the weights of.

``python:golden_models:mixture`` (a decoder with routed experts, scoring tokens) and
``python:golden_models:encoder`` (bidirectional, with padding), from this folder. Weights come from the Philox
generator that numpy promises not to change, mapped to floats exactly, so that they are the same on every
machine.
"""

from __future__ import annotations

import torch
import transformers

from repro_audit.verify.known_answers import Inputs

_TOKENS = torch.tensor([[5, 9, 31, 4, 77, 8, 60, 2, 2, 41], [7, 7, 12, 90, 3, 0, 0, 0, 0, 0]])
_SIZES = {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def _filled(module: torch.nn.Module, name: str) -> torch.nn.Module:
    """The module in evaluation mode, its parameters bfloat16 numbers of the generator that ``name`` keys."""
    for path, parameter in module.named_parameters():
        values = Inputs(f"{name} {path}").tame(*parameter.shape, dtype=torch.bfloat16)
        parameter.data = values if parameter.dim() == 1 else values * 2.0**-4
    return module.eval()


def mixture() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A Mixtral of two layers, four experts, two of them per token."""
    config = transformers.MixtralConfig(
        **_SIZES, intermediate_size=96, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2
    )
    model = _filled(transformers.MixtralForCausalLM(config), "mixture")
    return model, {"input_ids": _TOKENS[:1].repeat(1, 15)[:, :140]}


def encoder() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A BERT of two layers on two sequences, one of them padded."""
    config = transformers.BertConfig(**_SIZES, intermediate_size=96, max_position_embeddings=64)
    inputs = {"input_ids": _TOKENS, "attention_mask": (_TOKENS > 0).long()}
    return _filled(transformers.BertModel(config), "encoder"), inputs
