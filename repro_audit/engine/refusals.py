"""What the engine refuses before a run starts: settings, models and lengths it does not stand for."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from repro_audit.devices import resolve
from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.settings import RunSettings

ACTIVATION_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def check_settings(settings: RunSettings) -> None:
    """Refuse settings that this engine does not run.

    Raises:
        UsageError, InconclusiveError: naming the setting and what exists.
    """
    if settings.profile != "fp32":
        raise UsageError(f"unknown profile {settings.profile!r}", hint="profiles: fp32")
    if resolve(settings.device) != settings.device:
        raise UsageError(f"device {settings.device!r} is not resolved", hint="choose cpu or cuda:N")
    if settings.activations not in ACTIVATION_DTYPES:
        raise UsageError(
            f"unknown activation type {settings.activations!r}", hint=f"one of {', '.join(ACTIVATION_DTYPES)}"
        )


def check_model(module: nn.Module, *, decodes: bool) -> None:
    """Refuse a model in training mode, or an encoder-decoder where tokens are to be decoded.

    Raises:
        InconclusiveError: naming the module.
    """
    for path, child in module.named_modules():
        if child.training:
            raise InconclusiveError(
                f"{path or 'the model'} is in training mode",
                hint="call model.eval(): dropout would be random",
            )
    config = getattr(module, "config", None)
    if decodes and getattr(config, "is_encoder_decoder", False):
        raise InconclusiveError(
            f"{type(module).__name__} is an encoder-decoder, which the engine does not decode",
            hint="audit it as python:module:factory, with its inputs",
        )


def check_length(module: nn.Module, length: int) -> None:
    """Refuse a sequence whose RoPE frequencies would depend on what is generated later.

    Raises:
        InconclusiveError: dynamic or longrope frequencies beyond the original length.
    """
    config = getattr(module, "config", None)
    text: Any = config.get_text_config() if config is not None else None
    parameters = getattr(text, "rope_parameters", None)
    if not isinstance(parameters, dict):
        return
    for rope in (parameters, *(value for value in parameters.values() if isinstance(value, dict))):
        kind = rope.get("rope_type")
        if kind in ("dynamic", "longrope"):
            limit = int(rope.get("original_max_position_embeddings") or text.max_position_embeddings)
            if length > limit:
                raise InconclusiveError(
                    f"RoPE type {kind} depends on the length: {length} exceeds the original {limit}",
                    hint="shorten the prompt or --max-new-tokens",
                )
