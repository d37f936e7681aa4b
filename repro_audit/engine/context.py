"""The one context manager that changes global state, all of it undone in ``finally``.

Nothing here decides a bit by itself: kernels set their own floating-point environment, and the operator table
leaves no operator to a library. It takes away what a caller may have switched on around us: autocast, another
default dtype, flush-to-zero on any thread of the pool, gradients, opaque fast paths. The TF32 and matmul-
precision switches are left alone: no product of PyTorch's own runs, and reading them raises once a caller has
mixed their two interfaces.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from repro_kernels.cpu.fpenv import default_fpenv


def _attribute(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set ``owner.name`` until the stack unwinds; owners that lack the name are left alone."""
    if hasattr(owner, name):
        stack.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)


def _setting(stack: ExitStack, get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> None:
    stack.callback(put, get())
    put(value)


def _environment(stack: ExitStack, name: str, value: str) -> None:
    old = os.environ.get(name)

    def restore() -> None:
        if old is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = old

    stack.callback(restore)
    os.environ[name] = value


@contextmanager
def audited() -> Iterator[None]:
    """Global state of an audited run: inference mode, float32 default, IEEE arithmetic on every thread."""
    with ExitStack() as stack:
        # transformers would otherwise fetch and swap in kernels from the hub.
        _environment(stack, "USE_HUB_KERNELS", "NO")
        _setting(stack, torch.get_default_dtype, torch.set_default_dtype, torch.float32)
        for device in ("cpu", "cuda"):
            stack.callback(torch.set_autocast_enabled, device, torch.is_autocast_enabled(device))
            torch.set_autocast_enabled(device, False)
        # Serial index_put, so that of duplicate indices the last one wins; we zero-fill empty tensors.
        warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        stack.callback(
            torch.use_deterministic_algorithms,
            torch.are_deterministic_algorithms_enabled(),
            warn_only=warn_only,
        )
        _attribute(stack, torch.utils.deterministic, "fill_uninitialized_memory", False)
        torch.use_deterministic_algorithms(True)
        # Not one opaque operator for a whole encoder layer: the path through ordinary operators.
        _setting(
            stack, torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled, False
        )
        stack.enter_context(default_fpenv())
        stack.enter_context(torch.inference_mode())
        yield
