"""Run settings as resolved: what really happened, not what was asked. No torch."""

from __future__ import annotations

from dataclasses import dataclass

PROFILES = ("fp32",)
PROFILE_VERSION = 1
ACTIVATIONS = ("fp32", "bf16", "fp16")
LEVELS = ("logits", "layers", "ops")


@dataclass(frozen=True)
class Decoding:
    """How tokens are drawn (numerics.md, Sampling).

    Attributes:
        max_new_tokens: most tokens drawn per sequence; 0 scores the prompt only.
        temperature: T; 0 is greedy and draws nothing.
        top_k: keep this many logits, 0 for all.
        top_p: nucleus mass, 1.0 for all.
        seed: 64-bit Philox key.
        stop_token_ids: a drawn token among these ends its sequence.
        source: ``arguments`` or ``generation_config``: who switched sampling on.
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    source: str = "arguments"


@dataclass(frozen=True)
class RunSettings:
    """What a run computes under. ``cast_weights`` is part of the profile's identity, as ``activations`` is.

    ``batch_size`` and ``prefill_chunk`` choose speed and memory, never bits; they are recorded all the same.
    ``prefill_chunk`` 0 means the whole prompt in one piece.
    """

    decoding: Decoding
    profile: str = "fp32"
    activations: str = "fp32"
    level: str = "layers"
    device: str = "cpu"
    cast_weights: bool = False
    batch_size: int = 8
    prefill_chunk: int = 0
    save_values: bool = False
