"""How every GPU kernel is launched and compiled: one place for options, devices and Triton's versions.

The bits rest on two promises of a launch: no contraction that a kernel does not write
(``enable_fp_fusion`` is off and said explicitly, since its default changes between Triton versions), and a
device that is known.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from repro_kernels.errors import UnsupportedError
from repro_kernels.gpu.compiled import Kernel, describe

OPTIONS: dict[str, Any] = {"enable_fp_fusion": False}
"""Passed to every launch and compilation: a product and a sum are never joined behind a kernel's back."""

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether Triton's interpreter runs the kernels, on CPU tensors: for tests on a machine without a GPU."""

OLDEST = (8, 0)
"""The first compute capability the profile's kernels are made for."""

LEAST_SHARED = 99 << 10
"""Bytes of shared memory that a program may have on every device of that capability or later."""

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
"""The barrier of a program's threads in Gluon, whose name changed between Triton 3.6 and 3.9."""

copy_async = (
    async_copy.async_load if hasattr(async_copy, "async_load") else async_copy.async_copy_global_to_shared
)
"""Gluon's asynchronous copy to shared memory (memory, pointers, mask), whose name changed likewise."""

POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float64: "*fp64",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.bool: "*i1",
}
"""torch dtype -> the type of a pointer to it in a kernel's signature."""


@functools.cache
def require(device: torch.device) -> None:
    """Check once that the kernels run on a device.

    Raises:
        UnsupportedError: it is not a CUDA device of compute capability 8.0 or later.
    """
    if INTERPRETED and device.type == "cpu":
        return
    if device.type != "cuda" or torch.version.hip is not None:
        raise UnsupportedError(f"a GPU kernel on {device.type}")
    found = torch.cuda.get_device_capability(device)
    if found < OLDEST:
        name = torch.cuda.get_device_name(device)
        raise UnsupportedError(f"{name}, compute capability {found[0]}.{found[1]} (use --device cpu)")


def device_of(*tensors: torch.Tensor | None) -> torch.device:
    """The one device of some tensors, checked by :func:`require`; None among them is passed over.

    Raises:
        UnsupportedError: they are on several devices, or on one the kernels do not run on.
    """
    found = {t.device for t in tensors if t is not None}
    if len(found) != 1:
        raise UnsupportedError("an operation across " + " and ".join(sorted(str(d) for d in found)))
    device = found.pop()
    require(device)
    return device


def processors(device: torch.device) -> int:
    """Multiprocessors of a device: how many programs keep it busy, never part of a result."""
    return 4 if device.type == "cpu" else _processors(device.index)


def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that one program may have: how large its tiles are, never part of a result."""
    return LEAST_SHARED if device.type == "cpu" else _shared_memory(device.index)


@functools.cache
def _shared_memory(index: int) -> int:
    return int(triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"])


@functools.cache
def _processors(index: int | None) -> int:
    return int(torch.cuda.get_device_properties(index).multi_processor_count)


def launch(kernel: Any, grid: int | tuple[int, ...], *arguments: Any, **named: Any) -> Any:
    """Run a kernel on the device of its first tensor argument, under :data:`OPTIONS`.

    Args:
        kernel: a ``triton.jit`` or ``gluon.jit`` function.
        grid: programs per axis; a grid of no programs launches nothing.
        arguments: the kernel's arguments in order, at least one of them a tensor.
        named: its constexprs, and Triton's own options such as ``num_warps``.

    Returns:
        What Triton returns: the compiled kernel (None in the interpreter, or for an empty grid).
    """
    shape = (grid,) if isinstance(grid, int) else grid
    if 0 in shape:
        return None
    device = next(a.device for a in arguments if isinstance(a, torch.Tensor))
    require(device)
    if device.type == "cpu" or device.index == torch.cuda.current_device():
        ran = kernel[shape](*arguments, **OPTIONS, **named)
    else:
        with torch.cuda.device(device):
            ran = kernel[shape](*arguments, **OPTIONS, **named)
    _launched[id(ran)] = ran
    return ran


_launched: dict[int, Any] = {}
_described: dict[int, tuple[Any, Kernel]] = {}
# By identity: comparing kernels would take longer than a launch. Triton's own cache keeps each of them for
# as long as the process lives, and they hold no tensors.


def forget() -> None:
    """Begin anew what :func:`compiled` lists."""
    _launched.clear()


def compiled() -> tuple[Kernel, ...]:
    """The distinct compiled kernels launched since :func:`forget`, or captured for a CUDA graph, by name."""
    for key, kernel in list(_launched.items()):
        if kernel is not None and key not in _described:
            _described[key] = (kernel, describe(kernel))
    return tuple(sorted({_described[key][1] for key, kernel in _launched.items() if kernel is not None}))


@dataclass(frozen=True)
class Build:
    """One specialisation of a kernel, to be compiled without a GPU.

    Attributes:
        kernel: the jit function.
        signature: argument -> type (``"*bf16"``, ``"i32"``, ``"fp32"``) for all that are not constexpr.
        constexprs: argument -> value for the others.
        options: Triton's options of this launch, beside :data:`OPTIONS`.
        divisible: arguments known to be multiples of 16 (aligned pointers, even strides), as at a launch.
        fma: whether the kernel writes fused multiply-adds; if not, the compiled code must hold none.
    """

    kernel: Any
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    divisible: tuple[str, ...] = ()
    fma: bool = True

    @property
    def name(self) -> str:
        """Kernel and specialisation, for messages."""
        types = ",".join(self.signature.values())
        values = ",".join(f"{k}={v}" for k, v in self.constexprs.items())
        return f"{self.kernel.__name__}({types};{values})"


def compile_for(build: Build, capability: int) -> Any:
    """Compile one specialisation for ``sm_<capability>``, on any machine.

    Args:
        build: the specialisation.
        capability: ten times major plus minor, e.g. 80.

    Returns:
        Triton's compiled kernel; ``.asm["ptx"]`` is the text to inspect.
    """
    order = list(build.kernel.arg_names)
    signature = {a: "constexpr" if a in build.constexprs else build.signature[a] for a in order}
    attrs = {(order.index(a),): [["tt.divisibility", 16]] for a in build.divisible}
    constexprs = {(order.index(a),): v for a, v in build.constexprs.items()}
    source_type = GluonASTSource if isinstance(build.kernel, GluonJITFunction) else ASTSource
    source = source_type(fn=build.kernel, signature=signature, constexprs=constexprs, attrs=attrs)
    return triton.compile(
        source, target=GPUTarget("cuda", capability, 32), options={**OPTIONS, **build.options}
    )
