"""Remainders and whole quotients: integers and single IEEE-754 operations of PyTorch, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.gpu.cases import Kernels, case
from tests.gpu.hostile import FLOATS, error, strided, values


@case("remainder: every kind of number", small=True)
def every_kind(kernels: Kernels, device: torch.device) -> Sequence[torch.Tensor]:
    found = []
    kinds = ("small", "wide", "subnormal", "bits")
    for seed, dtype in enumerate(FLOATS):
        for kind in kinds:
            x = strided(values((7, 40), seed, dtype, kind=kind, special=0.1), device)
            y = values((7, 40), seed + 9, dtype, kind=kinds[seed], special=0.1).to(device)
            for name in ("fmod", "remainder", "div_trunc", "div_floor"):
                function = getattr(kernels.remainder, name)
                found += [function(x, y), function(x, y[:1]), function(x[0, 0], y)]
    return found


@case("remainder: errors and nothing", small=True)
def edges(kernels: Kernels, device: torch.device) -> Sequence[torch.Tensor]:
    none, whole = torch.zeros(0, 3).to(device), torch.arange(3).to(device)
    fmod = kernels.remainder.fmod
    return [fmod(none, none), error(lambda: fmod(whole, whole))]
