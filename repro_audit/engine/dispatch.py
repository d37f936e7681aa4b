"""The dispatch mode: every ATen operator of the forward pass meets the operator table, or stops the run.

An operator that is in the table runs as its row says. One that is not, but is a composition by PyTorch's own
definition, is decomposed with the mode on, so its parts meet the table. Anything else is refused by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import torch
from repro_kernels.errors import KernelError
from torch.utils._python_dispatch import TorchDispatchMode

from repro_audit.engine import masks
from repro_audit.engine.storedparam import StoredParameter, stored_of
from repro_audit.engine.tables import Row
from repro_audit.errors import InconclusiveError
from repro_audit.trace.digest import tensor_digest
from repro_audit.trace.record import OperatorCount, Scalar, TensorDigest

_NO_KWARGS: dict[str, Any] = {}


@dataclass
class Cell:
    """One operator in one run: its row and how often it ran."""

    row: Row
    calls: int = 0


@dataclass
class Findings:
    """What the mode saw: the scalars and constants of the run, by identity, and the coverage."""

    scalars: set[tuple[str, str, str]] = field(default_factory=set)
    constants: set[tuple[str, tuple[int, ...], str]] = field(default_factory=set)


class ProfileMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Run operators under profile ``fp32``.

    Args:
        table: operator to row, as :func:`repro_audit.engine.optable.table` gives it.
        names: ``id(module)`` to module path, to say where a refused operator came from.
    """

    def __init__(self, table: dict[Any, Row], names: dict[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.names = names
        self.cells: dict[Any, Cell] = {}
        self.findings = Findings()
        #: Set once a mask was made; until then no operator pays for tags.
        self.tagging = False
        #: True inside a layer whose parts are all fused: what is not a kernel there was never audited.
        self.silent = False
        #: Token ids that the profile's own sampler left on the device: an embedding need not look at them.
        self.drawn: torch.Tensor | None = None
        #: Called before model code writes to a tensor in place, which the recorder may still hold.
        self.writing: Callable[[], None] | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled here; the wrapper that guards against it would cost a microsecond per operator.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        cell = self.cells.get(func)
        if cell is None:
            cell = self._resolve(func)
        cell.calls += 1
        row = cell.row
        if kwargs is None:
            kwargs = _NO_KWARGS
        if types:
            viewed = row.params == "view" and isinstance(args[0], StoredParameter)
            if viewed:
                return self._view_parameter(func, args, kwargs)
            args, kwargs = self._parameters(row, func, args, kwargs)
        if row.params == "written" and self.writing is not None:
            self.writing()
        low = row.scalars and self._note_scalars(func, args, kwargs)
        try:
            result = row.run(self, func, args, kwargs)
        except KernelError as error:
            raise InconclusiveError(
                f"{func} in {self.where()}: {error}", hint="profile fp32 cannot audit this run"
            ) from error
        if low:
            self.tagging = True
            masks.propagate("fill" if row.tags == "fill" else "value", func, args, kwargs, result)
        elif self.tagging and row.tags:
            masks.propagate(row.tags, func, args, kwargs, result)
        return result

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Run another operator of the table, ``aten`` name with overload, as a part of the one at hand."""
        packet, overload = name.split(".")
        func = getattr(getattr(torch.ops.aten, packet), overload)
        return self.table[func].run(self, func, args, kwargs)

    def refuse(self, what: str, hint: str) -> InconclusiveError:
        """The error for ``what``, with the module that it came from."""
        return InconclusiveError(f"{what} in {self.where()}", hint=hint)

    def where(self) -> str:
        """Path of the innermost module whose forward is running, from the Python stack."""
        frame = sys._getframe(1)
        while frame is not None:
            owner = frame.f_locals.get("self")
            if owner is not None and (path := self.names.get(id(owner))) is not None:
                return f"{path or 'the model'} ({type(owner).__name__})"
            frame = frame.f_back  # type: ignore[assignment]
        return "the model"

    def constant(self, value: torch.Tensor) -> None:
        """Record a floating tensor that model code made from Python numbers, once per content."""
        digest = tensor_digest(numpy_bits(value), str(value.dtype).removeprefix("torch."))
        self.findings.constants.add((str(value.dtype).removeprefix("torch."), tuple(value.shape), digest))

    def operators(self) -> tuple[OperatorCount, ...]:
        """Coverage of the run, sorted by operator; decomposed operators show as their parts."""
        counts = [
            OperatorCount(str(func), cell.row.classed, cell.row.kernel, cell.calls)
            for func, cell in self.cells.items()
            if cell.row.classed != "decomposed" and cell.calls
        ]
        return tuple(sorted(counts, key=lambda count: count.operator))

    def scalars(self) -> tuple[Scalar, ...]:
        """Distinct float scalars that operators received, sorted."""
        return tuple(Scalar(*item) for item in sorted(self.findings.scalars))

    def constants(self) -> tuple[TensorDigest, ...]:
        """Distinct floating constants, sorted by type, shape and digest."""
        return tuple(TensorDigest("constant", *item) for item in sorted(self.findings.constants))

    def note(self, operator: str, argument: str, value: float) -> None:
        """Record a float scalar that a fused kernel receives in place of ``operator``."""
        self.findings.scalars.add((operator, argument, float(value).hex()))

    def counter(self, func: Any) -> Cell:
        """The count of an operator, for a kernel that runs in its place."""
        return self.cells.get(func) or self._resolve(func)

    def fused(self, name: str, kernel: str) -> Cell:
        """The count of a fused kernel, which runs under the table with the same bits."""
        return self.cells.setdefault(name, Cell(Row("specified", kernel, _decompose)))

    def counts(self) -> dict[Any, int]:
        """Calls so far, by operator or kernel."""
        return {func: cell.calls for func, cell in self.cells.items()}

    def restore(self, counts: dict[Any, int]) -> None:
        """Set the calls back to what :meth:`counts` said: what ran since is not part of the run."""
        for func, cell in self.cells.items():
            cell.calls = counts.get(func, 0)

    def repeat(self, before: dict[Any, int], after: dict[Any, int], times: int) -> None:
        """Count what ran between two :meth:`counts` ``times`` more."""
        for func, calls in after.items():
            self.cells[func].calls += times * (calls - before.get(func, 0))

    def _resolve(self, func: Any) -> Cell:
        row = self.table.get(func)
        if row is None:
            row = self._derive(func)
        cell = self.cells[func] = Cell(row)
        return cell

    def _derive(self, func: Any) -> Row:
        """The row of an operator outside the table: an in-place twin, a composition, or a refusal."""
        if func.namespace == "aten" and func._schema.is_mutable:
            name, _, overload = func._schema.name.removeprefix("aten::").partition(".")
            twin = getattr(torch.ops.aten, name.removesuffix("_"), None) if name.endswith("_") else None
            overload = func._overloadname
            if twin is not None and overload in twin.overloads():
                functional = getattr(twin, overload)
                if (row := self.table.get(functional)) is not None:
                    return _in_place(functional, row)
        elif torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            return Row("decomposed", "", _decompose, params="through", scalars=False)
        raise self.refuse(
            f"operator {func} is outside profile fp32",
            "use a model that computes without it, or ask for the operator to be specified",
        )

    def _view_parameter(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        parameter = args[0]
        viewed = func(parameter.stored, *args[1:], **kwargs)
        if isinstance(viewed, torch.Tensor):
            return StoredParameter(viewed, parameter.dtype)
        return [StoredParameter(item, parameter.dtype) for item in viewed]

    def _parameters(
        self, row: Row, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if row.params == "through":
            return args, kwargs
        if row.params == "written" and type(args[0]) is StoredParameter:
            raise self.refuse(f"operator {func} writes to a parameter", "audit a model whose parameters stay")
        take = stored_of if row.params == "stored" else _materialise
        return _map(take, args), {key: _map(take, value) for key, value in kwargs.items()}

    def _note_scalars(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Record the float scalars among the arguments; True if one of them may make a mask.

        A mask's addend is not recorded: a masked entry is +0 whatever it was, and how model code spells a
        mask (-inf, the lowest value, through which operator) moves between versions of transformers.
        """
        low = False
        for index, value in enumerate(args):
            if type(value) is float:
                if value <= masks.LOWEST_SCALAR:
                    low = True
                else:
                    name = func._schema.arguments[index].name
                    self.findings.scalars.add((str(func), name, value.hex()))
        if kwargs:
            for name, value in kwargs.items():
                if type(value) is float:
                    if value <= masks.LOWEST_SCALAR:
                        low = True
                    else:
                        self.findings.scalars.add((str(func), name, value.hex()))
        return low


def numpy_bits(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor's values as numpy holds them; bfloat16 as its 16 bits."""
    plain = tensor.contiguous().cpu()
    return plain.view(torch.int16).numpy() if plain.dtype is torch.bfloat16 else plain.numpy()


def _materialise(value: Any) -> Any:
    return value.materialise() if type(value) is StoredParameter else value


def _map(take: Any, value: Any) -> Any:
    """Apply ``take`` to the tensors in arguments, lists of tensors included."""
    if isinstance(value, torch.Tensor):
        return take(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_map(take, item) for item in value)
    return value


def _decompose(mode: ProfileMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with mode:
        return func.decompose(*args, **kwargs)


def _in_place(functional: Any, row: Row) -> Row:
    """The row of ``f_``: the functional operator, then a copy into self, which may be a view of anything."""

    def run(mode: ProfileMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = args[0]
        result = row.run(mode, functional, args, kwargs)
        if result.shape != target.shape:
            raise mode.refuse(f"operator {func} would change its operand's shape", "write it out of place")
        if mode.tagging and row.tags:
            masks.propagate(row.tags, functional, args, kwargs, result)
        target.copy_(result)
        tag, old = masks.tag_of(result), masks.tag_of(target)
        if tag is not None and old is not None:
            old.copy_(tag)
        elif tag is not None:
            masks.set_tag(target, tag)
        return target

    return Row(row.classed, row.kernel, run, params="written", scalars=row.scalars)
