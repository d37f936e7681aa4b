"""What the known-answer test asks of PyTorch's own kernels: the rows that the operator table calls exact.

Whether they are exact is a fact about a build and a device, not about PyTorch: another compiler flag, a GPU's
reciprocal or a half computed in another width would show here, before a record can rest on it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Function = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]


def under_the_table(function: Function, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What model code gets that calls ``function`` on two tensors of one shape."""
    # Here, since it imports transformers.
    from repro_audit.engine.dispatch import ProfileMode
    from repro_audit.engine.optable import table

    with ProfileMode(table(), {}):
        return function(x, y)


def _last_written(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    slots = torch.arange(x.numel(), device=x.device) * 7919 % 11
    return x.scatter(0, slots, y), x.index_put((slots,), y), x.index_copy(0, slots, y)


ROWS: dict[str, Function] = {
    "add": lambda x, y: (x + y, x + 0.1, torch.add(x, y, alpha=0.3)),
    "sub": lambda x, y: (x - y, 0.1 - x, torch.rsub(x, y, alpha=3)),
    "mul": lambda x, y: (x * y, x * 0.1, x * 1001),
    "div": lambda x, y: (x / y, x / 0.3, x / torch.tensor(0.3), x / torch.tensor(0.3, device=x.device)),
    "signs": lambda x, y: (-x, x.abs(), x.sign(), x.sgn()),
    "whole": lambda x, y: ((x * 9).round(), (x * 9).floor(), (x * 9).ceil(), (x * 9).trunc(), x.frac()),
    "casts": lambda x, y: (x.float(), x.bfloat16(), x.half(), x.long(), x.bool(), (x.long() * 99).float()),
    "comparisons": lambda x, y: (x < y, x <= y, x == y, x != y, x >= 0.0, x < 0.1),
    "choices": lambda x, y: (torch.where(x < y, x, y), x.masked_fill(x < y, -1.5)),
    "last written": _last_written,
}
"""Name -> function of two tensors of one shape and floating type."""
