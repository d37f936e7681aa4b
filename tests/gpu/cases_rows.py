"""Cases of products of few rows: each form, copies aligned and not, whole and masked rounds of segments."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.gpu.cases import Kernels, case
from tests.gpu.cases_products import BF16, F16, F32, draw


def _few(
    m: int, n: int, k: int, x: torch.dtype, w: torch.dtype, *, small: bool = False, bias: bool = False
) -> None:
    @case(f"rows: {m}x{n}x{k} {str(x)[6:]} {str(w)[6:]}{' bias' if bias else ''}", small=small)
    def run(kernels: Kernels, device: torch.device) -> Sequence[torch.Tensor]:
        a = draw((m, k), 1, x, device=device, specials=0.0005)
        b = draw((n, k), 2, w, device=device, specials=0.0002)
        c = draw((n,), 3, F32, device=device) if bias else None
        return [kernels.gemm.linear(a, b, c, out_dtype=x)]


_few(1, 70, 1168, F32, BF16, small=True, bias=True)
_few(1, 33, 2048, BF16, F16, small=True)
_few(3, 40, 1024, F32, BF16, small=True)
_few(8, 70, 1040, F32, F16, small=True, bias=True)
_few(7, 33, 1152, F16, F32, small=True)
for _m in range(1, 9):
    _few(_m, 1040, 4096, F32, BF16, bias=_m % 2 == 0)
    _few(_m, 300, 14336, BF16, BF16)
    _few(_m, 16500, 640, F32, BF16)
    _few(_m, 513, 1184, F16, F32, bias=True)
