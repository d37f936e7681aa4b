"""Points of any ``nn.Module``: its modules' outputs, in execution order, with edges by data flow.

``layers``: children of the root, and what stands in their lists and sequences. ``ops``: every module. Both
add what the model returns, ``output`` or ``output.<key>``. A module that runs several times has a point each
time, ``name``, ``name#2`` and on. With ``input_ids`` among the inputs a row is one token (domain tok), and an
output without a position axis is one row of its sequence (domain sample); without, a row is one sample of dim
0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from repro_audit.engine.context import audited
from repro_audit.engine.dispatch import ProfileMode
from repro_audit.engine.layout import first_tensor
from repro_audit.engine.leftovers import undone
from repro_audit.engine.optable import table
from repro_audit.engine.points import RealProbe, declared, eager
from repro_audit.engine.tracer import MetaProbe, Tracer
from repro_audit.errors import InconclusiveError
from repro_audit.trace.record import Edge, Point

_SIZES = (13, 11, 17, 19, 23, 29, 31, 37, 41, 43)


@dataclass(frozen=True)
class ModulePlan:
    """Points by name, and for each the axis that counts its rows (None: the whole tensor is one row)."""

    points: tuple[Point, ...]
    axes: tuple[int | None, ...]
    executed: frozenset[str]

    def index(self) -> dict[str, int]:
        """Point name to index."""
        return {point.name: number for number, point in enumerate(self.points)}


def watched(module: nn.Module, level: str) -> list[str]:
    """Paths of the modules whose outputs are points at ``level``."""
    if level == "logits":
        return []
    if level == "ops":
        # Parts of routed experts run as often as tokens choose them: their block's output is the point.
        return [
            path
            for path, child in module.named_modules()
            if path and not _is_container(child) and ".experts." not in f".{path}"
        ]
    return list(_parts(module, ""))


def _parts(module: nn.Module, prefix: str) -> Iterator[str]:
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        if _is_container(child):
            yield from _parts(child, f"{path}.")
        else:
            yield path


def _is_container(module: nn.Module) -> bool:
    return isinstance(module, (nn.ModuleList, nn.ModuleDict, nn.Sequential))


def outputs(value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """(point name, tensor) of every tensor that a model returns."""
    if isinstance(value, torch.Tensor):
        yield "output", value
        return
    items = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, (tuple, list))
        else ()
    )
    for key, item in items:
        for name, tensor in outputs(item):
            yield f"output.{key}{name.removeprefix('output')}", tensor


class Passing:
    """Names the outputs of watched modules as they pass: first, second, third call."""

    def __init__(self) -> None:
        self._calls: dict[str, int] = {}

    def name(self, path: str) -> str:
        """The point name of this call of the module at ``path``."""
        calls = self._calls[path] = self._calls.get(path, 0) + 1
        return path if calls == 1 else f"{path}#{calls}"


def module_plan(module: nn.Module, inputs: Mapping[str, torch.Tensor], level: str) -> ModulePlan:
    """The plan of a module on inputs of these shapes.

    Raises:
        InconclusiveError: the module returns no tensor.
    """
    tokens = inputs.get("input_ids")
    sizes = {size for tensor in module.parameters() for size in tensor.shape}
    count = next(size for size in _SIZES if size not in sizes)
    first = next(iter(inputs.values()))
    try:
        return _probe(module, _probe_inputs(inputs, count, "meta"), count, level)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        # The forward pass looks at values, which meta tensors do not have.
        if tokens is None:
            return _probe(module, inputs, first.shape[0] if first.dim() else 1, level)
    try:
        return _probe(module, _probe_inputs(inputs, count, "cpu"), count, level)
    except (IndexError, RuntimeError, ValueError):
        # Or it holds for the length of its inputs alone.
        length = tokens.shape[1]
        return _probe(module, _probe_inputs(inputs, length, "cpu"), length, level)


def _probe(module: nn.Module, inputs: Mapping[str, torch.Tensor], rows: int, level: str) -> ModulePlan:
    tokens = inputs.get("input_ids")
    meta = all(tensor.is_meta for tensor in inputs.values())
    tracer = Tracer(rows if tokens is not None else 0)
    names = {id(child): path for path, child in module.named_modules()}
    wanted, passing, executed = set(watched(module, level)), Passing(), set()
    found: list[Point] = []
    axes: list[int | None] = []
    held: list[torch.Tensor] = []

    def take(name: str, tensor: torch.Tensor) -> None:
        axis = _row_axis(tensor, rows, tokens is not None)
        domain = "tok" if tokens is not None and axis is not None else "sample"
        sources = tracer.sources(tensor)
        edges: dict[int, str] = {}
        for source in sources:
            if not isinstance(source, str):
                number, mixed = source
                apart = tokens is not None and (mixed or found[number].domain != domain)
                edges[number] = "all" if apart or edges.get(number) == "all" else "row"
        weights = tuple(sorted(source for source in sources if isinstance(source, str)))
        tracer.declare(tensor, [(len(found), False)])
        found.append(Point(name, domain, tuple(Edge(n, edges[n]) for n in sorted(edges)), weights))
        axes.append(axis)
        held.append(tensor)

    def ran(child: nn.Module, args: Any, output: Any) -> None:
        path = names.get(id(child))
        if path is None:
            return
        executed.add(path)
        if path in wanted:
            take(passing.name(path), first_tensor(output))

    with ExitStack() as stack:
        stack.enter_context(undone(module))
        stack.enter_context(audited())
        stack.enter_context(declared(module, tracer, "meta" if meta else "cpu"))
        stack.enter_context(eager(module))
        hook = nn.modules.module.register_module_forward_hook(ran)
        stack.callback(hook.remove)
        stack.enter_context(MetaProbe(tracer) if meta else RealProbe(tracer, names))
        result = module(**inputs)
        for name, tensor in outputs(result):
            take(name, tensor)
    if not any(point.name.startswith("output") for point in found):
        raise InconclusiveError(
            f"{type(module).__name__} returns no tensor", hint="return a tensor, tuple or dict"
        )
    return ModulePlan(tuple(found), tuple(axes), frozenset(executed))


def _probe_inputs(inputs: Mapping[str, torch.Tensor], count: int, device: str) -> dict[str, torch.Tensor]:
    """Inputs of the same kind without their values: ``count`` tokens of a sequence, or ``count`` samples."""
    tokens = inputs.get("input_ids")
    found = {}
    for name, tensor in inputs.items():
        shape = list(tensor.shape)
        if tokens is not None:
            if shape[:1] == [tokens.shape[0]]:
                shape[0] = 1
            shape = [
                count if axis == 1 and size == tokens.shape[1] else size for axis, size in enumerate(shape)
            ]
        elif shape and shape[0] == next(iter(inputs.values())).shape[0]:
            shape[0] = count
        make = torch.ones if name == "attention_mask" else torch.zeros
        found[name] = make(shape, dtype=tensor.dtype, device=device)
    return found


def _row_axis(tensor: torch.Tensor, rows: int, tokens: bool) -> int | None:
    if not tokens:
        return 0 if tensor.dim() and tensor.shape[0] == rows else None
    axes = [axis for axis, size in enumerate(tensor.shape) if size == rows]
    # Axis 0 of a larger tensor is the batch of one.
    fits = len(axes) == 1 and (axes[0] == 0 or tensor.shape[0] == 1)
    return axes[0] if fits else None


def real_mode(module: nn.Module) -> ProfileMode:
    """A dispatch mode for one run of ``module``."""
    return ProfileMode(table(), {id(child): path for path, child in module.named_modules()})
