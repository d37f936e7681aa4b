"""Cases of products: every kernel form, operand type, layout, and sizes around tiles and vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tests.gpu.cases import Kernels, case, error_of

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
SPECIALS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.17549435e-38, 3.4028235e38, -3.4028235e38]


def draw(
    shape: Sequence[int],
    seed: int,
    dtype: torch.dtype = F32,
    *,
    flavour: str = "normal",
    device: torch.device | str = "cpu",
    specials: float = 0.0,
) -> torch.Tensor:
    """Values that hurt, drawn on the CPU by NumPy and moved: the same on every machine."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(tuple(shape)).astype(np.float32)
    if flavour == "wide":
        x *= np.float32(2.0) ** rng.integers(-60, 60, x.shape).astype(np.float32)
    elif flavour == "subnormal":
        x = (rng.integers(-(2**23), 2**23, x.shape).astype(np.float64) * 2.0**-149).astype(np.float32)
    elif flavour == "tiny":
        x *= np.float32(2.0**-75)
    elif flavour == "bits":
        x = rng.integers(0, 2**32, x.shape, dtype=np.uint64).astype(np.uint32).view(np.float32).copy()
    chosen = rng.random(x.shape) < specials
    x[chosen] = rng.choice(np.array(SPECIALS, np.float32), int(chosen.sum()))
    return torch.from_numpy(x).to(dtype).to(device)


def shifted(t: torch.Tensor) -> torch.Tensor:
    """The same matrix at a storage offset of one element with an odd row stride: nothing is aligned."""
    wide = t.shape[-1] + (1 if t.shape[-1] % 2 == 0 else 2)
    storage = torch.full((*t.shape[:-1], wide), 7.0, dtype=t.dtype, device=t.device)
    view = storage[..., 1 : 1 + t.shape[-1]]
    view.copy_(t)
    return view


