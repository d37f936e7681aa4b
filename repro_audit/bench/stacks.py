"""Whole models as people run them today: Hugging Face in bf16 and fp32, LayerCast, batch_invariant_ops."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from repro_audit.bench.baselines import INVARIANT, has_invariant, invariant
from repro_audit.models.quiet import quiet_transformers

HALF, STATIC, CAST, FULL = (
    "HF bf16",
    "HF bf16, static + graph",
    "LayerCast",
    "HF fp32",
)


@dataclass(frozen=True)
class Stack:
    """A way to run a model.

    Attributes:
        changed: a context in which the module computes this way.
        unit: what multiplies, as in :class:`repro_audit.bench.roofline.Work`.
        extra: device bytes that it needs beside the module, as a multiple of the module's.
        added: device bytes held by the context that a user of this stack would not have (the original
            weights beside the wider copies), as a multiple of the module's.
        static: decode from a static cache and a CUDA graph.
    """

    name: str
    changed: Callable[[nn.Module], AbstractContextManager[None]]
    unit: str
    extra: float = 0.0
    added: float = 0.0
    static: bool = False


def stacks(device: str) -> list[Stack]:
    """The stacks to compare with on a device. On the CPU those in fp32, whose arithmetic is ours."""
    wide = [
        Stack(CAST, layercast, "fp32"),
        Stack(FULL, widened, "fp32", extra=2.0, added=1.0),
    ]
    if device == "cpu":
        return wide
    found = [Stack(HALF, _unchanged, "bf16"), Stack(STATIC, _unchanged, "bf16", static=True), *wide]
    if has_invariant():
        found.append(Stack(INVARIANT, lambda _: invariant(), "bf16"))
    return found


def _unchanged(module: nn.Module) -> AbstractContextManager[None]:
    return nullcontext()


@contextmanager
def sdpa(module: Any) -> Iterator[None]:
    """The module with PyTorch's fused attention, as Hugging Face runs it by default."""
    before = module.config._attn_implementation
    module.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        module.set_attn_implementation(before)


@contextmanager
def layercast(module: nn.Module) -> Iterator[None]:
    """16-bit weights, upcast in each linear at each call; activations and the small parameters in fp32."""
    patched: list[nn.Module] = []
    with widened(module, small=True):
        try:
            for child in module.modules():
                forward = _cast(child)
                if forward is not None:
                    child.forward = forward
                    patched.append(child)
            yield
        finally:
            for child in patched:
                del child.forward


def _cast(child: nn.Module) -> Callable[[torch.Tensor], torch.Tensor] | None:
    if isinstance(child, nn.Linear):

        def linear(x: torch.Tensor) -> torch.Tensor:
            bias = None if child.bias is None else child.bias.float()
            return nn.functional.linear(x, child.weight.float(), bias)

        return linear
    if isinstance(child, nn.Embedding):
        return lambda tokens: nn.functional.embedding(tokens, child.weight).float()
    return None


@contextmanager
def widened(module: nn.Module, *, small: bool = False) -> Iterator[None]:
    """The parameters in fp32 while the context lasts; ``small``: only those of norms and the like."""
    originals: list[tuple[nn.Parameter, torch.Tensor]] = []
    try:
        for child in module.modules():
            if small and isinstance(child, nn.Linear | nn.Embedding):
                continue
            for parameter in child.parameters(recurse=False):
                if parameter.dtype != torch.float32 and all(parameter is not p for p, _ in originals):
                    originals.append((parameter, parameter.data))
                    parameter.data = parameter.data.float()
        yield
    finally:
        for parameter, data in originals:
            parameter.data = data


@torch.inference_mode()
def prefill(module: Any, tokens: torch.Tensor) -> torch.Tensor:
    """The last token's logits [1, V] of tokens [1, T], nothing cached, as the evidence's baselines do it."""
    with _calls():
        logits: torch.Tensor = module(input_ids=tokens, use_cache=False, logits_to_keep=1).logits
    return logits[:, -1]


class Decoder:
    """Greedy decoding after a prompt, batch 1, as ``generate`` does it without its overhead.

    Args:
        module: the model.
        tokens: the prompt [1, T].
        most: tokens that will be drawn at most.
        static: a static cache, the step captured in a CUDA graph.
    """

    @torch.inference_mode()
    def __init__(self, module: Any, tokens: torch.Tensor, most: int, *, static: bool) -> None:
        from transformers import DynamicCache, StaticCache

        self._module = module
        self._graph: torch.cuda.CUDAGraph | None = None
        length = tokens.shape[1]
        if static:
            # Three steps run before the first replay: two to warm up, and the captured one may write.
            self._cache: Any = StaticCache(config=module.config, max_cache_len=length + most + 8)
        else:
            self._cache = DynamicCache(config=module.config)
        with _calls():
            logits = module(
                input_ids=tokens, past_key_values=self._cache, use_cache=True, logits_to_keep=1
            ).logits
        self._token = logits[:, -1:].argmax(-1)
        self._position = torch.tensor([[length]], device=tokens.device)
        if static:
            self._capture()

    @torch.inference_mode()
    def draw(self, count: int) -> None:
        """Draw and feed this many tokens; nothing is waited for."""
        with _calls():
            for _ in range(count):
                if self._graph is not None:
                    self._graph.replay()
                else:
                    self._step()

    def _step(self) -> None:
        logits = self._module(
            input_ids=self._token,
            position_ids=self._position,
            past_key_values=self._cache,
            use_cache=True,
        ).logits
        self._token.copy_(logits[:, -1:].argmax(-1))
        self._position.add_(1)

    def _capture(self) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), _calls():
            for _ in range(2):
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph), _calls():
            self._step()


@contextmanager
def _calls() -> Iterator[None]:
    """Calls of a module without transformers' talk: the cache argument is about to be renamed."""
    with quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
