"""Accounting for weights: each parameter is bit-equal to a file tensor, or an exact rearrangement of some.

transformers loads; this module believes nothing of it. It runs after loading, restores what a cast changed,
and refuses a parameter that no file tensor explains (it would be random), and a file tensor that neither a
parameter nor the class's own rules explain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from repro_audit.errors import InconclusiveError
from repro_audit.models.digests import dtype_name, same_bits
from repro_audit.models.loaded import Source

_WRONG = "the checkpoint is not one of this model's class, or is incomplete: fetch it again"


@dataclass
class Account:
    """What the accounting found; see the fields of the same names in ``LoadedModel``."""

    sources: list[Source] = field(default_factory=list)
    cast_keys: list[str] = field(default_factory=list)
    ignored_keys: tuple[str, ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()


def named_tensors(module: torch.nn.Module) -> tuple[dict[str, torch.Tensor], tuple[tuple[str, ...], ...]]:
    """Parameters and persistent buffers, tied ones under their first name, and the groups of tied names."""
    persistent = set(module.state_dict().keys())
    every: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    every |= {k: v for k, v in module.named_buffers(remove_duplicate=False) if k in persistent}
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, tensor in every.items():
        # Two tensors are one when they are the same elements, as one object or through one storage.
        shared = tensor.numel() > 0 and tensor.device.type != "meta"
        key = (tensor.data_ptr(), *tensor.shape, *tensor.stride()) if shared else (-1, id(tensor))
        groups.setdefault(key, []).append(name)
    firsts = {names[0]: every[names[0]] for names in groups.values()}
    return firsts, tuple(tuple(names) for names in groups.values() if len(names) > 1)


def account(
    module: torch.nn.Module,
    tensors: Mapping[str, torch.Tensor],
    *,
    unexpected: set[str],
    base_prefix: str,
    cast_weights: bool,
) -> Account:
    """Check every parameter and persistent buffer of a loaded module against the file's tensors.

    A parameter whose dtype loading changed gets the file's bits back, unless ``cast_weights``: then the cast
    stays and is listed.

    Args:
        module: the loaded module; changed in place where a cast is undone.
        tensors: the file's tensors by key.
        unexpected: keys that transformers could neither load nor ignore by its class's rules.
        base_prefix: the class's ``base_model_prefix``: a checkpoint of the inner model lacks it.
        cast_weights: keep casts.

    Raises:
        InconclusiveError: naming the first parameter or tensor that is not explained.
    """
    named, tied = named_tensors(module)
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    aliases = {group[0]: group for group in tied}
    used: set[str] = set()
    result = Account(tied=tied)
    pending: list[str] = []
    for name, tensor in named.items():
        keys = _same_name(aliases.get(name, (name,)), base_prefix, tensors)
        if not keys:
            pending.append(name)
            continue
        for key in keys[1:]:
            if not same_bits(tensors[keys[0]], tensors[key]):
                raise InconclusiveError(
                    f"{keys[0]} and {key} are one tied parameter in this model but differ in the checkpoint",
                    hint="set tie_word_embeddings to false in config.json if they are meant to differ",
                )
        used.update(keys)
        _match(name, tensor, keys[0], tensors[keys[0]], cast_weights=cast_weights, result=result)
        if keys[0] not in aliases.get(name, (name,)):
            result.sources.append(Source(name, "rename", (keys[0],)))
    finder = _Finder({key: value for key, value in tensors.items() if key not in used})
    for name in pending:
        source = finder.explain(name, named[name])
        if source is None and name in parameters:
            raise InconclusiveError(_not_loaded(name, named[name], finder.shaped(named[name])), hint=_WRONG)
        if source is not None:
            result.sources.append(source)
            used.update(source.keys)
    left = [key for key in tensors if key not in used]
    strange = [key for key in left if key in unexpected]
    if strange:
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        raise InconclusiveError(
            f"the checkpoint holds {strange[0]}{more}, for which {type(module).__name__} has no place",
            hint=_WRONG,
        )
    result.ignored_keys = tuple(sorted(left))
    return result


def _same_name(names: tuple[str, ...], prefix: str, tensors: Mapping[str, torch.Tensor]) -> list[str]:
    exact = [name for name in names if name in tensors]
    if exact or not prefix:
        return exact
    dotted = prefix + "."
    inner = [name.removeprefix(dotted) for name in names if name.startswith(dotted)]
    outer = [dotted + name for name in names]
    return [key for key in [*inner, *outer] if key in tensors]


def _match(
    name: str, tensor: torch.Tensor, key: str, value: torch.Tensor, *, cast_weights: bool, result: Account
) -> None:
    if same_bits(tensor, value):
        return
    if tensor.shape != value.shape:
        raise InconclusiveError(
            f"{key} has shape {list(value.shape)} in the checkpoint where {name} has {list(tensor.shape)}",
            hint="config.json and the weights belong to different models: fetch both again",
        )
    if tensor.dtype == value.dtype or not same_bits(tensor, value.to(tensor.dtype)):
        raise InconclusiveError(
            f"after loading, {name} ({dtype_name(tensor.dtype)}) does not hold the values of {key} "
            f"({dtype_name(value.dtype)})",
            hint="this transformers version changes weights while loading: please report it",
        )
    if cast_weights:
        result.cast_keys.append(name)
        result.sources.append(Source(name, "cast", (key,)))
    else:
        tensor.data = value


def _not_loaded(name: str, tensor: torch.Tensor, similar: list[str]) -> str:
    if name.endswith("lm_head.weight"):
        return (
            f"the checkpoint has no {name} and the config does not tie it to the embedding, "
            "so the output layer would be random"
        )
    shape = f"{dtype_name(tensor.dtype)} {list(tensor.shape)}"
    near = f"; {similar[0]} has its shape but other bits" if similar else ""
    return f"the checkpoint has no tensor for parameter {name} ({shape}), which would be random{near}"


class _Finder:
    """Explains a parameter by value: which unused file tensors is it an exact rearrangement of?

    By value and not by transformers' conversion tables: what is certified is that every element of the
    parameter is a file element, whatever the tables say in this or that version.
    """

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self._tensors = tensors

    def shaped(self, tensor: torch.Tensor) -> list[str]:
        """Keys of the tensors of this shape."""
        return [key for key, value in self._tensors.items() if value.shape == tensor.shape]

    def explain(self, name: str, tensor: torch.Tensor) -> Source | None:
        """The source of a parameter, or None. Whole sources are used up, split ones stay for other parts."""
        if tensor.numel() == 0 or not self._tensors:
            return None
        if (whole := self._whole(name, tensor)) is not None:
            key, how = whole
            return self._take(Source(name, how, (key,)))
        if tensor.ndim >= 2 and (parts := self._pieces(name, tensor)) is not None:
            return self._take(Source(name, "concatenate", tuple(parts)))
        if tensor.ndim >= 3 and (stacked := self._stack(name, tensor)) is not None:
            return self._take(stacked)
        for key, value in self._tensors.items():
            if self._is_split(tensor, value):
                return Source(name, "split", (key,))
        return None

    def _take(self, source: Source) -> Source:
        for key in source.keys:
            self._tensors.pop(key, None)
        return source

    def _candidates(self, name: str) -> list[str]:
        # Names that end alike come first: equal tensors (zero biases) then pair as their names do.
        tail = name.split(".")[::-1]

        def shared(key: str) -> int:
            parts = key.split(".")[::-1]
            return next((i for i, (a, b) in enumerate(zip(tail, parts, strict=False)) if a != b), len(tail))

        return sorted(self._tensors, key=lambda key: (-shared(key), len(key), key))

    def _whole(self, name: str, tensor: torch.Tensor) -> tuple[str, str] | None:
        keys = self._candidates(name)
        for key in keys:
            if same_bits(tensor, self._tensors[key]):
                return key, "rename"
        if tensor.ndim >= 2:
            for key in keys:
                value = self._tensors[key]
                if value.ndim == tensor.ndim and same_bits(tensor, value.transpose(-1, -2)):
                    return key, "transpose"
        return None

    def _pieces(self, name: str, tensor: torch.Tensor) -> list[str] | None:
        """Keys whose tensors, one under the other, are ``tensor``."""
        keys, row = [], 0
        candidates = self._candidates(name)
        while row < tensor.shape[0]:
            for key in candidates:
                value = self._tensors[key]
                rows = value.shape[0] if value.ndim == tensor.ndim else 0
                if (
                    0 < rows <= tensor.shape[0] - row
                    and key not in keys
                    and value.shape[1:] == tensor.shape[1:]
                    and same_bits(tensor[row : row + rows], value)
                ):
                    keys.append(key)
                    row += rows
                    break
            else:
                return None
        return keys

    def _stack(self, name: str, tensor: torch.Tensor) -> Source | None:
        keys: list[str] = []
        how = "stack"
        for piece in tensor:
            if (whole := self._whole(name, piece)) is not None:
                keys.append(whole[0])
            elif (parts := self._pieces(name, piece)) is not None:
                how = "stack-concatenate"
                keys.extend(parts)
            else:
                return None
        return Source(name, how, tuple(keys))

    @staticmethod
    def _is_split(tensor: torch.Tensor, value: torch.Tensor) -> bool:
        rows = tensor.shape[0] if tensor.ndim else 0
        if not rows or value.ndim != tensor.ndim or value.shape[1:] != tensor.shape[1:]:
            return False
        starts = {*range(0, value.shape[0] - rows + 1, rows), value.shape[0] - rows}
        return any(same_bits(tensor, value[start : start + rows]) for start in starts if start >= 0)
