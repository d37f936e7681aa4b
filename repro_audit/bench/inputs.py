"""Fresh inputs, written in place, and bits compared with the CPU's kernels before anything is timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from repro_audit.errors import InconclusiveError

SCALES = (1.0, 3.0, 0.01, -1.0)
"""Inputs are drawn from the normal distribution and multiplied by these in turn."""
_VIEWS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
_SETS = 16
_ON_CPU = 64 << 20
_ALIKE = 0.03


def sets_needed(bytes_per_set: int, cache: int | None) -> int:
    """How many input sets exceed the last cache three times over (the CPU's is taken as 64 MiB)."""
    return max(2, min(_SETS, -(-3 * (cache or _ON_CPU) // max(bytes_per_set, 1))))


def refresher(tensors: Sequence[torch.Tensor], copies: Sequence[torch.Tensor] = ()) -> Callable[[int], None]:
    """A function of the turn that draws every tensor anew, scaled by the turn's scale.

    Args:
        tensors: fp32, written in place.
        copies: of another dtype, one per tensor, written from it.
    """
    generator = torch.Generator(tensors[0].device)

    def refresh(turn: int) -> None:
        generator.manual_seed(turn)
        for tensor in tensors:
            tensor.normal_(generator=generator).mul_(SCALES[turn % len(SCALES)])
        for copy, tensor in zip(copies, tensors, strict=bool(copies)):
            copy.copy_(tensor)

    return refresh


def require_bits(what: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare by integer views, on the CPU.

    Raises:
        InconclusiveError: an element has other bits.
    """
    left, right = (t.cpu().contiguous() for t in (found, expected))
    if left.dtype in _VIEWS:
        left, right = left.view(_VIEWS[left.dtype]), right.view(_VIEWS[right.dtype])
    wrong = int((left != right).sum()) if left.shape == right.shape else left.numel()
    if wrong:
        raise InconclusiveError(
            f"{what}: {wrong} of {left.numel()} compared values have other bits than the CPU's kernel gives",
            hint="nothing was timed; run repro-audit doctor --device cuda",
        )


def require_alike(what: str, found: torch.Tensor, ours: torch.Tensor) -> None:
    """That a contender computes the same thing, as far as its precision goes.

    Raises:
        InconclusiveError: the difference's norm is more than 3 % of the result's.
    """
    left, right = found.detach().float(), ours.detach().float().view(found.shape)
    if not float((left - right).norm()) <= _ALIKE * float(right.norm()):
        raise InconclusiveError(f"{what} computes something else", hint="it cannot be compared")
