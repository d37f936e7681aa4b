"""Normalisations."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.gpu.cases import Kernels, case
from tests.gpu.hostile import FLOATS, error, strided, values

Results = Sequence[torch.Tensor]


def _rows(
    kernels: Kernels, device: torch.device, shape: tuple[int, ...], dtype: torch.dtype, special: float = 0.0
) -> list[torch.Tensor]:
    """Layer and RMS norm over the last axis, with all that is optional in some call."""
    n, norm = shape[-1], kernels.norm
    x = values(shape, n, dtype, special=special)
    w = [values((n,), 1, kind).to(device) for kind in FLOATS]
    here, turned = x.to(device), strided(x, device)
    return [
        norm.layer_norm(here, (n,), w[0], w[1]),
        norm.layer_norm(turned, (n,), None, w[2], eps=1e-12),
        norm.layer_norm(here, (n,)),
        norm.rms_norm(here, (n,), w[1]),
        norm.rms_norm(turned, (n,), w[2], 1e-6),
    ]


@case("norm: small rows", small=True)
def small_rows(kernels: Kernels, device: torch.device) -> Results:
    return _rows(kernels, device, (1, 133), torch.bfloat16)


@case("norm: small groups", small=True)
def small_groups(kernels: Kernels, device: torch.device) -> Results:
    x, w = values((2, 6, 5), 1, torch.float16).to(device), values((6,), 2).to(device)
    return [
        kernels.norm.group_norm(x, 2, w, w),
        kernels.norm.batch_norm(x, w, w.abs(), w, w),
        kernels.norm.batch_norm(x, w, w.abs().half()),
        kernels.norm.layer_norm(x[:1], (6, 5)),
        kernels.norm.layer_norm(x[:0], (5,)),
        kernels.norm.group_norm(x[:0], 2),
    ]


@case("norm: errors", small=True)
def errors(kernels: Kernels, device: torch.device) -> Results:
    x, w = values((2, 6), 1).to(device), values((5,), 1).to(device)
    calls = (
        lambda: kernels.norm.layer_norm(x, (5,)),
        lambda: kernels.norm.layer_norm(x, ()),
        lambda: kernels.norm.layer_norm(x.double(), (6,)),
        lambda: kernels.norm.rms_norm(x.int(), (6,)),
        lambda: kernels.norm.rms_norm(x, (6,), w),
        lambda: kernels.norm.group_norm(x, 4),
        lambda: kernels.norm.group_norm(x, 2, w),
        lambda: kernels.norm.batch_norm(x[0], w, w),
        lambda: kernels.norm.batch_norm(x, w, w),
    )
    return [error(call).to(device) for call in calls]


@case("norm: rows", small=False)
def rows(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for dtype in FLOATS:
        for n in (1, 2, 31, 127, 128, 129, 255, 256, 257, 576, 960, 1000, 2048, 4096, 8192, 14336):
            found += _rows(kernels, device, (3, n), dtype)
    return found


@case("norm: many rows", small=False)
def many_rows(kernels: Kernels, device: torch.device) -> Results:
    return [
        result
        for dtype in FLOATS
        for shape in ((257, 16), (3000, 64), (300, 576), (2, 3, 100, 128), (700, 4096), (300, 20480))
        for result in _rows(kernels, device, shape, dtype)
    ]


@case("norm: non-finite and extreme", small=False)
def non_finite(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for dtype in FLOATS:
        found += _rows(kernels, device, (200, 300), dtype, special=0.003)
        for kind in ("wide", "subnormal", "cancelling", "small", "bits"):
            x = values((40, 260), 3, dtype, kind=kind).to(device)
            found += [kernels.norm.layer_norm(x, (260,)), kernels.norm.rms_norm(x, (260,), eps=0.0)]
        zero = torch.zeros(2, 130, dtype=dtype, device=device)
        found += [kernels.norm.layer_norm(zero, (130,), eps=0.0), kernels.norm.rms_norm(-zero, (130,))]
    return found


@case("norm: offsets", small=False)
def offsets(kernels: Kernels, device: torch.device) -> Results:
    room, w = values((5000,), 1, torch.bfloat16).to(device), values((600,), 2, torch.bfloat16).to(device)
    found = []
    for offset in (0, 1, 2, 8, 16):
        x = room[offset : offset + 4 * 512].view(4, 512)
        found += [
            kernels.norm.rms_norm(x, (512,), w[offset : offset + 512]),
            kernels.norm.layer_norm(x[:, offset:], (512 - offset,), w[: 512 - offset]),
        ]
    return found


@case("norm: several axes, groups, batches", small=False)
def shapes(kernels: Kernels, device: torch.device) -> Results:
    found, norm = [], kernels.norm
    for dtype in FLOATS:
        x = values((3, 12, 7, 9), 4, dtype, special=0.0005)
        c, w = values((12,), 5, dtype).to(device), values((12, 7, 9), 6).to(device)
        for t in (x.to(device), strided(x, device)):
            found += [norm.group_norm(t, g, c, c) for g in (1, 2, 3, 4, 6, 12)]
            found += [norm.group_norm(t, 3), norm.layer_norm(t, (12, 7, 9), w, w), norm.rms_norm(t, (7, 9))]
            found += [norm.batch_norm(t, c, c.abs(), c, c), norm.batch_norm(t, c.float(), c.abs().float())]
            found += [norm.batch_norm(t[:, :, 0, 0], c, -c, None, c, eps=0.1)]
    wide = values((1, 4, 90000), 7).to(device)
    return [*found, norm.group_norm(wide, 2), norm.group_norm(wide[:, :, :1], 4)]
