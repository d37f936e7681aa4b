"""Named shapes: a decoder of known sizes, random bfloat16 weights made where it will run, no download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from repro_audit.errors import UsageError
from repro_audit.models.loaded import LoadedModel
from repro_audit.models.quiet import quiet_transformers


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama decoder, as in its config.json."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_heads: int
    context: int
    rope_theta: float
    tied: bool = False


SHAPES = {
    "llama-3-8b": Shape(128256, 4096, 14336, 32, 32, 8, 8192, 500000.0),
    "llama-3.2-1b": Shape(128256, 2048, 8192, 16, 32, 8, 131072, 500000.0, tied=True),
    "smollm2-135m": Shape(49152, 576, 1536, 30, 9, 3, 8192, 100000.0, tied=True),
    "tiny": Shape(512, 128, 384, 2, 4, 2, 4096, 10000.0),
}
_DEVIATION = 0.02


def find(name: str) -> Shape:
    """The shape of this name.

    Raises:
        UsageError: there is none.
    """
    if name not in SHAPES:
        raise UsageError(f"shape {name!r} does not exist", hint=f"choose one of {', '.join(SHAPES)}")
    return SHAPES[name]


def weights(shape: Shape) -> int:
    """How many weights a decoder of this shape has."""
    head = shape.hidden // shape.heads
    block = shape.hidden * head * (2 * shape.heads + 2 * shape.key_heads)
    block += 3 * shape.hidden * shape.intermediate + 2 * shape.hidden
    tables = shape.vocabulary * shape.hidden * (1 if shape.tied else 2)
    return shape.layers * block + tables + shape.hidden


def build(name: str, device: str) -> LoadedModel:
    """The decoder on ``cpu`` or ``cuda:N``: weights from the normal distribution times 0.02, norms one.

    The weights depend on the kind of device, not on anything else.

    Raises:
        UsageError: no such shape.
    """
    import transformers

    shape = find(name)
    config_class: Any = transformers.LlamaConfig
    config = config_class(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        max_position_embeddings=shape.context,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=shape.tied,
        attn_implementation="eager",
    )
    with quiet_transformers():
        with torch.device("meta"):
            module: Any = transformers.LlamaForCausalLM(config)
        module.to(torch.bfloat16)
        module.to_empty(device=device)
        # What to_empty left undefined beside the weights: the rotary frequencies.
        module.model.rotary_emb = type(module.model.rotary_emb)(config).to(device)
        module.tie_weights()
    module.eval().requires_grad_(False)
    generator = torch.Generator(device).manual_seed(0)
    for parameter in module.parameters():
        if parameter.dim() == 1:
            parameter.fill_(1.0)
        else:
            parameter.normal_(0, _DEVIATION, generator=generator)
    return LoadedModel(
        kind="hf",
        name=f"shape:{name}",
        module=module,
        tensors=(),
        config_digest="",
        root="",
        context_length=shape.context,
    )
