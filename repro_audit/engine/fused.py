"""Fused kernels under the operator table, for modules whose code is, word for word, what the kernel computes.

A fused kernel gives the bits of the operators it stands for; it is chosen by the text of the module's code,
so a version of transformers that writes another sequence is not fused but runs operator by operator. Same
bits either way (tests/property/test_invariance_fused.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import torch
from repro_kernels.ops import fused, gemm
from torch import nn

from repro_audit.engine.dispatch import ProfileMode
from repro_audit.engine.storedparam import StoredParameter, stored_of
from repro_audit.engine.texts import (
    ATTENTION,
    ATTENTION_MODULES,
    DECODER_LAYER,
    RMS_NORM,
    RMS_NORM_INNER,
    RMS_NORM_ONE_PLUS,
    ROTARY,
    ROTATE_HALF,
    SWIGLU,
    reads,
)
from repro_audit.errors import InconclusiveError

#: Model types whose attention goes through the engine's own kernel, each of them tested against the eager
#: path.
FAMILIES = frozenset(
    {
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "smollm3",
        "phi3",
        "gemma",
        "granite",
        "olmo2",
        "starcoder2",
        "mixtral",
    }
)


def fuses_attention(module: nn.Module) -> bool:
    """Whether attention may run as one kernel: a named family with the standard eager function."""
    config = getattr(module, "config", None)
    file = sys.modules[type(module).__module__]
    return getattr(config, "model_type", None) in FAMILIES and reads(
        getattr(file, "eager_attention_forward", None), ATTENTION
    )


@contextmanager
def fused_modules(
    module: nn.Module, mode: ProfileMode, *, attention: bool = False, leaves: bool = False
) -> Iterator[None]:
    """Let linears, RMS norms, gated MLPs and rotary steps run as one kernel each while the context lasts.

    Args:
        module: the model.
        mode: the run's dispatch mode, which counts.
        attention: the model's attention runs as one kernel too; then a decoder layer all of whose parts are
            fused needs no dispatch inside.
        leaves: only modules without modules inside, because the outputs of those are points.
    """
    with ExitStack() as stack:
        files: set[ModuleType] = set()
        rotary: set[ModuleType] = set()
        for child in module.modules():
            inside = leaves and next(child.children(), None) is not None
            forward = None if inside else _fused_forward(child, mode)
            if forward is not None and "forward" not in child.__dict__:
                child.__dict__["forward"] = forward
                stack.callback(child.__dict__.pop, "forward")
            files.add(sys.modules[type(child).__module__])
        for file in files:
            original = getattr(file, "apply_rotary_pos_emb", None)
            if (
                original is not None
                and reads(original, ROTARY)
                and reads(getattr(file, "rotate_half", None), ROTATE_HALF)
            ):
                stack.callback(setattr, file, "apply_rotary_pos_emb", original)
                file.apply_rotary_pos_emb = _rotary(mode, original)  # type: ignore[attr-defined]
                rotary.add(file)
        for child in module.modules() if attention else ():
            if _all_fused(child, rotary):
                child.__dict__["forward"] = _undispatched(child, mode)
                stack.callback(child.__dict__.pop, "forward")
        yield


def _all_fused(layer: Any, rotary: set[ModuleType]) -> bool:
    """Whether a module is a decoder layer of known text and every part of it runs as a kernel."""
    if not reads(type(layer).forward, DECODER_LAYER):
        return False
    attention = layer.self_attn
    parts = [layer.input_layernorm, layer.post_attention_layernorm, layer.mlp, *attention.children()]
    return (
        any(reads(type(attention).forward, text) for text in ATTENTION_MODULES)
        and sys.modules[type(attention).__module__] in rotary
        and all(
            "forward" in part.__dict__
            for part in (*parts, *layer.mlp.children())
            if part is not layer.mlp.act_fn
        )
    )


def _undispatched(layer: Any, mode: ProfileMode) -> Callable[..., Any]:
    """The layer's own code with the dispatch mode off: two exact additions, views, and fused parts."""
    off, forward = torch._C._DisableTorchDispatch, type(layer).forward
    count = mode.counter(torch.ops.aten.add.Tensor)

    def undispatched(*args: Any, **kwargs: Any) -> Any:
        with off():
            count.calls += 2
            mode.silent = True
            try:
                return forward(layer, *args, **kwargs)
            finally:
                mode.silent = False

    return undispatched


