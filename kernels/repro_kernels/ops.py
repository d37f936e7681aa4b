"""The kernels by where their operands are: ``ops.gemm.linear(x, w)`` runs where x is, on the CPU or a GPU.

An area (``gemm``, ``attention``, ...) has the functions of ``repro_kernels.cpu.<area>`` and, for CUDA
tensors, those of ``repro_kernels.gpu.<area>``, with the same signatures and the same bits
(``tests/gpu/test_bits.py``). The GPU modules, and Triton with them, are imported when the first CUDA tensor
comes.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch

from repro_kernels.errors import UnsupportedError

Kernel = Callable[..., Any]


class Area:
    """The functions of one module of kernels, for tensors of any supported device.

    Args:
        name: of the module below ``repro_kernels.cpu`` and ``repro_kernels.gpu``.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._cpu = importlib.import_module(f"repro_kernels.cpu.{name}")

    def __getattr__(self, function: str) -> Any:
        """The function of that name; kept, so that a call costs one look at the first operand."""
        on_cpu = getattr(self._cpu, function)
        found = _by_device(on_cpu, function) if callable(on_cpu) else on_cpu
        setattr(self, function, found)
        return found


def _by_device(on_cpu: Kernel, function: str) -> Kernel:
    # cpu.reduce also offers what its neighbours define; on the GPU each is where it is defined.
    area = on_cpu.__module__.rpartition(".")[2]

    @functools.wraps(on_cpu)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        for value in args:
            if isinstance(value, torch.Tensor):
                if value.is_cpu and value.dim():
                    return on_cpu(*args, **kwargs)
                break
        device = _device(args, kwargs)
        if device is None or device.type == "cpu":
            return on_cpu(*args, **kwargs)
        if device.type != "cuda":
            raise UnsupportedError(f"{function} on {device.type}")
        on_gpu: Kernel = getattr(importlib.import_module(f"repro_kernels.gpu.{area}"), function)
        return on_gpu(
            *_moved(args, device), **dict(zip(kwargs, _moved(kwargs.values(), device), strict=True))
        )

    return kernel


def _device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
    """Where the operands are; a number in a 0-dimensional CPU tensor goes with the others, as in PyTorch."""
    found = None
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and (found is None or value.dim() > 0):
            found = value.device
            if found.type != "cpu":
                return found
    return found


def _moved(values: Any, device: torch.device) -> list[Any]:
    return [
        value.to(device)
        if isinstance(value, torch.Tensor) and value.dim() == 0 and value.device != device
        else value
        for value in values
    ]


attention: Any = Area("attention")
convert: Any = Area("convert")
elementary: Any = Area("elementary")
fused: Any = Area("fused")
gemm: Any = Area("gemm")
index: Any = Area("index")
norm: Any = Area("norm")
order: Any = Area("order")
positions: Any = Area("positions")
reduce: Any = Area("reduce")
sampling: Any = Area("sampling")
softmax: Any = Area("softmax")
