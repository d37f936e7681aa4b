"""Where a decoder's points sit: module paths found by structure, not by the model's name.

A decoder, for this purpose, has an input embedding, one list of blocks, an attention in each block, a final
norm and an output head. What each point is called and in which order they stand is decided here and in
:mod:`repro_audit.engine.points`; a verifier derives the same table from the same model.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from torch import nn

from repro_audit.errors import InconclusiveError

_ATTENTION = ("self_attn", "attn", "attention", "self_attention")
_MLP = ("mlp", "feed_forward", "ffn", "block_sparse_moe", "moe")


@dataclass(frozen=True, slots=True)
class Site:
    """Where a point's tensor is taken.

    Attributes:
        kind: ``output`` or ``input`` of a module, ``query`` (what the attention function receives), ``key``,
            ``value`` (what the cache receives) or ``logits``.
        module: the module's path; for logits the empty path.
        name: the point's name.
        layer: index of the block for key, value and query.
    """

    kind: str
    module: str
    name: str
    layer: int = -1


@dataclass(frozen=True)
class Layout:
    """Paths of a decoder's parts; ``attentions[i]`` belongs to ``blocks[i]``."""

    embedding: str
    blocks: tuple[str, ...]
    attentions: tuple[str, ...]
    mlps: tuple[str | None, ...]
    final_norm: str | None
    head: str | None


def find_layout(module: nn.Module) -> Layout:
    """The parts of a decoder.

    Raises:
        InconclusiveError: the model is not built as one.
    """
    paths = {id(child): path for path, child in module.named_modules()}
    config = getattr(module, "config", None)
    text = config.get_text_config() if config is not None else None
    count = getattr(text, "num_hidden_layers", None)
    embedding = getattr(module, "get_input_embeddings", lambda: None)()
    head = getattr(module, "get_output_embeddings", lambda: None)()
    candidates = [
        path
        for path, child in module.named_modules()
        if isinstance(child, nn.ModuleList)
        and len(child) == count
        and all(_child(block, _ATTENTION) for block in child)
    ]
    if embedding is None or len(candidates) != 1:
        raise InconclusiveError(
            f"{type(module).__name__} is not built as a decoder (an embedding, blocks with attention)",
            hint="audit it as python:module:factory, with its inputs",
        )
    (stack,) = candidates
    blocks = [f"{stack}.{index}" for index in range(count or 0)]
    attentions, mlps = [], []
    for path in blocks:
        block = module.get_submodule(path)
        attentions.append(f"{path}.{_child(block, _ATTENTION)}")
        mlp = _child(block, _MLP)
        mlps.append(f"{path}.{mlp}" if mlp else None)
    parent = module.get_submodule(stack.rpartition(".")[0])
    norms = [child for child in parent.children() if is_norm(child)]
    final = paths[id(norms[-1])] if norms else None
    return Layout(
        paths[id(embedding)],
        tuple(blocks),
        tuple(attentions),
        tuple(mlps),
        final,
        paths.get(id(head)) if head is not None else None,
    )


def sites(module: nn.Module, layout: Layout, level: str) -> tuple[Site, ...]:
    """Every site of a recording level; the probe puts them in execution order.

    ``logits``: the logits. ``layers``: the embedding, and per block the key and value rows of the cache, the
    attention's output, the MLP's output and the residual; the final norm; the logits. ``ops`` adds norms,
    linears (the output projection is the attention's output, the down projection the MLP's), queries after
    rotary (keys after rotary are ``k_cache``), the attention's context, the product that the MLP's last
    linear takes, and the residual between attention and MLP.
    """
    found = [Site("logits", "", "logits")]
    if level == "logits":
        return tuple(found)
    found.append(Site("output", layout.embedding, layout.embedding))
    for index, block in enumerate(layout.blocks):
        attention, mlp = layout.attentions[index], layout.mlps[index]
        found.append(Site("key", attention, f"{block}.k_cache", index))
        found.append(Site("value", attention, f"{block}.v_cache", index))
        found.append(Site("output", attention, attention))
        if mlp is not None:
            found.append(Site("output", mlp, mlp))
        found.append(Site("output", block, f"{block}.residual"))
        if level == "ops":
            found += _operators(module, block, attention, mlp, index)
    if layout.final_norm is not None:
        found.append(Site("output", layout.final_norm, layout.final_norm))
    return tuple(found)


def _operators(module: nn.Module, block: str, attention: str, mlp: str | None, index: int) -> list[Site]:
    found: list[Site] = []
    if has_eager_function(module.get_submodule(attention)):
        found.append(Site("query", attention, f"{attention}.q_rotary", index))
    for path, child in module.get_submodule(block).named_modules():
        full = f"{block}.{path}"
        if not path or ".experts" in f".{path}":
            continue
        if is_norm(child):
            found.append(Site("output", full, full))
            if "." not in path:
                # The stream that a block's norm reads: the residual between attention and MLP.
                found.append(Site("input", full, f"{full}.input"))
        elif is_linear(child):
            found.append(Site("output", full, full))
            if full.startswith(f"{attention}."):
                found.append(Site("input", full, f"{attention}.context"))
            elif mlp is not None and full.startswith(f"{mlp}."):
                found.append(Site("input", full, f"{mlp}.product"))
    return found


def has_eager_function(attention: nn.Module) -> bool:
    """Whether the attention calls its modelling file's ``eager_attention_forward``."""
    return hasattr(sys.modules.get(type(attention).__module__), "eager_attention_forward")


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a normalisation, by its class's name, as transformers tells them."""
    return "Norm" in type(module).__name__


def is_linear(module: nn.Module) -> bool:
    """Whether a module is one matrix product with a weight."""
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def _child(block: nn.Module, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if isinstance(getattr(block, name, None), nn.Module)), None)


def first_tensor(value: object) -> torch.Tensor:
    """The tensor a module returns: itself, or the first of a tuple or output object.

    Raises:
        InconclusiveError: there is none.
    """
    while not isinstance(value, torch.Tensor):
        if isinstance(value, (tuple, list)) and value:
            value = value[0]
        elif hasattr(value, "to_tuple"):
            value = value.to_tuple()
        else:
            raise InconclusiveError(f"a module returns {type(value).__name__}, not a tensor")
    return value
