"""The point table of a decoder: from its structure, put in execution order by a probe that also finds the
edges.

The probe runs the model once on meta tensors (no values, no memory), with eager attention, so it sees every
operator; a model that decides on values is probed on the CPU under the profile instead. Table, order, edges
and weights depend on the model and the recording level alone.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from repro_audit.engine.cache import PositionCache
from repro_audit.engine.context import audited
from repro_audit.engine.dispatch import ProfileMode
from repro_audit.engine.hooks import hooked
from repro_audit.engine.layout import Layout, Site, find_layout, sites
from repro_audit.engine.leftovers import undone
from repro_audit.engine.optable import table
from repro_audit.engine.storedparam import stored_parameters
from repro_audit.engine.tracer import MetaProbe, Tracer
from repro_audit.errors import InconclusiveError
from repro_audit.trace.record import Edge, Point
from repro_audit.trace.recorder import Span

#: Candidates for the probe's number of tokens: one that is no other size of the model shows the position
#: axis.
_LENGTHS = (13, 11, 17, 19, 23, 29, 31, 37, 41, 43)


@dataclass(frozen=True)
class Plan:
    """A model's points at one level, where each is taken, and which modules a forward pass runs.

    Attributes:
        points: the table, in canonical order.
        sites: ``sites[i]`` is where ``points[i]`` is taken.
        axes: axis of ``sites[i]``'s tensor that counts positions; axis 0 of a larger one is the batch.
        executed: paths of the modules that ran.
    """

    points: tuple[Point, ...]
    sites: tuple[Site, ...]
    axes: tuple[int, ...]
    executed: frozenset[str]


_PLANS: weakref.WeakKeyDictionary[nn.Module, dict[str, Plan]] = weakref.WeakKeyDictionary()


def plan(module: nn.Module, level: str) -> Plan:
    """The plan of a decoder at ``logits``, ``layers`` or ``ops``; found once per model and level."""
    known = _PLANS.setdefault(module, {})
    if level not in known:
        layout = find_layout(module)
        known[level] = _probe(module, layout, sites(module, layout, level))
    return known[level]


def rows_of(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    """[positions, ...] of a step's tensor, as :class:`Plan` gives its axis."""
    if axis == 0:
        return tensor
    only = tensor.select(0, 0)
    return only if axis == 1 else only.movedim(axis - 1, 0)


def cache_argument(module: nn.Module) -> str:
    """What the model calls its cache: ``cache``, or ``past_key_values`` in older versions of transformers."""
    names = inspect.signature(module.forward).parameters
    for name in ("cache", "past_key_values"):
        if name in names:
            return name
    raise InconclusiveError(
        f"{type(module).__name__} takes no key-value cache",
        hint="audit it as python:module:factory, with its inputs",
    )


class _Capture:
    """Collects points in the order they pass, with what each derives from."""

    def __init__(
        self, candidates: tuple[Site, ...], tracer: Tracer, length: int, windows: dict[int, int]
    ) -> None:
        self.candidates = candidates
        self.tracer = tracer
        self.length = length
        self.windows = windows
        self.found: list[Site] = []
        self.axes: list[int] = []
        self.edges: list[tuple[Edge, ...]] = []
        self.weights: list[tuple[str, ...]] = []
        self.names: dict[str, int] = {}
        self.kept: list[torch.Tensor] = []

    def take(self, index: int, tensor: torch.Tensor) -> None:
        site = self.candidates[index]
        known = getattr(tensor, "_repro_point", None)
        if known is not None:
            # One tensor, two sites: an output projection is the attention's output; the outer name wins.
            inner = self.found[known]
            if site.kind == "output" and inner.module.startswith(f"{site.module}."):
                del self.names[inner.name]
                self.found[known] = site
                self.names[site.name] = known
            return
        axes = [axis for axis, size in enumerate(tensor.shape) if size == self.length]
        if len(axes) != 1 or (axes[0] > 0 and tensor.shape[0] != 1) or site.name in self.names:
            return
        number = len(self.found)
        sources = self.tracer.sources(tensor)
        points = sorted({source[0] for source in sources if not isinstance(source, str)})
        self.found.append(site)
        self.axes.append(axes[0])
        self.edges.append(tuple(self._edge(point) for point in points))
        self.weights.append(tuple(sorted(source for source in sources if isinstance(source, str))))
        self.names[site.name] = number
        self.tracer.declare(tensor, [(number, False)])
        setattr(tensor, "_repro_point", number)  # noqa: B010 (an attribute of ours on a tensor)
        self.kept.append(tensor)

    def _edge(self, point: int) -> Edge:
        consumed = self.found[point]
        if consumed.kind not in ("key", "value"):
            return Edge(point)
        window = self.windows.get(consumed.layer, 0)
        return Edge(point, "window", window) if window else Edge(point, "causal")


def _probe(module: nn.Module, layout: Layout, candidates: tuple[Site, ...]) -> Plan:
    try:
        return _run_probe(module, layout, candidates, meta=True)
    except (NotImplementedError, RuntimeError, TypeError):
        # The forward pass looks at values (which expert, which length), which meta tensors do not have.
        return _run_probe(module, layout, candidates, meta=False)


