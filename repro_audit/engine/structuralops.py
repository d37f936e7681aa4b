"""Operators that move, make, compare or count, and never compute with floats."""

from __future__ import annotations

from typing import Any

import torch
from repro_kernels.ops import reduce

from repro_audit.engine import masks
from repro_audit.engine.exactops import FLOATS, checked

_Tensor = torch.Tensor
_SMALL_CONSTANT = 64


def move(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Views, copies, gathers: PyTorch's kernel as it is."""
    return func(*args, **kwargs)


def on_host(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Writes through an index, of whose duplicates the last wins: on the host, since a GPU has no order."""
    device = args[0].device
    if device.type == "cpu":
        return func(*args, **kwargs)
    return func(*_host(list(args)), **_host(kwargs)).to(device)


def _host(value: Any) -> Any:
    if isinstance(value, _Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {name: _host(item) for name, item in value.items()}
    return type(value)(_host(item) for item in value) if isinstance(value, (list, tuple)) else value


def same(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """The operand itself."""
    return args[0]


def create(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """zeros, ones, full and their kin."""
    return checked(mode, func, func(*args, **kwargs))


def empty(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """An empty tensor, zero-filled: what memory happened to hold never reaches arithmetic."""
    return checked(mode, func, func(*args, **kwargs).zero_())


def span(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """arange: integers by PyTorch, floats by the profile's kernel."""
    kind = kwargs.get("dtype")
    bounds = [*args[:3]]
    if kind is None:
        kind = torch.get_default_dtype() if any(type(bound) is float for bound in bounds) else torch.int64
    if kind not in FLOATS:
        return checked(mode, func, func(*args, **kwargs))
    start, end, step = {1: (0, *bounds, 1), 2: (*bounds, 1), 3: tuple(bounds)}[len(bounds)]
    return reduce.arange(start, end, step, dtype=kind).to(kwargs.get("device") or "cpu")


def line(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """linspace by the profile's kernel."""
    start, end, steps = args[:3]
    kind = kwargs.get("dtype") or torch.get_default_dtype()
    return reduce.linspace(start, end, steps, dtype=kind).to(kwargs.get("device") or "cpu")


def constant(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """A tensor that model code makes from Python numbers: recorded by content, tagged where it masks."""
    value: torch.Tensor = args[0]
    if value.dtype in FLOATS:
        low = masks.lowest_entries(value)
        if value.numel() > _SMALL_CONSTANT or not bool((low | (value == 0)).all()):
            mode.constant(value)  # the two values of an additive mask, 0 and the lowest, are not evidence
        if value.numel() <= _SMALL_CONSTANT and bool(low.any()):
            mode.tagging = True
            masks.set_tag(value, low)
    return value


def cast(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """to, _to_copy, type_as: float to float exact or RN; float to int saturates, NaN to 0."""
    source = args[0]
    if source.dtype in FLOATS:
        kind = _target(args, kwargs)
        if kind is not None and not (kind.is_floating_point or kind.is_complex or kind is torch.bool):
            return reduce.to_integer(source, kind)
    return checked(mode, func, func(*args, **kwargs))


def _target(args: Any, kwargs: Any) -> torch.dtype | None:
    for value in (*args[1:], kwargs.get("dtype"), kwargs.get("other")):
        if isinstance(value, torch.dtype):
            return value
        if isinstance(value, _Tensor):
            return value.dtype
    return None


def bits(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """view(dtype): refused on or to floats, since a NaN's bits are nobody's."""
    source, kind = args[0], args[1]
    if kind is source.dtype:
        return func(*args, **kwargs)
    if source.dtype.is_floating_point or kind.is_floating_point or kind.is_complex:
        raise mode.refuse(f"operator {func} views the bits of a float", "convert by value, not by bits")
    return func(*args, **kwargs)


def scalar_out(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """item and is_nonzero: integers and bools steer the program; a float taken out of an activation is
    refused.
    """
    if args[0].dtype.is_floating_point or args[0].is_complex():
        raise mode.refuse(
            f"operator {func} takes a float out of a tensor",
            "keep the value in a tensor, where it is audited",
        )
    return func(*args, **kwargs)


def write(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """copy_: into self, which may be a view of anything; float to int as a cast."""
    target, source = args[0], args[1]
    if isinstance(source, _Tensor) and source.dtype in FLOATS and not target.dtype.is_floating_point:
        source = source if target.dtype is torch.bool else reduce.to_integer(source, target.dtype)
    func(target, source, *args[2:], **kwargs)
    tag, old = masks.tag_of(source), masks.tag_of(target)
    if old is not None:
        old.copy_(tag if tag is not None else torch.zeros_like(source, dtype=torch.bool))
    elif tag is not None:
        masks.set_tag(target, tag)
    return target


def fill(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """fill_ and zero_ in place."""
    target = args[0]
    func(*args, **kwargs)
    old = masks.tag_of(target)
    if old is not None:
        old.copy_(masks.lowest_entries(target))
    return target


def put(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """index_put without accumulation: of duplicate indices the last wins (PyTorch's serial path)."""
    if (args[3] if len(args) > 3 else kwargs.get("accumulate", False)) and args[0].dtype.is_floating_point:
        raise mode.refuse(f"operator {func} with accumulate=True", "use index_add, whose order is specified")
    if args[0].device.type == "cpu" or not func._schema.is_mutable:
        return on_host(mode, func, args, kwargs)
    held = _host(list(args))
    func(*held, **_host(kwargs))
    return args[0].copy_(held[0])


def dropout(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Dropout of a model in evaluation: the operand itself."""
    if args[2] if len(args) > 2 else kwargs.get("train", kwargs.get("training", True)):
        raise mode.refuse("dropout is active", "call model.eval() first: a run in training mode is random")
    return args[0]


def random(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Random operators: refused."""
    raise mode.refuse(
        f"operator {func} is random", "audit a model that draws no random numbers in its forward pass"
    )


def equal(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """torch.equal decides on values; on floats it would steer the program by an activation."""
    if args[0].dtype.is_floating_point:
        raise mode.refuse(f"operator {func} on floats", "compare in tensors, where the result is audited")
    return func(*args, **kwargs)
