"""Data-flow provenance: which points and parameters a tensor was computed from.

A probe runs the model once and every tensor carries the set of what it derives from: indices of points, back
to the nearest, and names of parameters and buffers. A point's edges and weights are the set that its tensor
carries when it is captured. Nothing is guessed from a model's structure or from sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_SOURCES = "_repro_sources"

#: A source: (point index, whether positions were mixed on the way), or a parameter's name.
Source = tuple[int, bool] | str
Sources = frozenset[Source]
_NOTHING: Sources = frozenset()

#: Operators that bring rows of different positions together when both operands are activations.
_PRODUCTS = frozenset(
    {"matmul", "bmm", "mm", "baddbmm", "addmm", "mv", "dot", "scaled_dot_product_attention"}
)
#: Operators that move rows or sum over them.
_MOVERS = frozenset(
    {"conv1d", "conv2d", "conv3d", "cumsum", "roll", "flip", "gather", "index_select", "index_add"}
)


class Tracer:
    """Hands sources on from operands to results.

    Args:
        length: size of the position axis, no other size of the model: a result without such an axis has mixed
            the positions of an operand that has one. 0: positions are not followed.
    """

    def __init__(self, length: int = 0) -> None:
        self._length = length
        # The storage is held, so that no later tensor can have its address.
        self._written: dict[int, tuple[torch.UntypedStorage, Sources]] = {}

    def sources(self, tensor: torch.Tensor) -> Sources:
        """What ``tensor`` derives from."""
        found: Sources = getattr(tensor, _SOURCES, _NOTHING)
        if self._written and type(tensor) is torch.Tensor:
            found |= self._written_to(_storage(tensor))
        return found

    def declare(self, tensor: torch.Tensor, sources: Iterable[Source]) -> None:
        """Say what ``tensor`` is, whatever it was computed from: a parameter, or a point."""
        setattr(tensor, _SOURCES, frozenset(sources))
        self._written.pop(_storage(tensor), None)

    def follow(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """After an operator: its results derive from what its operands derive from."""
        operands = list(_tensors((args, tuple(kwargs.values()))))
        found: Sources = frozenset().union(*(self.sources(tensor) for tensor in operands))
        if not found:
            return
        name = func._schema.name.removeprefix("aten::")
        if self._mixes(name, operands, result):
            found = frozenset(source if isinstance(source, str) else (source[0], True) for source in found)
        mutable = func._schema.is_mutable
        for tensor in _tensors(result):
            setattr(tensor, _SOURCES, found)
            if mutable and type(tensor) is torch.Tensor:
                # A write into a view shows in every other view of the storage.
                key = _storage(tensor)
                self._written[key] = (tensor.untyped_storage(), self._written_to(key) | found)

    def _written_to(self, key: int) -> Sources:
        entry = self._written.get(key)
        return _NOTHING if entry is None else entry[1]

    def _mixes(self, name: str, operands: list[torch.Tensor], result: Any) -> bool:
        if name in _MOVERS or (name in _PRODUCTS and sum(map(self._is_activation, operands)) > 1):
            return True
        if not self._length or not any(self._length in tensor.shape for tensor in operands):
            return False
        return any(self._length not in tensor.shape for tensor in _tensors(result))

    def _is_activation(self, tensor: torch.Tensor) -> bool:
        return any(not isinstance(source, str) for source in self.sources(tensor))


class MetaProbe(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operators as they are, on meta tensors, and traces them: no values, no arithmetic, no memory."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tracer = tracer

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.tracer.follow(func, args, kwargs, result)
        return result


def _storage(tensor: torch.Tensor) -> int:
    # A wrapper subclass has no storage of its own; nothing writes into one.
    return tensor.untyped_storage()._cdata if type(tensor) is torch.Tensor else -1


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
