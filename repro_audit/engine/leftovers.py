"""What a forward pass leaves behind on its modules is taken away: no run starts from another run's state.

Model code keeps tensors in plain attributes (transformers' longrope and dynamic RoPE keep frequencies and
the longest length so far). A probe on meta tensors, or a run on another device, would leave them to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def undone(module: nn.Module) -> Iterator[None]:
    """Put back every module's attributes, parameters, buffers and children as they were; enter it first."""
    tables = [
        (table, dict(table))
        for child in module.modules()
        for table in (child.__dict__, child._parameters, child._buffers, child._modules)
    ]
    try:
        yield
    finally:
        for table, before in tables:
            table.clear()
            table.update(before)
