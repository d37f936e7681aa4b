"""Ways out of a tensor that no dispatch mode sees: ``tolist`` and ``numpy`` read memory without an operator.

A float that leaves a tensor may come back as a scalar that nobody audited. While a run lasts, model code that
takes one is refused like ``item``; kernels, which run with the mode off, are not concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from repro_audit.engine.dispatch import ProfileMode

_ESCAPES = ("tolist", "numpy")


@contextmanager
def closed() -> Iterator[None]:
    """Refuse ``tolist`` and ``numpy`` of floats under a :class:`ProfileMode` while the context lasts."""
    with ExitStack() as stack:
        for name in _ESCAPES:
            inherited = name not in torch.Tensor.__dict__
            original = getattr(torch.Tensor, name)
            if inherited:
                stack.callback(delattr, torch.Tensor, name)
            else:
                stack.callback(setattr, torch.Tensor, name, original)
            setattr(torch.Tensor, name, _guarded(name, original))
        yield


def _guarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def escape(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.is_floating_point() and not torch._C._dispatch_tls_is_dispatch_key_excluded(
            torch._C.DispatchKey.Python
        ):
            mode = _get_current_dispatch_mode()
            if isinstance(mode, ProfileMode):
                raise mode.refuse(
                    f"Tensor.{name} takes floats out of a tensor",
                    "keep the values in tensors, where they are audited",
                )
        return original(self, *args, **kwargs)

    return escape
