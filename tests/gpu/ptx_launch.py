"""Run the small cases as compiled code, without a GPU: ``python -m tests.gpu.ptx_launch [PREFIX] [-v]``.

Every launch is compiled as for a GPU of the capability REPRO_CAPABILITY (80), specialised to its arguments as
Triton does it, and its PTX run by ``ptx_machine.py`` on the tensors' memory. Prints one line per case that
differs or fails, and ``N cases, F failed`` at the end.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from typing import Any

import numpy as np
import torch
import triton
from repro_kernels.gpu import runtime
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction
from triton.runtime.jit import create_function_from_signature

from tests.gpu import ptx_machine

CAPABILITY = int(os.environ.get("REPRO_CAPABILITY", "80"))
TARGET = GPUTarget("cuda", CAPABILITY, 32)
_machines: dict[str, tuple[ptx_machine.Machine, int]] = {}


def compiled(kernel: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any, list[Any]]:
    """A launch's kernel, compiled; its machine; and the arguments that its code takes."""
    backend = make_backend(TARGET)
    options_given = {**runtime.OPTIONS, **named}
    binder = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, _ = binder(*arguments, **options_given)
    options, signature, constexprs, attrs = kernel._pack_args(
        backend, options_given, bound, specialization, None
    )
    kind = GluonASTSource if isinstance(kernel, GluonJITFunction) else ASTSource
    source = kind(kernel, signature, constexprs, attrs)
    result = triton.compile(source, target=TARGET, options=options.__dict__)
    text = result.asm["ptx"]
    if text not in _machines:
        _machines[text] = ptx_machine.Machine(text), result.metadata.shared
    taken = [v for v, of in zip(bound.values(), signature.values(), strict=True) if of != "constexpr"]
    return result, _machines[text], taken


def launch(kernel: Any, grid: int | tuple[int, ...], *arguments: Any, **named: Any) -> None:
    """``runtime.launch`` on CPU tensors, by running the compiled code."""
    shape = ((grid,) if isinstance(grid, int) else tuple(grid)) + (1, 1)
    if 0 in shape:
        return
    _, (machine, shared), taken = compiled(kernel, arguments, named)
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage() for t in taken if isinstance(t, torch.Tensor)
    }
    places, end = {}, ptx_machine.ALIGNMENT
    for pointer, storage in storages.items():
        places[pointer] = (
            end + pointer % ptx_machine.ALIGNMENT
        )  # an alignment found at the launch holds here too
        end += (storage.nbytes() // ptx_machine.ALIGNMENT + 3) * ptx_machine.ALIGNMENT
    memory = np.full(end, 0xAB, np.uint8)
    views = {
        pointer: torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        for pointer, storage in storages.items()
    }
    for pointer, view in views.items():
        memory[places[pointer] : places[pointer] + view.size] = view
    values = [
        places[v.untyped_storage().data_ptr()] + v.storage_offset() * v.element_size()
        if isinstance(v, torch.Tensor)
        else v
        for v in taken
    ]
    machine.execute((shape[0], shape[1], shape[2]), memory, values, max(shared, 16))
    for pointer, view in views.items():
        view[:] = memory[places[pointer] : places[pointer] + view.size]


def _any_device(device: torch.device) -> None:
    """``runtime.require``: the tensors are on the CPU."""


def main(prefix: str = "", verbose: bool = False) -> int:
    """Run the cases whose name starts with `prefix`; the number that failed."""
    runtime.launch, runtime.require = launch, _any_device  # before the kernels' modules take them
    from tests.gpu.cases import check, load_all

    failed = 0
    chosen = [c for name, c in load_all().items() if c.small and name.startswith(prefix)]
    for each in chosen:
        started = time.monotonic()
        try:
            problem = check(each, torch.device("cpu"))
        except (AssertionError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
            if verbose:
                traceback.print_exc()
        failed += bool(problem)
        if problem or verbose:
            print(f"{each.name}: {problem or 'same bits'} ({time.monotonic() - started:.1f} s)", flush=True)
    print(f"{len(chosen)} cases, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main(*[a for a in sys.argv[1:] if a != "-v"], verbose="-v" in sys.argv) != 0)
