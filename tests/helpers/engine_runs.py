"""Builders and comparisons for tests that run tiny models through the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers

from repro_audit.models.loaded import LoadedModel
from repro_audit.settings import Decoding, RunSettings
from repro_audit.trace.record import RunRecord
from tests.helpers import tiny_models

_EXTRA: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gemma": ("GemmaConfig", "GemmaForCausalLM", {"head_dim": 16}),
    "granite": ("GraniteConfig", "GraniteForCausalLM", {}),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", {}),
    "starcoder2": ("Starcoder2Config", "Starcoder2ForCausalLM", {}),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {"head_dim": 16, "sliding_window": 8}),
    "bloom": ("BloomConfig", "BloomForCausalLM", {}),
    "falcon": ("FalconConfig", "FalconForCausalLM", {"alibi": True}),
    "falcon_rotary": ("FalconConfig", "FalconForCausalLM", {}),
    "qwen3_moe": (
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {"head_dim": 16, "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2},
    ),
}
_ORIGINAL = {"original_max_position_embeddings": 128, "rope_theta": 10000.0}
#: What of llama's RoPE is changed; longrope is Phi-3's.
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0, "rope_theta": 10000.0},
    "yarn": {"factor": 2.0, **_ORIGINAL},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **_ORIGINAL},
    "dynamic": {"factor": 4.0, "rope_theta": 10000.0},
    "longrope": {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8, **_ORIGINAL},
}
DECODERS = sorted({*tiny_models.FAMILIES, *_EXTRA})


def tiny(family: str = "llama", dtype: torch.dtype = torch.float32, **overrides: Any) -> LoadedModel:
    """A tiny decoder with seeded weights, as a loaded model without files."""
    if family in tiny_models.FAMILIES:
        config, state = tiny_models.tiny_weights(family, dtype=dtype, seed=1, overrides=overrides)
        module = getattr(transformers, tiny_models.FAMILIES[family][1])(config)
    else:
        config_class, model_class, values = _EXTRA[family]
        base = tiny_models.FAMILIES["llama"][2]
        config = getattr(transformers, config_class)(**{**base, **values, **overrides})
        torch.manual_seed(1)
        module = getattr(transformers, model_class)(config)
        state = {
            k: torch.randn_like(v) * 0.3 if v.is_floating_point() else v
            for k, v in module.state_dict().items()
        }
    module = module.to(dtype).eval()
    module.load_state_dict(state, strict=False)
    module.tie_weights()
    return loaded(module, kind="hf", context_length=256)


def scaled(kind: str) -> LoadedModel:
    """A tiny decoder with one of :data:`SCALINGS`."""
    rope = {"rope_type": kind, **SCALINGS[kind]}
    if kind == "longrope":
        return tiny("phi3", rope_parameters=rope, original_max_position_embeddings=128)
    return tiny("llama", rope_parameters=rope, max_position_embeddings=128 if kind == "dynamic" else 256)


def loaded(module: torch.nn.Module, kind: str = "python", **values: Any) -> LoadedModel:
    """A module as a loaded model, its identity left empty."""
    return LoadedModel(kind=kind, name="tiny", module=module, tensors=(), config_digest="", root="", **values)


def settings(level: str = "ops", new_tokens: int = 5, temperature: float = 0.0, **values: Any) -> RunSettings:
    """Run settings, all points and greedy by default."""
    return RunSettings(Decoding(new_tokens, temperature=temperature, seed=7), level=level, **values)


def difference(a: RunRecord, b: RunRecord) -> str | None:
    """The first thing in which two runs differ, or None: points, tokens, top logits, every row digest,
    scalars.
    """
    if a.points != b.points:
        return "points"
    for left, right in zip(a.sequences, b.sequences, strict=True):
        if left.generated != right.generated:
            return f"tokens of sequence {left.id}"
        for point in range(len(a.points)):
            one, other = left.rows.get(point), right.rows.get(point)
            if one is None or other is None:
                return f"{a.points[point].name} has no rows"
            if one.header != other.header or one.first != other.first:
                return f"header of {a.points[point].name}"
            if not np.array_equal(one.digests, other.digests):
                return f"{a.points[point].name} of sequence {left.id}"
        tops = (left.top2, right.top2)
        if (tops[0] is None) != (tops[1] is None) or (tops[0] is not None and not np.array_equal(*tops)):  # type: ignore[arg-type]
            return f"top logits of sequence {left.id}"
    for name in ("buffers", "constants"):
        if getattr(a, name) != getattr(b, name):
            return name
    return None
