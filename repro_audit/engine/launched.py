"""The machine code that a run executed, for its record."""

from __future__ import annotations

import platform

from repro_kernels.cpu import native

from repro_audit.trace.record import CompiledKernel


def begin(device: str) -> None:
    """Begin a run on a device, ``cpu`` or ``cuda:N``: what was launched before is none of its."""
    if device != "cpu":
        from repro_kernels.gpu import runtime

        runtime.forget()


def kernels(device: str) -> tuple[CompiledKernel, ...]:
    """What ran since :func:`begin`, by name: compiled kernels on a GPU, the library of kernels on a CPU."""
    if device == "cpu":
        return (CompiledKernel("cpu", native.isa(), platform.machine(), native.digest()),)
    from repro_kernels.gpu import runtime

    return tuple(CompiledKernel(*kernel) for kernel in runtime.compiled())
