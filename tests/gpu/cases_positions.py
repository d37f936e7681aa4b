"""Rows written into a cache at positions on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.gpu.cases import Kernels, case
from tests.gpu.hostile import error, values


def _written(
    kernels: Kernels, device: torch.device, shape: Sequence[int], dtype: torch.dtype
) -> list[torch.Tensor]:
    """Two strided writes into a cache of [slots, heads, capacity, size]; values are 3 narrower."""
    slots, heads, capacity, size = shape
    held = [torch.zeros(slots, heads, capacity, s, dtype=dtype, device=device) for s in (size, size + 3)]
    for seed in (1, 2):
        rows = slots - (seed == 2)
        new = [values((1, heads, rows, s), seed + s).to(dtype).to(device) for s in (size, size + 3)]
        positions = (5 * torch.arange(rows) + seed).remainder(capacity).to(device)
        kernels.positions.write_rows(*held, *(t[0].transpose(0, 1) for t in new), positions)
    return held


@case("positions: small writes", small=True)
def small(kernels: Kernels, device: torch.device) -> Sequence[torch.Tensor]:
    return _written(kernels, device, (3, 2, 7, 5), torch.float32)


@case("positions: writes", small=False)
def writes(kernels: Kernels, device: torch.device) -> Sequence[torch.Tensor]:
    found: list[torch.Tensor] = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for shape in ((1, 8, 600, 128), (9, 3, 33, 80), (2, 40, 17, 64)):
            found += _written(kernels, device, shape, dtype)
    return found


@case("positions: errors", small=True)
def errors(kernels: Kernels, device: torch.device) -> Sequence[torch.Tensor]:
    held = torch.zeros(2, 3, 4, 5, device=device)
    new, at = torch.zeros(2, 3, 5, device=device), torch.zeros(2, dtype=torch.int64, device=device)
    wanted = [
        (held, held, new[:, :2], new, at),
        (held, held, new, new.half(), at),
        (held, held.transpose(1, 2), new, new, at),
        (held[:1], held[:1], new, new, at),
        (held, held, new, new, at.int()),
    ]
    return [error(lambda a=a: kernels.positions.write_rows(*a)).to(device) for a in wanted]