def _linear(m: int, n: int, k: int, x: torch.dtype, w: torch.dtype, *, small: bool, **how: object) -> None:
    names = {F32: "fp32", BF16: "bf16", F16: "fp16"}
    label = " ".join(f"{key} {value}" for key, value in how.items())
    out, flavour = how.get("out", F32), str(how.get("flavour", "normal"))
    assert isinstance(out, torch.dtype)

    @case(f"products: linear {m}x{n}x{k} {names[x]} {names[w]} {label}".rstrip(), small=small)
    def run(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
        specials = 0.02 if how.get("specials") else 0.0
        a = draw((m, k), 1, x, flavour=flavour, device=device, specials=specials)
        b = draw((n, k), 2, w, flavour=flavour, device=device, specials=specials)
        bias = draw((n,), 3, F32, device=device) if how.get("bias") else None
        if how.get("shifted"):
            a, b = shifted(a), shifted(b)
        if how.get("transposed"):
            a, b = a.t().contiguous().t(), b.t().contiguous().t()
        return [kernels.gemm.linear(a, b, bias, out_dtype=out)]


for _m in (1, 2, 3, 5, 33):
    _linear(_m, 37, 129, F32, BF16, small=_m in (1, 5))
    _linear(_m, 16, 300, F32, F32, small=_m == 2, bias=True)
for _x in (F32, BF16, F16):
    for _w in (F32, BF16, F16):
        _linear(2, 19, 136, _x, _w, small=_x != _w != F32, out=_x)
        _linear(70, 130, 520, _x, _w, small=False, out=_x)
        _linear(1, 1030, 1160, _x, _w, small=False, out=_x)
for _flavour in ("wide", "subnormal", "tiny", "bits"):
    _linear(3, 21, 260, F32, F32, small=False, flavour=_flavour)
    _linear(5, 21, 131, F32, F32, small=True, flavour=_flavour)
    _linear(65, 67, 389, F32, BF16, small=False, flavour=_flavour)
    _linear(1, 67, 389, BF16, F32, small=_flavour == "bits", flavour=_flavour)
    _linear(1, 640, 392, F32, BF16, small=False, flavour=_flavour)
    _linear(130, 128, 256, F32, F32, small=False, flavour=_flavour)
for _m in (1, 4, 16, 64, 129):
    _linear(_m, 70, 257, F32, F32, small=False, specials=True)
    _linear(_m, 70, 264, F16, BF16, small=_m == 1, specials=True, out=BF16)
    _linear(_m, 71, 264, BF16, BF16, small=_m == 16, shifted=True)
    _linear(_m, 200, 264, F32, BF16, small=False, transposed=True)
    _linear(_m, 576, 1536, F32, BF16, small=False, bias=True)
for _shape in ((128, 128, 128), (256, 512, 1024), (300, 257, 1000), (16, 4096, 4096), (1, 4096, 14336)):
    _linear(*_shape, F32, BF16, small=False)
for _k in (0, 1, 7, 8, 15, 16, 17, 127, 128, 255, 256):
    _linear(1, 9, _k, F32, BF16, small=_k < 16)
    _linear(40, 24, _k, F32, BF16, small=False)
    _linear(40, 64, _k, F32, BF16, small=False)
    _linear(6, 9, _k, BF16, BF16, small=_k < 18, bias=True, out=BF16)


@case("products: row 0 of a linear does not know the other rows", small=False)
def _row_zero(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    x = draw((2048, 1000), 4, F32, device=device)
    w = draw((300, 1000), 5, BF16, device=device)
    first = None
    for m in [*range(1, 65), 65, 128, 255, 256, 257, 2048]:
        row = kernels.gemm.linear(x[:m], w)[0]
        if first is None:
            first = row.clone()
        bits = (row.view(torch.int32), first.view(torch.int32))
        assert bool((bits[0] == bits[1]).all()), f"row 0 differs at M = {m}"
    assert first is not None
    return [first]


@case("products: zero sizes")
def _zero(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    g = kernels.gemm
    e = torch.empty
    return [
        g.linear(e(0, 5, device=device), e(3, 5, device=device)),
        g.linear(e(2, 0, device=device), e(3, 0, device=device), torch.ones(3, device=device)),
        g.linear(e(2, 4, device=device), e(0, 4, device=device)),
        g.matmul(e(0, 3, 4, device=device), e(0, 4, 5, device=device)),
        g.matmul(e(2, 3, 0, device=device), e(2, 0, 5, device=device)),
        g.addmm(torch.full((2, 3), -0.0, device=device), e(2, 0, device=device), e(0, 3, device=device)),
    ]


def _matmul(label: str, a: Sequence[int], b: Sequence[int], *, small: bool = True, start: int = 0) -> None:
    for axes in ("plain", "swapped"):

        @case(f"products: matmul {label} {axes} from {start}", small=small)
        def run(kernels: Kernels, device: torch.device, axes: str = axes) -> list[torch.Tensor]:
            left, right = draw(a, 6, F32, device=device), draw(b, 7, BF16, device=device)
            if axes == "swapped":
                left = left.transpose(0, -1).contiguous().transpose(0, -1)
                right = right.transpose(0, -1).contiguous().transpose(0, -1)
            out = kernels.gemm.matmul(left, right, k_start=start)
            return [out, kernels.gemm.matmul(left, right, k_start=start, out_dtype=F16)]


_matmul("vectors", (200,), (200,))
_matmul("matrix vector", (20, 140), (140,))
_matmul("vector matrix", (140,), (140, 20))
_matmul("batched vector", (2, 3, 40), (40,))
_matmul("bmm", (3, 5, 140), (3, 140, 18), small=False)
_matmul("broadcast left", (5, 140), (3, 140, 18), small=False)
_matmul("broadcast both", (2, 1, 4, 20), (3, 20, 6))
_matmul("four axes", (2, 2, 2, 2, 3, 20), (2, 1, 2, 2, 20, 4), small=False)
_matmul("shared right", (2, 3, 40), (40, 18))
_matmul("large bmm", (4, 130, 260), (4, 260, 70), small=False)
_matmul("large broadcast", (2, 3, 130, 260), (3, 260, 64), small=False)
for _start in (1, 100, 127, 128, 300):
    _matmul("positions", (4, 150), (150, 6), start=_start, small=_start in (100, 127))
    _matmul("large positions", (2, 64, 600), (2, 600, 128), start=_start, small=False)


@case("products: addmm and baddbmm")
def _addmm(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    g = kernels.gemm
    a, b = draw((5, 140), 8, F32, device=device), draw((140, 18), 9, BF16, device=device)
    c = draw((18,), 10, F16, device=device)
    poison = torch.full((5, 18), float("nan"), device=device)
    a3, b3 = draw((2, 5, 20), 11, BF16, device=device), draw((2, 20, 7), 12, BF16, device=device)
    c3 = draw((2, 1, 7), 13, F32, device=device)
    return [
        g.addmm(c, a, b),
        g.addmm(c, a, b, beta=0.3, alpha=-1.7, out_dtype=BF16),
        g.addmm(poison, a, b, beta=0, alpha=0.1),
        g.addmm(c.expand(5, 18), a[:1].expand(5, 140), b),
        g.baddbmm(c3, a3, b3, beta=0.5, alpha=0.125),
        g.baddbmm(c3, a3, b3, out_dtype=F32),
    ]


@case("products: addmm of a large transposed weight", small=False)
def _conv1d_of_gpt2(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    weight, bias = draw((768, 2304), 14, BF16, device=device), draw((2304,), 15, BF16, device=device)
    return [
        kernels.gemm.addmm(bias, draw((m, 768), 16, F32, device=device), weight) for m in (1, 2, 4, 31, 200)
    ]


@case("products: conv")
def _conv(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    g = kernels.gemm
    x1, w1 = draw((2, 4, 11), 17, F32, device=device), draw((6, 2, 3), 18, BF16, device=device)
    x2, w2 = draw((2, 3, 7, 6), 19, BF16, device=device), draw((4, 3, 2, 3), 20, F32, device=device)
    x3, w3 = draw((2, 5, 4, 3), 21, F32, device=device), draw((2, 2, 2, 2, 1), 22, F16, device=device)
    bias = draw((6,), 23, F32, device=device)
    return [
        g.conv(x1, w1, bias, groups=2, padding=1, stride=2),
        g.conv(x1, w1, None, groups=2, padding="same", dilation=2),
        g.conv(x2, w2, bias[:4], padding=(1, 0), stride=(1, 2), out_dtype=F32),
        g.conv(x3, w3, None, padding="valid", out_dtype=BF16),
        g.conv(x2.transpose(2, 3), w2, None, padding=2),
    ]


@case("products: conv of patches", small=False)
def _patches(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    x, w = draw((3, 3, 64, 64), 24, F32, device=device), draw((96, 3, 16, 16), 25, BF16, device=device)
    return [kernels.gemm.conv(x, w, draw((96,), 26, F32, device=device), stride=16)]


@case("products: errors")
def _errors(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    g = kernels.gemm

    def ones(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
        return torch.ones(shape, dtype=dtype, device=device)

    return [
        error_of(call)
        for call in (
            lambda: g.linear(ones(2, 3), ones(4, 5)),
            lambda: g.linear(ones(), ones(4, 5)),
            lambda: g.linear(ones(2, 3, dtype=torch.float64), ones(4, 3)),
            lambda: g.linear(ones(2, 3), ones(4, 3), out_dtype=torch.int32),
            lambda: g.matmul(ones(2, 3), ones(4, 3)),
            lambda: g.matmul(ones(2, 3), ones(3, 4), k_start=-1),
            lambda: g.addmm(ones(2), ones(2, 3, 1), ones(3, 4)),
            lambda: g.addmm(ones(2), ones(2, 3), ones(2, 4)),
            lambda: g.baddbmm(ones(2), ones(2, 3, 1), ones(3, 1, 4)),
            lambda: g.conv(ones(1, 2, 3), ones(2, 2)),
            lambda: g.conv(ones(1, 2, 3), ones(2, 3, 1)),
            lambda: g.conv(ones(1, 2, 3), ones(2, 2, 4)),
        )
    ]
