"""Ways past the dispatch mode: ``tolist`` and ``numpy`` read memory without an operator, and a mode is of one
thread.

A float that leaves a tensor may come back as a scalar that nobody audited. While a run lasts, model code that
takes one is refused like ``item``; kernels, which run with the mode off, are not concerned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from repro_audit.engine.dispatch import ProfileMode

_ESCAPES = ("tolist", "numpy")


@contextmanager
def closed() -> Iterator[None]:
    """Refuse ``tolist`` and ``numpy`` of floats, and new threads, under a :class:`ProfileMode`."""
    with ExitStack() as stack:
        for name in _ESCAPES:
            inherited = name not in torch.Tensor.__dict__
            original = getattr(torch.Tensor, name)
            if inherited:
                stack.callback(delattr, torch.Tensor, name)
            else:
                stack.callback(setattr, torch.Tensor, name, original)
            setattr(torch.Tensor, name, _guarded(name, original))
        start = threading.Thread.start
        stack.callback(setattr, threading.Thread, "start", start)
        threading.Thread.start = _in_no_forward(start)  # type: ignore[method-assign]
        yield


def _watching() -> ProfileMode | None:
    """The mode under which model code is running; None inside a kernel of ours, which runs with it off."""
    if torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.Python):
        return None
    mode = _get_current_dispatch_mode()
    return mode if isinstance(mode, ProfileMode) else None


def _in_no_forward(start: Callable[..., None]) -> Callable[..., None]:
    def started(self: threading.Thread) -> None:
        mode = _watching()
        if mode is not None:
            raise mode.refuse(
                "a thread is started, whose operators nobody would see", "compute in the calling thread"
            )
        start(self)

    return started


def _guarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def escape(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        mode = _watching() if self.is_floating_point() else None
        if mode is not None:
            raise mode.refuse(
                f"Tensor.{name} takes floats out of a tensor",
                "keep the values in tensors, where they are audited",
            )
        return original(self, *args, **kwargs)

    return escape
