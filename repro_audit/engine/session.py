"""A model under the profile: global state, parameters, buffers, fused kernels and hooks, set up once for many
steps.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from repro_audit.devices import failures_named, placed, require_memory
from repro_audit.engine import attention
from repro_audit.engine.buffers import derived_buffers
from repro_audit.engine.cache import PositionCache, SingleRows
from repro_audit.engine.context import audited
from repro_audit.engine.coverage import modules_covered
from repro_audit.engine.dispatch import ProfileMode
from repro_audit.engine.escapes import closed
from repro_audit.engine.fused import fused_modules, fuses_attention
from repro_audit.engine.hooks import hooked
from repro_audit.engine.layout import find_layout
from repro_audit.engine.leftovers import undone
from repro_audit.engine.optable import table
from repro_audit.engine.points import Plan, cache_argument, eager, plan, rows_of, windows
from repro_audit.engine.refusals import ACTIVATION_DTYPES, check_model, check_settings
from repro_audit.engine.storedparam import stored_parameters
from repro_audit.trace.record import ModuleCount, TensorDigest
from repro_audit.trace.recorder import Recorder, Span

if TYPE_CHECKING:
    from repro_audit.models.loaded import LoadedModel
    from repro_audit.settings import RunSettings

#: Most rows of one step, and most of them with logits: what bounds the memory of activations.
STEP_ROWS = 1024
STEP_LOGITS = 256


class Session:
    """Runs steps of one decoder. Made by :func:`session`.

    Attributes:
        plan: points and where they are taken.
        packed: whether a step may carry rows of several sequences (the engine's own attention).
        recorder: where rows go; set by the caller before the first step.
    """

    def __init__(self, model: LoadedModel, settings: RunSettings, *, fuse: bool) -> None:
        self.module = model.module
        self.plan: Plan = plan(self.module, settings.level)
        self.layout = find_layout(self.module)
        self.packed = fuse and fuses_attention(self.module)
        self.fuse = fuse
        self.device = settings.device
        self.dtype = ACTIVATION_DTYPES[settings.activations]
        self.names = {id(child): path for path, child in self.module.named_modules()}
        self.mode = ProfileMode(table(), self.names)
        self.mode.writing = self._unshare
        self.recorder: Recorder | None = None
        self.buffers: tuple[TensorDigest, ...] = ()
        self.spans: Sequence[Span] = ()
        self.kv_points: dict[int, tuple[int, int]] = {}
        self._attention: attention.StepAttention | None = None
        #: int32 [1] on a GPU: set by a kernel that met something non-finite, read once per step.
        self.flag: torch.Tensor | None = None
        self._cache_name = cache_argument(self.module)
        self._accepted = inspect.signature(self.module.forward).parameters
        keys = {site.layer: index for index, site in enumerate(self.plan.sites) if site.kind == "key"}
        values = {site.layer: index for index, site in enumerate(self.plan.sites) if site.kind == "value"}
        self.kv_points = {layer: (keys[layer], values[layer]) for layer in keys if layer in values}
        self.logits_point = len(self.plan.points) - 1

    @contextmanager
    def _open(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(failures_named(self.device))
            stack.enter_context(undone(self.module))
            stack.enter_context(placed(self.module, self.device))
            stack.enter_context(audited())
            stack.enter_context(closed())
            stack.enter_context(stored_parameters(self.module, self.dtype))
            self.buffers = stack.enter_context(derived_buffers(self.module, self.mode))
            if self.fuse:
                stack.enter_context(fused_modules(self.module, self.mode, attention=self.packed))
            sites = self.plan.sites
            stack.enter_context(hooked(self.module, sites, self._take))
            if self.packed:
                queries = {
                    id(self.module.get_submodule(site.module)): index
                    for index, site in enumerate(sites)
                    if site.kind == "query"
                }
                window = windows(self.module, self.layout)
                self._attention = attention.StepAttention(self.mode, queries, self._take, window)
                if self.device != "cpu":
                    self.flag = torch.zeros(1, dtype=torch.int32, device=self.device)
                stack.enter_context(attention.registered(self._attention))
                stack.enter_context(eager(self.module, attention.IMPLEMENTATION))
            else:
                stack.enter_context(eager(self.module))
            yield

    def cache(self, slots: int, capacity: int) -> PositionCache:
        """A cache for ``slots`` sequences of at most ``capacity`` positions, whose writes are recorded."""
        self._require_memory(slots, capacity)
        written = self._written if self.kv_points else None
        return PositionCache(slots, capacity, len(self.layout.blocks), packed=self.packed, written=written)

    def _require_memory(self, slots: int, capacity: int) -> None:
        """Say before the first step that a GPU is too small for the cache and the largest step."""
        if self.device == "cpu":
            return
        config: Any = self.module.config
        text, size = config.get_text_config(), self.dtype.itemsize
        heads = int(text.num_attention_heads)
        width = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
        kept = int(getattr(text, "num_key_value_heads", None) or heads)
        cached = 2 * len(self.layout.blocks) * slots * capacity * kept * width * size
        rows = min(STEP_ROWS, slots * capacity)
        # Some activations of a block at once (the widest is the MLP's), float32 logits and their copies.
        widest = int(getattr(text, "intermediate_size", None) or 4 * text.hidden_size)
        step = rows * 8 * widest * 4 + 3 * min(STEP_LOGITS, rows) * int(text.vocab_size) * 4
        require_memory(self.device, cached + step, f"{cached / 2**30:.2f} for the KV cache")

    def step(
        self, tokens: Sequence[int], spans: Sequence[Span], keep: Sequence[int], cache: PositionCache
    ) -> torch.Tensor:
        """One forward pass.

        Args:
            tokens: token ids, rows of all spans side by side.
            spans: which rows are which positions of which sequence; one span unless the session is packed.
            keep: rows whose logits are wanted, ascending.
            cache: the batch's cache.

        Returns:
            [len(keep), vocabulary] in the activation type.

        Raises:
            InconclusiveError: an operator outside the table, or a non-finite value where none may be.
        """
        positions = torch.cat([torch.arange(s.first, s.first + s.end - s.begin) for s in spans])
        arguments: dict[str, Any] = {
            "input_ids": torch.tensor([list(tokens)], device=self.device),
            "position_ids": positions[None].to(self.device),
        }
        every = len(keep) == len(tokens)
        if not every and keep:
            arguments["logits_to_keep"] = torch.tensor(list(keep), device=self.device)
        elif not keep:
            arguments["logits_to_keep"] = 1
        before = self.mode.counts()
        cache.begin(spans)
        logits = self._forward(arguments, spans, cache, self.flag)
        if self.flag is not None and int(self.flag):
            # Again without the flag: the error then names the layer.
            self.discard(before)
            logits = self._forward(arguments, spans, cache, None)
        if not every and "logits_to_keep" not in self._accepted:
            logits = logits[list(keep)]
        if self.recorder is not None:
            if keep:
                self.recorder.take(self.logits_point, logits, _kept_spans(spans, keep))
            self.recorder.flush()
        return logits[: len(keep)]

    @property
    def decodes(self) -> bool:
        """Whether :meth:`decode` runs this model: its own attention, and an embedding of all it can draw."""
        if not self.packed:
            return False
        module: Any = self.module
        read, written = module.get_input_embeddings(), module.get_output_embeddings()
        return written is not None and read.weight.shape[0] >= written.weight.shape[0]

    def decode(
        self, tokens: torch.Tensor, spans: Sequence[Span], single: SingleRows, cache: PositionCache
    ) -> torch.Tensor:
        """One forward pass of one row per sequence that waits for nothing: the host knows no token.

        Args:
            tokens: int64 [1, rows] on the device, drawn by the profile's sampler.
            spans: row r of sequence ``spans[r].sequence``, which has slot r; first positions mean nothing.
            single: positions, on the device.
            cache: the batch's cache.

        Returns:
            [rows, vocabulary]. All points are taken, none is hashed yet. On a GPU :attr:`flag` says whether
            something was not finite; then nothing of the step may be used.
        """
        arguments = {"input_ids": tokens, "position_ids": single.positions[None]}
        cache.begin(spans, single)
        self.mode.drawn = tokens
        try:
            logits = self._forward(arguments, spans, cache, self.flag)
        finally:
            self.mode.drawn = None
        if self.recorder is not None:
            self.recorder.take(self.logits_point, logits, spans)
        return logits

    def discard(self, before: dict[Any, int]) -> None:
        """Forget what was taken and counted since ``before``: the step runs again."""
        self.mode.restore(before)
        if self.recorder is not None:
            self.recorder.discard()

    def _forward(
        self,
        arguments: dict[str, Any],
        spans: Sequence[Span],
        cache: PositionCache,
        flag: torch.Tensor | None,
    ) -> torch.Tensor:
        """Logits [rows, vocabulary] of a step that the cache has begun."""
        self.spans = spans
        if self._attention is not None:
            self._attention.cache = cache
            self._attention.flag = flag
        if flag is not None:
            flag.zero_()
        given = {**arguments, self._cache_name: cache, "use_cache": True}
        with self.mode:
            output = self.module(**{name: value for name, value in given.items() if name in self._accepted})
        logits: torch.Tensor = output.logits[0]
        return logits

    def modules(self) -> tuple[ModuleCount, ...]:
        """Coverage per kind of module."""
        return modules_covered(self.module, self.layout, self.plan.executed)

    def _unshare(self) -> None:
        if self.recorder is not None:
            self.recorder.unshare()

    def _take(self, index: int, tensor: torch.Tensor) -> None:
        if self.recorder is not None:
            with torch._C._DisableTorchDispatch():
                self.recorder.take(index, rows_of(tensor, self.plan.axes[index]), self.spans)

    def _written(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        if self.recorder is not None and layer in self.kv_points:
            for index, rows in zip(self.kv_points[layer], (key, value), strict=True):
                self.recorder.take(index, rows, self.spans)


def _kept_spans(spans: Sequence[Span], keep: Sequence[int]) -> list[Span]:
    """Spans over the kept rows: adjacent rows of one sequence in one span."""
    found: list[Span] = []
    owner = iter(spans)
    span = next(owner)
    for index, row in enumerate(keep):
        while row >= span.end:
            span = next(owner)
        position = span.first + row - span.begin
        last = found[-1] if found else None
        if (
            last is not None
            and last.sequence == span.sequence
            and last.first + last.end - last.begin == position
        ):
            found[-1] = Span(last.sequence, last.first, last.begin, index + 1)
        else:
            found.append(Span(span.sequence, position, index, index + 1))
    return found


@contextmanager
def session(model: LoadedModel, settings: RunSettings, *, fuse: bool = True) -> Iterator[Session]:
    """A model under the profile of ``settings`` while the context lasts; everything is undone after it.

    Args:
        model: in evaluation mode.
        settings: profile ``fp32``, the device resolved.
        fuse: use fused kernels where the model's code allows; the bits are the same without.

    Raises:
        UsageError: an unknown profile, device or activation type.
        InconclusiveError: a model that the profile does not cover.
    """
    check_settings(settings)
    check_model(model.module, decodes=True)
    opened = Session(model, settings, fuse=fuse)
    with opened._open():
        yield opened
