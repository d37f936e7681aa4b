"""Runs any ``nn.Module`` on given inputs under the profile and records its points."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from repro_audit.devices import failures_named, placed
from repro_audit.engine import launched
from repro_audit.engine.buffers import derived_buffers
from repro_audit.engine.context import audited
from repro_audit.engine.coverage import modules_covered
from repro_audit.engine.escapes import closed
from repro_audit.engine.fused import fused_modules
from repro_audit.engine.layout import first_tensor
from repro_audit.engine.leftovers import undone
from repro_audit.engine.modulepoints import ModulePlan, Passing, module_plan, outputs, real_mode, watched
from repro_audit.engine.points import eager, rows_of
from repro_audit.engine.refusals import ACTIVATION_DTYPES, check_model, check_settings
from repro_audit.engine.storedparam import stored_parameters
from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.progress import NullObserver, Observer
from repro_audit.trace.record import RunRecord, SequenceRecord
from repro_audit.trace.recorder import Recorder, Span

if TYPE_CHECKING:
    from repro_audit.models.loaded import LoadedModel
    from repro_audit.settings import RunSettings

Inputs = Mapping[str, torch.Tensor]


def score_module(
    model: LoadedModel,
    inputs: Inputs,
    settings: RunSettings,
    *,
    observer: Observer | None = None,
    row_salt: bytes | None = None,
    fuse: bool = True,
) -> RunRecord:
    """One forward pass of a module per sequence (with ``input_ids``) or over all samples.

    Padding never reaches the model: with an ``attention_mask``, each sequence runs alone on its real
    positions, which must be one run of ones; left-padded inputs are re-packed to start at position 0.

    Args:
        model: its module in evaluation mode.
        inputs: keyword arguments of ``forward``, tensors.
        settings: as resolved; ``decoding`` is not used.
        observer: told of stages and sequences.
        row_salt: 32 secret bytes that key row digests, for private inputs.
        fuse: use fused kernels where they apply.

    Raises:
        UsageError: no inputs, or an unknown setting.
        InconclusiveError: something lies outside the profile, by name.
    """
    if not inputs:
        raise UsageError("a python: model needs inputs", hint="let the factory return (module, inputs)")
    check_settings(settings)
    check_model(model.module, decodes=False)
    module, watcher = model.module, observer or NullObserver()
    plan = module_plan(module, inputs, settings.level)
    parts = _sequences(inputs)
    recorder = Recorder(plan.points, len(parts), row_salt, save_values=settings.save_values)
    mode = real_mode(module)
    mode.writing = recorder.unshare
    launched.begin(settings.device)
    with ExitStack() as stack:
        stack.enter_context(failures_named(settings.device))
        stack.enter_context(undone(module))
        stack.enter_context(placed(module, settings.device))
        stack.enter_context(audited())
        stack.enter_context(closed())
        stack.enter_context(stored_parameters(module, ACTIVATION_DTYPES[settings.activations]))
        buffers = stack.enter_context(derived_buffers(module, mode))
        if fuse:
            stack.enter_context(fused_modules(module, mode, leaves=settings.level == "ops"))
        stack.enter_context(eager(module))
        watcher.stage("score", len(parts))
        for index, part in enumerate(parts):
            take = _Rows(plan, recorder, index)
            here = {name: value.to(settings.device) for name, value in part.items()}
            with take.hooked(module, settings.level), mode:
                result = module(**{name: _activation(value, settings) for name, value in here.items()})
            with torch._C._DisableTorchDispatch():
                for name, tensor in outputs(result):
                    take(name, tensor)
                take.finish()
            watcher.advance()
        return RunRecord(
            points=plan.points,
            sequences=[
                SequenceRecord(index, _ids(part), (), recorder.rows(index))
                for index, part in enumerate(parts)
            ],
            scalars=mode.scalars(),
            constants=mode.constants(),
            buffers=buffers,
            operators=mode.operators(),
            modules=modules_covered(module, None, plan.executed),
            attention="eager",
            values=dict(recorder.values()),
            schedule={"batch_size": 1, "prefill_chunk": 0, "steps": len(parts)},
            kernels=launched.kernels(settings.device),
        )


class _Rows:
    """Hands the points of one sequence to the recorder."""

    def __init__(self, plan: ModulePlan, recorder: Recorder, sequence: int) -> None:
        self._plan = plan
        self._index = plan.index()
        self._recorder = recorder
        self._sequence = sequence
        self._seen: set[str] = set()

    def __call__(self, name: str, tensor: torch.Tensor) -> None:
        number = self._index.get(name)
        if number is None:
            raise InconclusiveError(f"{name} ran, and the probe of the model did not see it run")
        axis = self._plan.axes[number]
        if axis is None:
            rows = tensor.unsqueeze(0)
        elif self._plan.points[number].domain == "tok":
            rows = rows_of(tensor, axis)
        else:
            rows = tensor
        self._seen.add(name)
        self._recorder.take(number, rows, [Span(self._sequence, 0, 0, rows.shape[0])])

    def hooked(self, module: nn.Module, level: str) -> ExitStack:
        """Hooks on the watched modules, removed when the stack closes."""
        stack, passing = ExitStack(), Passing()
        for path in watched(module, level):
            handle = module.get_submodule(path).register_forward_hook(self._after(path, passing))
            stack.callback(handle.remove)
        return stack

    def finish(self) -> None:
        """Hash what waits; a point that did not pass stops the run."""
        self._recorder.flush()
        missing = set(self._index) - self._seen
        if missing:
            raise InconclusiveError(f"{min(missing)} did not run, and the probe of the model saw it run")

    def _after(self, path: str, passing: Passing) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            with torch._C._DisableTorchDispatch():
                self(passing.name(path), first_tensor(output))

        return hook


def _activation(value: torch.Tensor, settings: RunSettings) -> torch.Tensor:
    """An input as the model is fed it: floating inputs in the activation type, RN where that is narrower."""
    return value.to(ACTIVATION_DTYPES[settings.activations]) if value.is_floating_point() else value


def _ids(part: Inputs) -> tuple[int, ...]:
    tokens = part.get("input_ids")
    return tuple(tokens[0].tolist()) if tokens is not None else ()


def _sequences(inputs: Inputs) -> list[dict[str, torch.Tensor]]:
    """The inputs of each sequence alone, without padding; all samples together where there are no tokens."""
    tokens = inputs.get("input_ids")
    if tokens is None:
        return [dict(inputs)]
    if tokens.dim() != 2 or 0 in tokens.shape:
        raise UsageError(
            f"input_ids has shape {list(tokens.shape)}, not [sequences, positions], both at least 1"
        )
    batch, length = tokens.shape
    mask = inputs.get("attention_mask")
    parts = []
    for index in range(batch):
        begin, end = (0, length) if mask is None else _real(mask, index, tokens)
        parts.append({name: _slice(value, index, begin, end, tokens.shape) for name, value in inputs.items()})
    return parts


def _real(mask: torch.Tensor, index: int, tokens: torch.Tensor) -> tuple[int, int]:
    if mask.shape != tokens.shape:
        raise InconclusiveError(
            f"attention_mask has shape {list(mask.shape)}, input_ids {list(tokens.shape)}",
            hint="give a mask of one number per token",
        )
    real = mask[index].nonzero().flatten()
    if real.numel() == 0:
        raise UsageError(f"sequence {index} has no real position: its attention_mask is all zero")
    begin, end = int(real[0]), int(real[-1]) + 1
    if end - begin != real.numel():
        raise InconclusiveError(
            f"the attention_mask of sequence {index} has a gap, so positions are not known",
            hint="give each sequence one run of real positions",
        )
    return begin, end


def _slice(value: torch.Tensor, index: int, begin: int, end: int, shape: torch.Size) -> torch.Tensor:
    batch, length = shape
    if value.dim() == 0 or value.shape[0] != batch:
        return value
    one = value[index : index + 1]
    return one[:, begin:end] if value.dim() > 1 and value.shape[1] == length else one
