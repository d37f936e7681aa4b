"""Mask provenance: which entries of a score matrix are masked, whatever their score.

numerics.md: in a row with an unmasked key, a masked entry (addend -inf or the type's lowest value) has y = +0
by definition and does not enter the softmax's maximum or sum. A score can itself be -inf or lowest, so the
value of ``scores + mask`` does not tell. Tensors that come from a mask therefore carry a tag, a bool tensor
of the same shape, True where masked, which follows them through views, casts and additions up to the softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_TAG = "_repro_masked"
_PROBABILITIES = "_repro_probabilities"

#: A float scalar at or below this may be a mask's addend: the lowest value of the narrowest activation type.
LOWEST_SCALAR = -65504.0


def tag_of(value: Any) -> torch.Tensor | None:
    """The tag of a tensor, or None: nothing masked is known about it."""
    return getattr(value, _TAG, None)


def set_tag(tensor: torch.Tensor, masked: torch.Tensor) -> None:
    """Tag ``tensor`` (floating) with ``masked`` (bool, broadcastable to its shape)."""
    full = masked if masked.shape == tensor.shape else masked.expand(tensor.shape).clone()
    setattr(tensor, _TAG, full)


def mark_probabilities(tensor: torch.Tensor) -> None:
    """Say that ``tensor`` is the softmax of a masked row: what it multiplies must be finite."""
    setattr(tensor, _PROBABILITIES, True)


def is_probabilities(value: Any) -> bool:
    """Whether :func:`mark_probabilities` was said of this tensor or of what it was cast from."""
    return getattr(value, _PROBABILITIES, False)


def lowest_entries(tensor: torch.Tensor) -> torch.Tensor:
    """bool: entries that are -inf or the lowest finite value of the tensor's type."""
    return tensor <= torch.finfo(tensor.dtype).min


def _tags(values: Sequence[Any]) -> list[torch.Tensor]:
    found = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found += _tags(value)
        elif (tag := tag_of(value)) is not None:
            found.append(tag)
    return found


def _fits(shape: torch.Size, target: torch.Size) -> bool:
    """Whether ``shape`` broadcasts to ``target``."""
    trailing = target[len(target) - len(shape) :] if len(shape) <= len(target) else None
    return trailing is not None and all(a in (1, b) for a, b in zip(shape, trailing, strict=True))


def _union(tags: Sequence[torch.Tensor], shape: torch.Size) -> torch.Tensor:
    masked = tags[0].expand(shape)
    for tag in tags[1:]:
        masked = masked | tag
    return masked


def _by_addition(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor
) -> torch.Tensor:
    masked = _union(_tags(args), result.shape)
    # A result of its own has a tag of its own: what is written to it later masks nothing in the operand.
    return masked.clone() if len(_tags(args)) == 1 else masked


def _by_value(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    """What was masked stays masked while it stays far below any score: a mask times 0 masks nothing."""
    tags = [tag for tag in _tags(args) if _fits(tag.shape, result.shape)]
    low = result <= torch.finfo(result.dtype).min / 2
    return low & _union(tags, result.shape) if tags else low


def _by_view(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Any:
    """Apply the same view, copy or gather to the tags; an untagged float operand masks nothing."""

    def swap(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(swap(item) for item in value)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            tag = tag_of(value)
            return torch.zeros_like(value, dtype=torch.bool) if tag is None else tag
        return value

    return func(*swap(list(args)), **kwargs)


def _by_where(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    condition, chosen, other = args[:3]
    false = torch.zeros((), dtype=torch.bool, device=result.device)
    picks = [tag if (tag := tag_of(side)) is not None else false for side in (chosen, other)]
    return torch.where(condition, picks[0], picks[1])


def _by_fill(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    scores, condition = args[:2]
    old = tag_of(scores)
    new = lowest_entries(result) & condition
    return new if old is None else torch.where(condition, new, old)


def _by_cast(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    return _tags(args)[0].to(result.device, copy=True)


#: How a row of the operator table hands tags on, by the row's ``tags`` word.
RULES: dict[str, Callable[..., Any]] = {
    "add": _by_addition,
    "value": _by_value,
    "view": _by_view,
    "where": _by_where,
    "fill": _by_fill,
    "cast": _by_cast,
}


def propagate(rule: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
    """Tag ``result`` as ``rule`` says, if any operand is tagged or a mask's scalar made it."""
    if rule == "cast" and args and is_probabilities(args[0]):
        mark_probabilities(result)
    derive = RULES.get(rule)
    if derive is None:
        return
    outputs = result if isinstance(result, (list, tuple)) else (result,)
    if not all(isinstance(out, torch.Tensor) and out.is_floating_point() for out in outputs):
        return
    if not _tags(args) and rule not in ("value", "fill"):
        return
    derived = derive(func, args, kwargs, result)
    for out, masked in zip(
        outputs, derived if isinstance(result, (list, tuple)) else (derived,), strict=True
    ):
        if tag_of(out) is None or out is not args[0]:
            set_tag(out, masked)
