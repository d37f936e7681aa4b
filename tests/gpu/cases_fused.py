"""Steps of transformer modules in one kernel each."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.gpu.cases import Kernels, case
from tests.gpu.hostile import FLOATS, error, strided, values

Results = Sequence[torch.Tensor]


def _tables(
    batch: int, positions: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    angles = values((2, batch, positions, width), 11, dtype, kind="small")
    return angles[0].to(device), angles[1].to(device)


@case("fused: small norms", small=True)
def small_norms(kernels: Kernels, device: torch.device) -> Results:
    x, w = values((2, 130), 1, torch.bfloat16).to(device), values((130,), 2, torch.bfloat16).to(device)
    norm = kernels.fused.rms_norm_module
    return [norm(x, w, 1e-5), norm(x, w, 1e-6, one_plus=True), norm(x[:0], w, 1e-5), norm(x[0], w, 1e-5)]


@case("fused: small swiglu", small=True)
def small_swiglu(kernels: Kernels, device: torch.device) -> Results:
    both = values((3, 34), 3, torch.bfloat16, special=0.1).to(device)
    return [kernels.fused.swiglu(both[:, :17], both[:, 17:]), kernels.fused.swiglu(both[:0], both[:0])]


@case("fused: small rotary", small=True)
def small_rotary(kernels: Kernels, device: torch.device) -> Results:
    q, k = values((2, 5, 3, 8), 4, kind="small", special=0.1), values((2, 1, 5, 8), 5, special=0.1)
    found = []
    for dtype in FLOATS:
        cos, sin = _tables(1, 5, 6, dtype, device)
        left, right = q.to(dtype).to(device).transpose(1, 2), k.to(dtype).to(device)
        found += [*kernels.fused.rotary(left, right, cos, sin)]
    return found


@case("fused: errors", small=True)
def errors(kernels: Kernels, device: torch.device) -> Results:
    x, w = values((2, 6), 1).to(device), values((5,), 1).to(device)
    q, (cos, sin) = values((1, 2, 3, 4), 1).to(device), _tables(1, 3, 4, torch.float32, device)
    fused = kernels.fused
    calls = (
        lambda: fused.rms_norm_module(x, w, 1e-5),
        lambda: fused.swiglu(x, w),
        lambda: fused.swiglu(x, x.half()),
        lambda: fused.rotary(q, q, cos[0], sin[0]),
        lambda: fused.rotary(q, q, cos[:, :, :3], sin[:, :, :3]),
        lambda: fused.rotary(q, q.half(), cos, sin),
        lambda: fused.rotary(q, q[:, :, :2], cos, sin),
    )
    return [error(call).to(device) for call in calls]


@case("fused: rms norm modules", small=False)
def norms(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for dtype in FLOATS:
        for shape in ((1, 576), (3, 128), (2, 7, 129), (300, 64), (1, 4096), (400, 2304), (2, 1)):
            x, n = values(shape, shape[-1], dtype, special=0.0005), shape[-1]
            for w in (values((n,), 1, kind, kind="small").to(device) for kind in FLOATS):
                for plus in (False, True):
                    found.append(kernels.fused.rms_norm_module(x.to(device), w, 1e-5, one_plus=plus))
            found.append(kernels.fused.rms_norm_module(strided(x, device), w, 0.0))
        wide = values((5, 1024), 3, dtype).to(device)
        weight = torch.ones(512, dtype=dtype, device=device)
        found += [kernels.fused.rms_norm_module(wide[:, i : i + 512], weight, 1e-6) for i in (0, 1, 256)]
    return found


@case("fused: swiglu", small=False)
def gates(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for dtype in FLOATS:
        for kind in ("normal", "wide", "bits"):
            both = values((37, 2 * 1536), 1, dtype, kind=kind, special=0.01)
            left, right = both.to(device).chunk(2, dim=-1)
            found += [kernels.fused.swiglu(left, right), kernels.fused.swiglu(right[:, ::2], left[:, 1::2])]
            found.append(kernels.fused.swiglu(strided(both[:, :7], device), both[:, 7:14].to(device)))
    return found


@case("fused: rotary", small=False)
def turns(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for dtype in FLOATS:
        for heads, few, width, part in ((9, 3, 64, 64), (4, 4, 80, 20), (32, 8, 128, 128), (2, 1, 2, 2)):
            for batch in (1, 2):
                q = values((2, 65, heads, width), 1, dtype, special=0.01).to(device).transpose(1, 2)
                k = values((2, few, 65, width), 2, dtype, kind="bits").to(device)
                cos, sin = _tables(batch, 65, part, dtype, device)
                found += [*kernels.fused.rotary(q, k, cos, sin)]
                found += [*kernels.fused.rotary(q[:, :, :1], k[:, :0, -1:], cos[:, -1:], sin[:, -1:])]
    return found
