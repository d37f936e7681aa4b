"""How every kernel of the GPU back end is compiled and launched; what may move between Triton versions is here.

Triton contracts ``x * y + z`` to one rounding unless told otherwise, so no kernel is launched or compiled but
through this module. Tests: ``tests/gpu/test_compile.py``, which reads the code of every :class:`Build`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from repro_kernels.errors import UnsupportedError

OPTIONS: Final[Mapping[str, Any]] = {"enable_fp_fusion": False, "enable_reflect_ftz": False}
"""Of every compilation: no contraction that a kernel does not write, subnormals kept."""

OLDEST: Final = (8, 0)
"""The first compute capability with every instruction the kernels need (bfloat16 conversions)."""

INTERPRETED: Final = bool(triton.knobs.runtime.interpret)
"""Whether Triton runs kernels in its interpreter, on CPU tensors (TRITON_INTERPRET=1)."""


def require(device: torch.device) -> None:
    """Raise unless the kernels are specified for this device.

    Raises:
        UnsupportedError: it is not a CUDA device, or its compute capability is below 8.0.
    """
    if device.type != "cuda":
        if INTERPRETED:
            return
        raise UnsupportedError(f"a GPU kernel on a tensor of device {device.type}")
    found, name = _capability(torch.cuda.current_device() if device.index is None else device.index)
    if found < OLDEST:
        raise UnsupportedError(
            f"{name} with compute capability {found[0]}.{found[1]} (8.0 or later; use --device cpu instead)"
        )


@functools.cache
def _capability(index: int) -> tuple[tuple[int, int], str]:
    return torch.cuda.get_device_capability(index), torch.cuda.get_device_name(index)


def processors(device: torch.device) -> int:
    """Streaming multiprocessors of a device: how many programs keep it busy. Never part of a result."""
    return 8 if device.type != "cuda" else _processors(device.index or 0)


@functools.cache
def _processors(index: int) -> int:
    return int(torch.cuda.get_device_properties(index).multi_processor_count)


def launch(
    kernel: Any,
    grid: int | tuple[int, ...],
    *arguments: Any,
    num_warps: int = 4,
    num_stages: int = 2,
    maxnreg: int | None = None,
    **constexprs: Any,
) -> None:
    """Run a kernel on the device of its first tensor, on torch's current stream.

    Args:
        kernel: a ``@triton.jit`` function.
        grid: programs, along one to three axes; nothing happens if there are none.
        arguments: tensors, None, integers, and floats, which are passed as their nearest float.
        num_warps: warps of a program.
        num_stages: loads in flight of a pipelined loop.
        maxnreg: most registers of a thread.
        constexprs: compile-time arguments.

    Raises:
        UnsupportedError: the device is not specified.
    """
    grid = (grid,) if isinstance(grid, int) else grid
    if 0 in grid:
        return
    device = next(a.device for a in arguments if isinstance(a, torch.Tensor))
    require(device)
    options = {**OPTIONS, "num_warps": num_warps, "num_stages": num_stages}
    if maxnreg is not None:
        options["maxnreg"] = maxnreg
    if device.type != "cuda" or device.index in (None, torch.cuda.current_device()):
        kernel[grid](*arguments, **constexprs, **options)
        return
    with torch.cuda.device(device):
        kernel[grid](*arguments, **constexprs, **options)


class Build(NamedTuple):
    """One specialisation of a kernel, as a launch would compile it.

    Attributes:
        kernel: a ``@triton.jit`` function.
        signature: parameter -> Triton type, e.g. ``"*bf16"``, ``"i32"``, ``"fp32"``.
        constexprs: every other parameter -> its value; None for an optional tensor that is not given.
        options: ``num_warps``, ``num_stages``, ``maxnreg``.
        aligned: parameters known to be multiples of 16 elements or bytes; every pointer is.
        fma: fused multiply-adds the kernel names, per element type ("f32", "f64"): False forbids any.
    """

    kernel: Any
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any] = {}
    options: Mapping[str, int] = {}
    aligned: tuple[str, ...] = ()
    fma: bool = True


def compile_for(build: Build, capability: int) -> Any:
    """Compile without a GPU; ``.asm["ptx"]`` of the result is the code.

    Args:
        build: what to compile.
        capability: e.g. 90 for compute capability 9.0.
    """
    names = build.kernel.arg_names
    kinds = {name: build.signature.get(name, "constexpr") for name in names}
    constants = {(names.index(name),): value for name, value in build.constexprs.items()}
    aligned = [n for n, kind in kinds.items() if kind.startswith("*") or n in build.aligned]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    source = _source(build.kernel)(fn=build.kernel, signature=kinds, constexprs=constants, attrs=attributes)
    target = GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options={**OPTIONS, **build.options})


def _source(kernel: Any) -> Any:
    """The source class of a kernel: Gluon's functions know theirs only in newer versions."""
    if getattr(kernel, "is_gluon", lambda: False)():
        from triton.experimental.gluon._runtime import GluonASTSource

        return GluonASTSource
    return ASTSource
