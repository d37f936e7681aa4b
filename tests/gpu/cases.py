"""Cases that a GPU and a CPU must answer with the same bits; the areas are in ``cases_*.py``.

A case is a function of (kernels, device): it makes its inputs on the CPU from fixed seeds, moves them to the
device, calls ``kernels.gemm.linear`` and the like, and returns tensors. ``kernels`` gives the modules of one
back end by name. Small cases also run in Triton's interpreter, a thousand times slower than a GPU.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch

from repro_kernels.errors import KernelError

Results = torch.Tensor | Sequence[torch.Tensor]
Function = Callable[["Kernels", torch.device], Results]
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Case(NamedTuple):
    """One case: `function`, and whether it is small enough for the interpreter."""

    function: Function
    small: bool


CASES: dict[str, Case] = {}
"""Name -> case; full once :func:`load` has run."""


class Kernels:
    """The modules of one back end, "cpu" or "gpu": ``kernels.gemm`` is ``repro_kernels.gpu.gemm``."""

    def __init__(self, backend: str) -> None:
        self.backend = backend

    def __getattr__(self, name: str) -> ModuleType:
        return importlib.import_module(f"repro_kernels.{self.backend}.{name}")


def add(name: str, function: Function, *, small: bool = False) -> None:
    """Enter a case under a name of its own."""
    assert name not in CASES, f"two cases are named {name}"
    CASES[name] = Case(function, small)


def case(name: str, *, small: bool = False) -> Callable[[Function], Function]:
    """Decorator: the function is the case `name`."""

    def enter(function: Function) -> Function:
        add(name, function, small=small)
        return function

    return enter


@functools.cache
def load() -> dict[str, Case]:
    """All cases of all areas."""
    for path in sorted(Path(__file__).parent.glob("cases_*.py")):
        importlib.import_module(f"tests.gpu.{path.stem}")
    return CASES


def error_of(call: Callable[[], object]) -> torch.Tensor:
    """The error that a call raises, as a tensor: its class and text are part of the result."""
    try:
        call()
    except (KernelError, ValueError, IndexError) as error:
        return torch.tensor(list(f"{type(error).__name__}: {error}".encode()), dtype=torch.uint8)
    return torch.tensor([0], dtype=torch.uint8)


def run(name: str, backend: str, device: torch.device) -> list[torch.Tensor]:
    """The results of one case as integer views on the CPU."""
    found = load()[name].function(Kernels(backend), device)
    return [_integers(t) for t in ([found] if isinstance(found, torch.Tensor) else found)]


def _integers(t: torch.Tensor) -> torch.Tensor:
    t = t.detach().cpu().contiguous()
    if not t.dtype.is_floating_point:
        return t
    return (
        t.view(_INTEGERS[t.element_size()]) if t.dim() else t.reshape(1).view(_INTEGERS[t.element_size()])[0]
    )


@functools.cache
def expected(name: str) -> tuple[torch.Tensor, ...]:
    """What the CPU back end answers."""
    return tuple(run(name, "cpu", torch.device("cpu")))


def difference(actual: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> str:
    """Where two lists of integer views differ, in words; "" if they are equal."""
    if len(actual) != len(wanted):
        return f"{len(actual)} results instead of {len(wanted)}"
    for index, (a, w) in enumerate(zip(actual, wanted, strict=True)):
        if a.dtype == w.dtype == torch.uint8 and a.shape != w.shape:
            return f"result {index}: {bytes(a.tolist())!r} instead of {bytes(w.tolist())!r}"
        if a.shape != w.shape or a.dtype != w.dtype:
            return f"result {index}: {a.dtype} {list(a.shape)} instead of {w.dtype} {list(w.shape)}"
        wrong = (a != w).nonzero()
        if len(wrong):
            at = tuple(wrong[0].tolist())
            mask = (1 << 8 * a.element_size()) - 1
            got, want = int(a[at]) & mask, int(w[at]) & mask
            return (
                f"result {index} of shape {list(a.shape)}: {len(wrong)} of {a.numel()} elements differ, "
                f"first at {list(at)}: {got:#x} instead of {want:#x}"
            )
    return ""
