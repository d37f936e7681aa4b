"""Maxima, sorting, selection: ties, zeros of both signs, NaN."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.gpu.cases import Kernels, case
from tests.gpu.hostile import FLOATS, error, strided, values

Results = Sequence[torch.Tensor]


def _everything(kernels: Kernels, x: torch.Tensor, dim: int, k: int) -> list[torch.Tensor]:
    order, found = kernels.order, []
    for name in ("max", "min"):
        found += [*getattr(order, name)(x, dim), *getattr(order, name)(x, dim, keepdim=True)]
    for name in ("amax", "amin", "argmax", "argmin"):
        found += [getattr(order, name)(x, dim), getattr(order, name)(x), getattr(order, name)(x, dim, True)]
    for flag in (False, True):
        found += [*order.sort(x, dim, flag), order.argsort(x, dim, flag), *order.topk(x, k, dim, flag)]
    return found


def _pairs(kernels: Kernels, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    order = kernels.order
    return [
        order.maximum(x, y),
        order.minimum(x, y),
        order.maximum(x, y[..., :1]),
        order.minimum(x, y.flatten()[0]),
        order.relu(x),
        order.clamp(x, -0.0, 0.75),
        order.clamp(x, None, 0.0),
        order.clamp(x, 0.1),
        order.clamp(x, y, y.flatten()[1]),
        order.clamp(x, float("nan"), 1.0),
        order.clamp(x, float("-inf"), float("inf")),
    ]


@case("order: small", small=True)
def small(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for dtype in (torch.float32, torch.float16):
        x = values((3, 7), 1, dtype, kind="small", special=0.1).to(device)
        y = values((3, 7), 2, dtype, kind="small", special=0.1).to(device)
        found += [*_everything(kernels, x, int(dtype is torch.float32), 2), *_pairs(kernels, x, y)]
    return found


@case("order: edges", small=True)
def edges(kernels: Kernels, device: torch.device) -> Results:
    scalar, none = torch.tensor(-0.0).to(device), torch.zeros(3, 0, 2).to(device)
    whole = torch.tensor([[3, 1, 3], [0, 2, 2]]).to(device)
    order = kernels.order
    return [
        *_everything(kernels, scalar, 0, 1),
        *order.sort(none, 1),
        *order.topk(none, 0, 1),
        order.amax(none, 0),
        order.maximum(none, none),
        *_everything(kernels, whole, 1, 2),
        order.maximum(whole, whole.flip(1)),
        order.clamp(whole, 1, 2),
        order.maximum(scalar.half(), scalar.bfloat16() + 1),
    ]


@case("order: errors", small=True)
def errors(kernels: Kernels, device: torch.device) -> Results:
    x, order = values((2, 0, 3), 1).to(device), kernels.order
    calls = (
        lambda: order.argmax(x, 1),
        lambda: order.max(x, 1),
        lambda: order.amax(x),
        lambda: order.amin(x, (0, 1)),
        lambda: order.argmax(x, 3),
        lambda: order.topk(x, 4, 2),
        lambda: order.sort(x.double(), 0),
        lambda: order.maximum(x.double(), x),
    )
    return [error(call).to(device) for call in calls]


@case("order: ties and NaN", small=False)
def ties(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for dtype in FLOATS:
        for kind in ("small", "bits", "normal"):
            for shape in ((5, 129, 3), (1, 2049, 1), (64, 8), (3, 1)):
                x = values(shape, 5, dtype, kind=kind, special=0.02)
                y = values(shape, 6, dtype, kind=kind, special=0.02)
                for d in range(len(shape)):
                    found += _everything(kernels, x.to(device), d, min(7, shape[d]))
                if x.numel() > 3:
                    found += _pairs(kernels, x.to(device), y.to(device))
                found += [
                    *kernels.order.sort(strided(x, device), -1),
                    kernels.order.amax(x.to(device), (0, 1)),
                ]
    return found


@case("order: logits", small=False)
def logits(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for n in (8191, 8192, 8193, 49152, 151936, 262144):
        x = values((2, n), n, kind="small")
        for t in (x, values((2, n), n), torch.full((2, n), -0.0), torch.full((2, n), float("-inf"))):
            rows = t.to(device)
            found += [
                kernels.order.argmax(rows, 1),
                kernels.order.argmin(rows[0]),
                *kernels.order.topk(rows, 50),
            ]
        found += [*kernels.order.sort(x.bfloat16().to(device), -1, True)]
    return found


@case("order: routing", small=False)
def routing(kernels: Kernels, device: torch.device) -> Results:
    """Experts with equal scores: the lowest index, as a mixture of experts picks them."""
    scores = [values((777, n), 8, kind="small").to(device) for n in (4, 8, 60, 128)]
    return [t for x in scores for k in (1, 2, 4) for t in kernels.order.topk(x, k)]


@case("order: casts to integers", small=True)
def casts(kernels: Kernels, device: torch.device) -> Results:
    edges = torch.tensor([2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 255.0, 256.0, -0.5, 0.99, 127.5, -128.5])
    kinds = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    found = []
    for dtype in FLOATS:
        x = torch.cat([edges.to(dtype), values((300,), 9, dtype, kind="bits", special=0.2)]).to(device)
        found += [kernels.convert.to_integer(x, kind) for kind in kinds]
    return found
