"""The table of GPU cases: each computes tensors through one back end, and both back ends must give the
same bits.

A case is a function ``(kernels, device) -> tensors``: `kernels` has the modules of a back end
(``kernels.gemm``, ``kernels.attention``, ...), and every tensor the case makes is placed on `device` after
its values were drawn on the CPU. A name starts with its area (``products: linear odd K``). A case marked
small also runs in Triton's interpreter. Modules ``cases_<area>.py`` add theirs by ``@case("name")`` or
``add``; ``load_all`` imports them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from repro_kernels.errors import KernelError


class Kernels:
    """The modules of one back end, imported when first named."""

    def __init__(self, backend: str) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return importlib.import_module(f"repro_kernels.{self._backend}.{name}")


Run = Callable[[Kernels, torch.device], Sequence[torch.Tensor]]


@dataclass(frozen=True)
class Case:
    """One case: its name, its function, and whether the interpreter is fast enough for it."""

    name: str
    run: Run
    small: bool


CASES: dict[str, Case] = {}


def case(name: str, *, small: bool = True) -> Callable[[Run], Run]:
    """Add a case to the table; `small` ones take a second at most in the interpreter."""

    def enter(run: Run) -> Run:
        add(name, run, small=small)
        return run

    return enter


def add(name: str, run: Run, *, small: bool = True) -> None:
    """:func:`case` for a function made in a loop."""
    assert name not in CASES, f"two cases are named {name}"
    CASES[name] = Case(name, run, small)


def error_of(call: Callable[[], object]) -> torch.Tensor:
    """The error that a call raises as a tensor of bytes: class and text are a result like any other."""
    try:
        call()
    except (KernelError, ValueError, IndexError) as error:
        return torch.tensor(list(f"{type(error).__name__}: {error}".encode()), dtype=torch.uint8)
    return torch.tensor([0], dtype=torch.uint8)


def load_all() -> dict[str, Case]:
    """Import every ``cases_<area>.py`` beside this file; the table, sorted by name."""
    for path in sorted(Path(__file__).parent.glob("cases_*.py")):
        importlib.import_module(f"tests.gpu.{path.stem}")
    return dict(sorted(CASES.items()))


def bits(t: torch.Tensor) -> torch.Tensor:
    """The elements as integers, on the CPU, so that -0 differs from +0 and a NaN equals itself."""
    t = t.detach().cpu().contiguous()
    views = {4: torch.int32, 2: torch.int16, 8: torch.int64, 1: torch.uint8}
    return t.view(views[t.element_size()]) if t.dtype.is_floating_point else t


def compare(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> str:
    """What differs between two results, in one line; empty if every bit is the same."""
    if len(actual) != len(expected):
        return f"{len(actual)} results instead of {len(expected)}"
    for index, (got, want) in enumerate(zip(actual, expected, strict=True)):
        if got.dtype == want.dtype == torch.uint8 and got.shape != want.shape:
            return f"result {index}: {bytes(got.tolist())!r}, not {bytes(want.tolist())!r}"
        if got.dtype != want.dtype or got.shape != want.shape:
            return f"result {index}: {got.dtype} {list(got.shape)}, not {want.dtype} {list(want.shape)}"
        left, right = bits(got).reshape(-1), bits(want).reshape(-1)
        wrong = torch.nonzero(left != right).reshape(-1)
        if wrong.numel():
            at = int(wrong[0])
            return (
                f"result {index}: {wrong.numel()} of {left.numel()} differ, first at {at}: "
                f"{int(left[at]):#x} ({float(got.reshape(-1)[at])}) instead of "
                f"{int(right[at]):#x} ({float(want.reshape(-1)[at])})"
            )
    return ""


def check(which: Case, device: torch.device) -> str:
    """Run a case on both back ends; what differs, empty if nothing."""
    expected = which.run(Kernels("cpu"), torch.device("cpu"))
    actual = which.run(Kernels("gpu"), device)
    for t in actual:
        at_home = t.device.type == device.type or t.dtype == torch.uint8
        assert at_home, f"{which.name}: a result is on {t.device}"
    return compare(actual, expected)