def _require_dispatch(mode: ProfileMode, what: object) -> None:
    if mode.silent:
        raise InconclusiveError(f"{type(what).__name__} met operands that its kernel does not take")


def _fused_forward(module: Any, mode: ProfileMode) -> Callable[..., Any] | None:
    kind = type(module)
    if kind is nn.Linear:
        return _linear(module, mode)
    if reads(kind.forward, RMS_NORM):
        return _rms_norm(module, mode, module.variance_epsilon, one_plus=False)
    if reads(kind.forward, RMS_NORM_ONE_PLUS) and reads(getattr(kind, "_norm", None), RMS_NORM_INNER):
        return _rms_norm(module, mode, module.eps, one_plus=True)
    if reads(kind.forward, SWIGLU) and type(module.act_fn).__name__ in ("SiLU", "SiLUActivation"):
        return _swiglu(module, mode)
    return None


def _linear(module: Any, mode: ProfileMode) -> Callable[..., Any]:
    weight = stored_of(module.weight)
    bias = None if module.bias is None else stored_of(module.bias)
    off, count, linear = (
        torch._C._DisableTorchDispatch,
        mode.counter(torch.ops.aten.linear.default),
        gemm.linear,
    )

    def forward(input: torch.Tensor) -> Any:
        if type(input) is not torch.Tensor:
            _require_dispatch(mode, module)
            return nn.Linear.forward(module, input)
        with off():
            count.calls += 1
            return linear(input, weight, bias, out_dtype=input.dtype)

    return forward


def _rms_norm(module: Any, mode: ProfileMode, eps: float, *, one_plus: bool) -> Callable[..., Any]:
    weight = module.weight
    if type(weight) is StoredParameter:
        weight = weight.materialise()
    off, kernel = torch._C._DisableTorchDispatch, fused.rms_norm_module
    count = mode.fused("repro_kernels.rms_norm", "fused.rms_norm_module")
    noted = {("aten.add.Tensor", "other", float(eps).hex())}
    if one_plus:
        noted.add(("aten.add.Tensor", "other", (1.0).hex()))

    def norm(x: torch.Tensor) -> Any:
        if type(x) is not torch.Tensor:
            _require_dispatch(mode, module)
            plain: torch.Tensor = type(module).forward(module, x)
            return plain
        with off():
            if noted:
                mode.findings.scalars |= noted
                noted.clear()
            count.calls += 1
            return kernel(x, weight, eps, one_plus=one_plus)

    def forward(hidden_states: torch.Tensor) -> Any:
        return norm(hidden_states)

    return norm if one_plus else forward


def _swiglu(module: Any, mode: ProfileMode) -> Callable[..., Any]:
    off, kernel = torch._C._DisableTorchDispatch, fused.swiglu
    count = mode.fused("repro_kernels.swiglu", "fused.swiglu")

    def forward(x: torch.Tensor) -> Any:
        gate, up = module.gate_proj(x), module.up_proj(x)
        with off():
            count.calls += 1
            product = kernel(gate, up)
        return module.down_proj(product)

    return forward


def _rotary(mode: ProfileMode, original: Callable[..., Any]) -> Callable[..., Any]:
    off, kernel = torch._C._DisableTorchDispatch, fused.rotary
    count = mode.fused("repro_kernels.rotary", "fused.rotary")

    def apply_rotary_pos_emb(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
        if unsqueeze_dim != 1 or cos.shape[-1] != q.shape[-1]:
            _require_dispatch(mode, original)
            return original(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        with off():
            count.calls += 1
            return kernel(q, k, cos, sin)

    return apply_rotary_pos_emb
