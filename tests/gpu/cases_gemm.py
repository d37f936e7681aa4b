"""Matrix products and convolutions: every kernel, hostile values and layouts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from tests.gpu.cases import Kernels, Run, error_of
from tests.gpu.cases import add as _add
from tests.kernels.kernel_support import FLAVOURS, restrided, tensor

_F, _B, _H = torch.float32, torch.bfloat16, torch.float16


def add(name: str, run: Run, *, small: bool = False) -> None:
    _add(f"products: {name}", run, small=small)


def _made(shape: Sequence[int], device: torch.device, seed: int, **how: Any) -> torch.Tensor:
    """A tensor on the device in a layout that the seed picks."""
    layout = how.pop("layout", 0)
    t = tensor(shape, seed=seed, **how)
    moved = t.to(device)
    return restrided_on(moved, layout)


def restrided_on(t: torch.Tensor, seed: int) -> torch.Tensor:
    """:func:`restrided` on a device: the same sizes, strides and offset there."""
    if t.dim() == 0 or seed % 4 == 0:
        return t
    like = restrided(t.cpu(), seed)
    size = like.untyped_storage().nbytes() // like.element_size()
    storage = torch.full((size,), 7.0, dtype=t.dtype, device=t.device)
    view = storage.as_strided(like.shape, like.stride(), like.storage_offset())
    view.copy_(t)
    return view


def _linear(m: int, n: int, k: int, **how: Any) -> None:
    x_type, w_type = how.pop("x", _F), how.pop("w", _B)
    small, bias, out = how.pop("small", False), how.pop("bias", False), how.pop("out", None)
    name = how.pop("name", f"{m}x{n}x{k}-{str(x_type)[6:]}-{str(w_type)[6:]}" + ("-bias" if bias else ""))
    layout = how.pop("layout", 0)

    def run(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
        x = _made((m, k), device, 1, dtype=x_type, layout=layout, **how)
        w = _made((n, k), device, 2, dtype=w_type, layout=layout, **how)
        b = _made((n,), device, 3, dtype=w_type) if bias else None
        return [kernels.gemm.linear(x, w, b, out_dtype=out)]

    add(f"linear-{name}", run, small=small)


for _m, _n, _k in [(1, 5, 3), (3, 20, 130), (2, 9, 257), (6, 33, 200), (17, 18, 129)]:
    _linear(_m, _n, _k, small=True)
for _flavour in FLAVOURS:
    for _m in (2, 9):
        _linear(_m, 24, 150, small=True, flavour=_flavour, w=_F, name=f"{_m}-{_flavour}")
    for _m in (1, 16, 40):
        _linear(_m, 200, 1000, flavour=_flavour, w=_F, name=f"large-{_m}-{_flavour}")
for _x, _w in itertools.product((_F, _B, _H), repeat=2):
    _linear(2, 7, 140, x=_x, w=_w, bias=True, small=True)
    for _m in (1, 4, 16, 70):
        _linear(_m, 300, 700, x=_x, w=_w, bias=True)
for _out in (_F, _B, _H):
    for _m in (3, 8):
        _linear(_m, 40, 300, out=_out, specials=0.002, small=_m > 3, name=f"special-{_m}-{str(_out)[6:]}")
    for _m in (4, 100):
        _linear(_m, 400, 3000, out=_out, specials=0.0005, name=f"large-special-{_m}-{str(_out)[6:]}")
for _layout in (1, 2, 3):
    for _m in (1, 5):
        _linear(_m, 6, 140, layout=_layout, small=True, name=f"layout-{_layout}-{_m}")
    for _m in (1, 16, 130):
        _linear(_m, 257, 515, layout=_layout, name=f"large-layout-{_layout}-{_m}")
for _m in [1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 255, 256, 257]:
    _linear(_m, 576, 576, name=f"m-{_m}")
    _linear(_m, 131, 1536, name=f"odd-m-{_m}")
for _n, _k in [(1, 4096), (49152, 576), (4096, 4096), (100, 8), (128, 128), (1000, 1000), (33, 14336), (64, 127)]:
    for _m in (1, 2, 16, 32, 100):
        _linear(_m, _n, _k, name=f"nk-{_m}-{_n}-{_k}")
_linear(2048, 1024, 1024)
_linear(512, 4096, 4096)


def _rows_alone(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    """Row 0 of every batch size: the same bits as row 0 alone."""
    x = _made((2048, 640), device, 4)
    w = _made((300, 640), device, 5, dtype=_B)
    sizes = [*range(1, 65), 65, 128, 255, 256, 257, 2048]
    return [kernels.gemm.linear(x[:m], w)[0] for m in sizes]


add("linear-row-0-of-every-m", _rows_alone)


def _matmul(name: str, a: Sequence[int], b: Sequence[int], *, small: bool = False, **how: Any) -> None:
    a_type, b_type, layout = how.pop("a_type", _F), how.pop("b_type", _F), how.pop("layout", 0)
    out, starts = how.pop("out", None), how.pop("starts", (0,))

    def run(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
        left = _made(a, device, 6, dtype=a_type, layout=layout, **how)
        right = _made(b, device, 7, dtype=b_type, layout=layout + 1 if layout else 0, **how)
        return [kernels.gemm.matmul(left, right, out_dtype=out, k_start=start) for start in starts]

    add(f"matmul-{name}", run, small=small)


_matmul("1d", (130,), (130,), small=True)
_matmul("vector-matrix", (50,), (50, 9), small=True)
_matmul("matrix-vector", (9, 150), (150,), small=True)
_matmul("batch-vector", (2, 3, 4, 20), (20,), small=True)
_matmul("broadcast", (2, 1, 3, 20), (5, 20, 4), small=True)
_matmul("three-axes", (2, 1, 3, 4, 20), (1, 2, 1, 20, 5), small=True)
_matmul("starts", (3, 200), (200, 5), starts=(1, 64, 100, 127, 128, 300), small=True)
_matmul("starts-large", (2, 40, 700), (2, 700, 65), starts=(1, 64, 100, 127, 128, 300))
_matmul("types", (3, 130), (130, 8), a_type=_B, b_type=_H, small=True)
_matmul("outer", (6, 1), (1, 7), small=True)
_matmul("empty-k", (3, 0), (0, 4), small=True)
_matmul("empty-m", (0, 3), (3, 4), small=True)
_matmul("empty-batch", (0, 2, 3), (0, 3, 4), small=True)
for _layout in (1, 2, 3):
    _matmul(f"layout-{_layout}", (2, 3, 4, 140), (2, 3, 140, 5), layout=_layout, small=True)
    _matmul(f"large-layout-{_layout}", (3, 4, 50, 300), (3, 1, 300, 70), layout=_layout, a_type=_B, out=_B)
_matmul("heads", (2, 9, 77, 64), (2, 9, 64, 300))
_matmul("values", (2, 9, 77, 300), (2, 9, 300, 64), starts=(0, 77))
_matmul("one-query", (1, 32, 1, 1500), (1, 32, 1500, 128))
_matmul("special", (4, 50, 300), (4, 300, 40), specials=0.001)


def _added(name: str, function: str, shapes: Sequence[Sequence[int]], small: bool = True, **how: Any) -> None:
    values, types = how.pop("values", ((1.0, 1.0),)), how.pop("types", (_F, _F, _F))
    layout, out = how.pop("layout", 0), how.pop("out", None)

    def run(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
        made = [
            _made(s, device, 8 + i, dtype=t, layout=layout and layout + i, **how)
            for i, (s, t) in enumerate(zip(shapes, types, strict=True))
        ]
        call = getattr(kernels.gemm, function)
        return [call(*made, beta=beta, alpha=alpha, out_dtype=out) for beta, alpha in values]

    add(f"{function}-{name}", run, small=small)


_FACTORS = ((1.0, 1.0), (0.0, 1.0), (0.1, 1.0), (1.0, -0.3), (0.7, 1e-3), (0.0, 2.5))
_added("factors", "addmm", ((5,), (6, 150), (150, 5)), values=_FACTORS)
_added("factors-few", "addmm", ((1, 5), (2, 150), (150, 5)), values=_FACTORS)
_added("factors-large", "addmm", ((60, 1), (60, 900), (900, 200)), False, values=_FACTORS)
_added("types", "addmm", ((3, 4), (3, 20), (20, 4)), types=(_B, _H, _F), out=_H)
_added("layout", "addmm", ((3, 4), (3, 20), (20, 4)), layout=1)
_added("special", "addmm", ((7, 9), (7, 140), (140, 9)), values=_FACTORS, specials=0.01)
_added("factors", "baddbmm", ((3, 5, 6), (3, 5, 130), (3, 130, 6)), values=_FACTORS[:4])
_added("bias-row", "baddbmm", ((3, 1, 6), (3, 5, 30), (3, 30, 6)))
_added("large", "baddbmm", ((6, 1, 60), (6, 50, 64), (6, 64, 60)), False, values=_FACTORS, layout=2)


def _conv(name: str, x: Sequence[int], w: Sequence[int], small: bool = True, **how: Any) -> None:
    types, bias, layout = how.pop("types", (_F, _F)), how.pop("bias", True), how.pop("layout", 0)
    specials = how.pop("specials", 0.0)

    def run(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
        image = _made(x, device, 11, dtype=types[0], layout=layout, specials=specials)
        weight = _made(w, device, 12, dtype=types[1], layout=layout, specials=specials)
        b = _made(w[:1], device, 13, dtype=types[1]) if bias else None
        return [kernels.gemm.conv(image, weight, b, **how)]

    add(f"conv-{name}", run, small=small)


_conv("1d", (2, 3, 20), (4, 3, 5))
_conv("1d-groups", (1, 6, 17), (8, 3, 3), groups=2, padding=1, stride=2)
_conv("1d-same", (4, 12), (3, 4, 4), padding="same", dilation=2)
_conv("2d", (2, 3, 9, 8), (5, 3, 3, 2), padding=(1, 0), stride=(2, 1), bias=False)
_conv("2d-types", (1, 16, 6, 6), (4, 16, 3, 3), types=(_B, _H), padding=1)
_conv("2d-layout", (2, 4, 7, 6), (3, 4, 3, 3), layout=1, padding=2, dilation=2)
_conv("2d-depthwise", (1, 5, 7, 6), (5, 1, 3, 3), groups=5, padding="valid")
_conv("3d", (1, 2, 5, 4, 6), (3, 2, 2, 3, 2), padding=(0, 1, 1), stride=(1, 2, 2))
_conv("special", (1, 4, 12, 11), (3, 4, 3, 3), padding=1, specials=0.01)
_conv("empty", (0, 3, 9), (4, 3, 2))
_conv("whisper", (1, 80, 300), (384, 80, 3), False, padding=1, stride=1)
_conv("patches", (2, 3, 224, 224), (192, 3, 16, 16), False, stride=16, types=(_F, _B))
_conv("resnet", (2, 64, 28, 28), (128, 64, 3, 3), False, padding=1, stride=2, layout=3)


def _errors(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    x, w = torch.zeros(2, 3, device=device), torch.zeros(4, 3, device=device)
    whole = torch.zeros(4, 3, dtype=torch.int64, device=device)
    g = kernels.gemm
    return [
        error_of(lambda: g.linear(x, torch.zeros(4, 5, device=device))),
        error_of(lambda: g.linear(x, whole)),
        error_of(lambda: g.linear(x.double(), w)),
        error_of(lambda: g.matmul(x, w)),
        error_of(lambda: g.matmul(x, w.t(), k_start=-1)),
        error_of(lambda: g.addmm(x, x, w)),
        error_of(lambda: g.baddbmm(x, x, w)),
        error_of(lambda: g.conv(x, w)),
        error_of(lambda: g.conv(torch.zeros(1, 3, 4, device=device), torch.zeros(2, 3, 9, device=device))),
        error_of(lambda: g.conv(torch.zeros(1, 3, 4, device=device), torch.zeros(2, 2, 2, device=device))),
    ]


add("gemm-errors", _errors, small=True)
