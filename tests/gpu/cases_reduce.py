"""Sums and what is made of them, running sums, additions through an index."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.gpu.cases import Kernels, case
from tests.gpu.hostile import FLOATS, error, strided, values

Results = Sequence[torch.Tensor]
_NAMES = ("sum", "mean", "var", "std")


def _all(kernels: Kernels, x: torch.Tensor, dim: object) -> list[torch.Tensor]:
    return [getattr(kernels.reduce, name)(x, dim) for name in _NAMES]


@case("reduce: small shapes", small=True)
def small_shapes(kernels: Kernels, device: torch.device) -> Results:
    few = (((), None), ((0, 3), 0), ((3, 0), 1))
    found = [result for shape, dim in few for result in _all(kernels, values(shape, 1).to(device), dim)]
    found += [kernels.reduce.std(values((2, 129), 1).to(device), 1)]
    return [*found, kernels.reduce.sum(values((129, 2), 1).to(device), 0)]


@case("reduce: small halves", small=True)
def small_halves(kernels: Kernels, device: torch.device) -> Results:
    x = [values((2, 144), seed, dtype, special=0.01).to(device) for seed, dtype in enumerate(FLOATS)]
    total = [kernels.reduce.sum(t, 1) for t in x]
    return [*total, kernels.reduce.mean(x[1], 1, out_dtype=torch.float32), kernels.reduce.var(x[2], (0, 1))]


@case("reduce: small cumsum", small=True)
def small_cumsum(kernels: Kernels, device: torch.device) -> Results:
    x = values((2, 19, 3), 2, torch.bfloat16, special=0.05).to(device)
    return [
        kernels.reduce.cumsum(x, 1),
        kernels.reduce.cumsum(x, 2, out_dtype=torch.float32),
        kernels.reduce.cumsum(x[:, :0], 1),
        kernels.reduce.cumsum(x[0, 0, 0], 0),
    ]


@case("reduce: small index_add", small=True)
def small_index_add(kernels: Kernels, device: torch.device) -> Results:
    return _index_add(kernels, device, torch.float16, (3, 5, 9, 4))


@case("reduce: small scatter_add along the first axis", small=True)
def small_scatter_add(kernels: Kernels, device: torch.device) -> Results:
    x, source = values((9, 4), 1).to(device), values((50, 4), 2).to(device)
    index = values((50, 4), 3, kind="bits").view(torch.int32).to(torch.int64).to(device) % 9
    return [
        kernels.index.scatter_add(x, 0, index, source),
        kernels.index.scatter_add(x, 0, index[:, :1], source),
    ]


@case("reduce: errors", small=True)
def errors(kernels: Kernels, device: torch.device) -> Results:
    x = values((3, 4), 0).to(device)
    far, near = torch.tensor([0, 7]).to(device), torch.tensor([0, 1]).to(device)
    calls = (
        lambda: kernels.reduce.sum(x.double(), 1),
        lambda: kernels.reduce.sum(x, 2),
        lambda: kernels.reduce.sum(x, (1, 1)),
        lambda: kernels.reduce.cumsum(x.int(), 1),
        lambda: kernels.reduce.index_add(x, 0, far, x[:2]),
        lambda: kernels.reduce.index_add(x, 0, near, x),
        lambda: kernels.reduce.index_add(x, 0, near, x[:2].half()),
        lambda: kernels.reduce.scatter_add(x, 0, near, x),
    )
    return [error(call).to(device) for call in calls]


def _reductions(dtype: torch.dtype, kind: str) -> None:
    name = str(dtype).removeprefix("torch.")

    @case(f"reduce: {kind} {name}", small=False)
    def rows_and_columns(kernels: Kernels, device: torch.device) -> Results:
        found = []
        for n in (1, 2, 127, 128, 129, 255, 256, 257, 576, 1024, 1153, 4096):
            x = values((5, n, 3), n, dtype, kind=kind)
            found += _all(kernels, x.to(device), 1)
            found += _all(kernels, x.movedim(1, 2).contiguous().to(device), 2)
            found += _all(kernels, strided(x, device), (0, 2))
        return found


for _dtype in FLOATS:
    for _kind in ("normal", "wide", "subnormal", "cancelling"):
        _reductions(_dtype, _kind)


@case("reduce: non-finite", small=False)
def non_finite(kernels: Kernels, device: torch.device) -> Results:
    return [
        result
        for dtype in FLOATS
        for special in (0.001, 0.01, 0.5)
        for result in _all(kernels, values((64, 700), 9, dtype, kind="bits", special=special).to(device), 1)
    ]


@case("reduce: overflow", small=False)
def overflow(kernels: Kernels, device: torch.device) -> Results:
    x = torch.full((2, 300), 3.0e38)
    x[1, 150:] = -3.0e38
    halves = [
        torch.full((300,), 6.0e4, dtype=torch.float16),
        torch.full((300,), 3.0e38, dtype=torch.bfloat16),
    ]
    return [kernels.reduce.sum(x.to(device), 1), *(kernels.reduce.sum(t.to(device)) for t in halves)]


@case("reduce: long rows", small=False)
def long_rows(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for n in (131072, 151936, 262144, 262145):
        x = values((2, n), n)
        found += _all(kernels, x.to(device), 1)
        found += [kernels.reduce.sum(x.to(device)), kernels.reduce.cumsum(x.to(device), 1)]
    return found


@case("reduce: many rows", small=False)
def many_rows(kernels: Kernels, device: torch.device) -> Results:
    x = values((40000, 130), 3, torch.bfloat16).to(device)
    return [*_all(kernels, x, 1), *_all(kernels, x, 0), kernels.reduce.cumsum(x[:, :9], 0)]


@case("reduce: offsets and steps", small=False)
def offsets(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for dtype in FLOATS:
        room = values((4 * 512 + 64,), 5, dtype).to(device)
        for offset in (0, 1, 2, 3, 8, 16):
            x = room[offset : offset + 4 * 512].view(4, 512)
            found += [kernels.reduce.sum(x, 1), kernels.reduce.var(x, 1), kernels.reduce.mean(x[::2, ::3], 0)]
            found.append(kernels.reduce.sum(x[:, None].expand(4, 3, 512), (0, 2)))
    return found


@case("reduce: corrections", small=False)
def corrections(kernels: Kernels, device: torch.device) -> Results:
    x = values((3, 5), 1).to(device)
    amounts = (0, 1, 0.5, 5, 7, 4.9999999)
    return [kernels.reduce.var(x, 1, correction=amount) for amount in amounts] + [
        kernels.reduce.std(x[:, :n], 1, keepdim=True) for n in (0, 1, 2)
    ]


@case("reduce: cumsum", small=False)
def running(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for dtype in FLOATS:
        for shape in ((3, 15, 4), (2, 16, 1), (1, 17, 200), (70, 33, 2), (1, 3001, 1)):
            x = values(shape, 4, dtype, kind="cancelling", special=0.001)
            found += [kernels.reduce.cumsum(x.to(device), d) for d in range(3)]
            found.append(kernels.reduce.cumsum(strided(x, device), -1, out_dtype=torch.float32))
    return found


def _index_add(
    kernels: Kernels, device: torch.device, dtype: torch.dtype, sizes: tuple[int, int, int, int]
) -> list[torch.Tensor]:
    outer, m, n, inner = sizes
    x, source = values((outer, m, inner), 1, dtype), values((outer, n, inner), 2, dtype, kind="cancelling")
    index = torch.from_numpy(values((n,), 3, kind="bits").view(torch.int32).numpy() % m).to(torch.int64)
    each = values((outer, n, inner), 4, kind="bits").view(torch.int32).to(torch.int64) % m
    x[0, 0, 0] = -0.0
    xs, sources, places = x.to(device), source.to(device), index.to(device)
    return [
        kernels.index.index_add(xs, 1, places, sources),
        kernels.index.index_add(xs, 1, places, sources, alpha=0.3),
        kernels.index.index_add(xs, 1, places[:0], sources[:, :0]),
        kernels.index.index_add(strided(x, device), 1, places.int(), strided(source, device)),
        kernels.index.scatter_add(xs, 1, each.to(device), sources),
        kernels.index.scatter_add(xs, 1, each[: outer - 1, : n // 2, :1].to(device), sources),
        kernels.index.index_add(xs[0, 0, 0], 0, places[:1] * 0, sources[0, 0, 0]),
    ]


@case("reduce: index_add", small=False)
def additions(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for dtype in FLOATS:
        for sizes in ((2, 7, 300, 33), (1, 64, 513, 576), (1, 3, 5000, 1), (1, 2000, 100, 1), (9, 1, 64, 2)):
            found += _index_add(kernels, device, dtype, sizes)
    return found