def _run_probe(module: nn.Module, layout: Layout, candidates: tuple[Site, ...], *, meta: bool) -> Plan:
    sizes = {size for tensor in module.parameters() for size in tensor.shape}
    sizes |= {value for value in vars(module.config).values() if isinstance(value, int)}
    length = next(size for size in _LENGTHS if size not in sizes)
    tracer, executed = Tracer(length), set()
    capture = _Capture(candidates, tracer, length, windows(module, layout))
    names = {id(child): path for path, child in module.named_modules()}
    keys = {site.layer: index for index, site in enumerate(candidates) if site.kind == "key"}
    values = {site.layer: index for index, site in enumerate(candidates) if site.kind == "value"}

    def ran(child: nn.Module, args: Any, output: Any) -> None:
        executed.add(names.get(id(child), ""))

    with ExitStack() as stack:
        stack.enter_context(undone(module))
        stack.enter_context(audited())
        device = "meta" if meta else "cpu"
        stack.enter_context(declared(module, tracer, device))
        stack.enter_context(eager(module))
        hook = nn.modules.module.register_module_forward_hook(ran)
        stack.callback(hook.remove)
        stack.enter_context(hooked(module, candidates, capture.take))
        stack.enter_context(MetaProbe(tracer) if meta else RealProbe(tracer, names))
        ids = torch.zeros(1, length, dtype=torch.int64, device=device)
        positions = torch.arange(length, device=device)[None]
        cache = _ProbeCache(len(layout.blocks), length, keys, values, capture)
        arguments = {cache_argument(module): cache, "use_cache": True, "position_ids": positions}
        accepted = inspect.signature(module.forward).parameters
        output = module(input_ids=ids, **{k: v for k, v in arguments.items() if k in accepted})
        capture.take(0, output.logits)
    points = tuple(
        Point(site.name, "kv" if site.kind in ("key", "value") else "tok", edges, weights)
        for site, edges, weights in zip(capture.found, capture.edges, capture.weights, strict=True)
    )
    if points[-1].name != "logits":
        raise InconclusiveError(
            f"{type(module).__name__} gives no logits per position", hint="audit a language model"
        )
    return Plan(points, tuple(capture.found), tuple(capture.axes), frozenset(executed))


class RealProbe(ProfileMode):  # type: ignore[no-untyped-call]
    """The profile's mode, tracing: for models that decide on values."""

    def __init__(self, tracer: Tracer, names: dict[int, str]) -> None:
        super().__init__(table(), names)
        self.tracer = tracer

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.tracer.follow(func, args, kwargs or {}, result)
        return result


class _ProbeCache(PositionCache):
    """Hands keys and values to the capture and back, unchanged."""

    def __init__(
        self, layers: int, length: int, keys: dict[int, int], values: dict[int, int], capture: _Capture
    ) -> None:
        super().__init__(1, length, layers, packed=False, written=None)
        self.begin([Span(0, 0, 0, length)])
        self._sites = (keys, values)
        self._capture = capture

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        for known, tensor in zip(self._sites, (key_states, value_states), strict=True):
            if layer_idx in known:
                self._capture.take(known[layer_idx], tensor)
        return key_states, value_states


@contextmanager
def declared(module: nn.Module, tracer: Tracer, device: str) -> Iterator[None]:
    """Parameters and buffers as the probe reads them: meta tensors of one type, or themselves, named to the
    tracer.
    """
    undo: list[tuple[dict[str, Any], str, torch.Tensor]] = []
    swapped: dict[int, torch.Tensor] = {}
    with ExitStack() as stack:
        if device != "meta":
            stack.enter_context(stored_parameters(module, torch.float32))
        try:
            for path, child in module.named_modules():
                for entries in (child._parameters, child._buffers):
                    for name, tensor in list(entries.items()):
                        if tensor is None:
                            continue
                        if id(tensor) not in swapped:
                            kind = torch.float32 if tensor.is_floating_point() else tensor.dtype
                            fresh = (
                                torch.empty_like(tensor, device=device, dtype=kind)
                                if device == "meta"
                                else tensor
                            )
                            tracer.declare(fresh, [f"{path}.{name}" if path else name])
                            swapped[id(tensor)] = fresh
                        undo.append((entries, name, tensor))
                        entries[name] = swapped[id(tensor)]
            yield
        finally:
            for entries, name, tensor in undo:
                entries[name] = tensor


@contextmanager
def eager(module: nn.Module, implementation: str = "eager") -> Iterator[None]:
    """Select an attention implementation, and eager experts, in every config of the model."""
    with ExitStack() as stack:
        configs = {id(child.config): child.config for child in module.modules() if hasattr(child, "config")}
        for config in configs.values():
            for name, value in (
                ("_attn_implementation_internal", implementation),
                ("_experts_implementation_internal", "eager"),
            ):
                if getattr(config, name, None) is not None:
                    stack.callback(setattr, config, name, getattr(config, name))
                    setattr(config, name, value)
        yield


def windows(module: nn.Module, layout: Layout) -> dict[int, int]:
    """Block index to the sliding window of its attention, for blocks that have one."""
    owner: Any = module
    config = owner.config.get_text_config()
    size = getattr(config, "sliding_window", None)
    if not isinstance(size, int) or getattr(config, "use_sliding_window", True) is False:
        return {}
    kinds = getattr(config, "layer_types", None)
    return {
        index: size
        for index in range(len(layout.blocks))
        if kinds is None or kinds[index] == "sliding_attention"
    }
