"""Padding, pooling, resampling, the native norms and whole quotients: rows of the table against the
specification or, where only elements move, against PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from repro_kernels.spec import floats, norm, order, reduce, remainder
from torch.nn import functional as F

from repro_audit.engine.context import audited
from repro_audit.engine.dispatch import ProfileMode
from repro_audit.engine.optable import table

GENERATOR = torch.Generator().manual_seed(5)
X = torch.randn(2, 3, 9, 7, generator=GENERATOR)
CUBE = torch.randn(2, 5, 6, 7, generator=GENERATOR)
KINDS = {torch.float32: floats.BINARY32, torch.bfloat16: floats.BFLOAT16, torch.float16: floats.BINARY16}


def run(compute: Callable[[], Any]) -> Any:
    with audited(), ProfileMode(table(), {}):
        return compute()


def as_bits(tensor: torch.Tensor) -> list[int]:
    return [floats.bits(v, KINDS[tensor.dtype]) for v in tensor.double().flatten().tolist()]


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding_moves_elements(mode: str) -> None:
    for value, amounts in (
        (X[0], (2, 3)),
        (X, (1, 6, 3, 2)),
        (CUBE[None], (1, 2, 3, 0, 2, 4)),
        (X, (-1, 2, 0, -3)),
    ):
        found = run(lambda v=value, a=amounts: F.pad(v, a, mode=mode))
        assert as_bits(found) == as_bits(F.pad(value, amounts, mode=mode))
    with pytest.raises(RuntimeError, match="Padding size should be less than"):
        run(lambda: F.pad(X[0], (7, 0), mode="reflect"))


def _windows(value: torch.Tensor, spans: list[tuple[int, int, int]], ceil: bool) -> list[list[Any]]:
    """For each axis (size 1 stride) the windows, as lists of positions inside."""
    found = []
    for size, (kernel, stride, padding) in zip(value.shape[-len(spans) :], spans, strict=True):
        count = (size + 2 * padding - kernel + (stride - 1 if ceil else 0)) // stride + 1
        count -= ceil and (count - 1) * stride >= size + padding
        found.append([range(o * stride - padding, o * stride - padding + kernel) for o in range(count)])
    return found


def _averages(value: torch.Tensor, spans: list[tuple[int, int, int]], ceil: bool, whole: bool) -> list[float]:
    sizes, found = value.shape[-len(spans) :], []
    for plane in value.reshape(-1, *sizes):
        for window in product(*_windows(value, spans, ceil)):
            elements, count = [], 1
            for places in product(*window):
                inside = all(0 <= i < size for i, size in zip(places, sizes, strict=True))
                elements.append(float(plane[places]) if inside else 0.0)
            for positions, size, (_, _, padding) in zip(window, sizes, spans, strict=True):
                low, high = (-padding, size + padding) if whole else (0, size)
                count *= sum(low <= i < high for i in positions)
            found.append(
                floats.rn(floats.div(reduce.segment_sum(elements), floats.rn32(count)), KINDS[value.dtype])
            )
    return found


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize(("ceil", "whole"), list(product((False, True), repeat=2)))
def test_averages(kind: torch.dtype, ceil: bool, whole: bool) -> None:
    for spans in ([(2, 2, 0), (3, 1, 1)], [(3, 2, 1), (4, 3, 2)], [(9, 1, 0), (7, 1, 0)]):
        kernel, stride, padding = (list(v) for v in zip(*spans, strict=True))
        value = X.to(kind)
        found = run(lambda v=value, a=(kernel, stride, padding): F.avg_pool2d(v, *a, ceil, whole))
        assert found.shape == F.avg_pool2d(X, kernel, stride, padding, ceil, whole).shape
        wanted = _averages(value, spans, ceil, whole)
        assert as_bits(found) == [floats.bits(v, KINDS[kind]) for v in wanted]


def test_average_of_a_long_window_is_a_segment_sum() -> None:
    value = torch.randn(1, 1, 20, 20, generator=GENERATOR) * 1e3
    found = run(lambda: F.avg_pool2d(value, 20))
    assert as_bits(found) == [floats.bits(reduce.mean(value.double().flatten().tolist()))]
    assert as_bits(run(lambda: F.avg_pool3d(CUBE, (2, 3, 2)))) == [
        floats.bits(v) for v in _averages(CUBE, [(2, 2, 0), (3, 3, 0), (2, 2, 0)], False, True)
    ]
    halved = run(lambda: F.avg_pool2d(value, 2, divisor_override=3))
    summed = run(lambda: F.avg_pool2d(value, 2, divisor_override=1))
    assert as_bits(halved) == [floats.bits(floats.div(v, 3.0)) for v in summed.flatten().tolist()]


def test_maxima_and_their_places() -> None:
    """PyTorch's maxima and places where no two are equal; of equals, +0 and -0 among them, the first."""
    for arguments in (
        (2,),
        (3, 2, 1),
        (3, 1, 1, 2),
        (3, 2, 1, 1, True),
        ((2, 3), (1, 2), (0, 1), (3, 1), True),
    ):
        found, places = run(lambda a=arguments: F.max_pool2d_with_indices(X, *a))
        wanted, where = F.max_pool2d_with_indices(X, *arguments)
        assert as_bits(found) == as_bits(wanted) and places.tolist() == where.tolist()
    found, places = run(lambda: F.max_pool3d_with_indices(CUBE, 2, 1))
    wanted, where = F.max_pool3d_with_indices(CUBE, 2, 1)
    assert as_bits(found) == as_bits(wanted) and places.tolist() == where.tolist()
    ties = torch.tensor([[[-0.0, 0.0, float("nan"), 1.0], [0.0, -0.0, float("nan"), float("inf")]]])
    found, places = run(lambda: F.max_pool2d_with_indices(ties, 2))
    rows = [[-0.0, 0.0, 0.0, -0.0], [float("nan"), 1.0, float("nan"), float("inf")]]
    assert as_bits(found) == [floats.bits(row[order.argmax(row)]) for row in rows]
    assert places.flatten().tolist() == [0, 2]
    low = torch.full((1, 1, 3, 3), float("-inf"))
    assert run(lambda: F.max_pool2d_with_indices(low, 3, 2, 1))[1].flatten().tolist() == [0, 1, 3, 4]


def test_nearest_neighbours_move_elements() -> None:
    for how in ({"size": (18, 14)}, {"size": (5, 20)}, {"scale_factor": 2.0}, {"scale_factor": (1.7, 0.6)}):
        found = run(lambda h=how: F.interpolate(X, mode="nearest", **h))
        assert as_bits(found) == as_bits(F.interpolate(X, mode="nearest", **how))


def test_native_norms_give_their_statistics() -> None:
    value, weight = X.reshape(6, 63), torch.randn(63, generator=GENERATOR)
    for kind, fmt in KINDS.items():
        x = value.to(kind)
        found, mean, factor = run(lambda x=x: torch.native_layer_norm(x, [63], weight, None, 1e-5))
        rows = x.double().tolist()
        assert as_bits(mean) == [floats.bits(reduce.mean(r, fmt), fmt) for r in rows]
        assert mean.shape == factor.shape == (6, 1)
        wanted = [v for r in rows for v in norm.layer_norm(r, weight.tolist(), None, 1e-5, fmt)]
        assert as_bits(found) == [floats.bits(v, fmt) for v in wanted]
    found, mean, factor = run(lambda: torch.native_group_norm(X, None, None, 2, 3, 63, 3, 1e-5))
    assert as_bits(found) == as_bits(run(lambda: F.group_norm(X, 3)))
    assert mean.shape == factor.shape == (2, 3)
    alone = run(lambda: torch.native_layer_norm(X.reshape(6, 63), [63], None, None, 1e-5))
    assert as_bits(mean) == as_bits(alone[1]) and as_bits(factor) == as_bits(alone[2])


def test_convolution_is_that_of_its_axes() -> None:
    weight, bias = torch.randn(4, 3, 3, 2, generator=GENERATOR), torch.randn(4, generator=GENERATOR)
    arguments = ([2, 1], [1, 0], [1, 2], False, [0, 0], 1)
    found = run(lambda: torch.ops.aten.convolution(X, weight, bias, *arguments))
    assert as_bits(found) == as_bits(run(lambda: F.conv2d(X, weight, bias, [2, 1], [1, 0], [1, 2])))


WHOLE: dict[str, tuple[Callable[..., torch.Tensor], Callable[[float, float], float]]] = {
    "fmod": (torch.fmod, remainder.fmod),
    "remainder": (torch.remainder, remainder.remainder),
    "floor": (lambda a, b: torch.div(a, b, rounding_mode="floor"), remainder.div_floor),
    "trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), remainder.div_trunc),
    "floor_divide": (torch.floor_divide, remainder.div_floor),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_quotients(name: str) -> None:
    ours, spec = WHOLE[name]
    x = torch.cat([X.flatten() * 1e5, torch.tensor([3.4e38, -0.0, 1e-45, float("inf"), -7.5])])
    y = torch.cat([X.flatten().flip(0), torch.tensor([1e-45, -3.0, 1e38, 2.0, float("-inf")])])
    for kind, fmt in KINDS.items():
        a, b = x.to(kind), y.to(kind)
        pairs = zip(a.double().tolist(), b.double().tolist(), strict=True)
        assert as_bits(run(lambda a=a, b=b: ours(a, b))) == [
            floats.bits(floats.rn(spec(*p), fmt), fmt) for p in pairs
        ]
        wanted = [floats.rn(spec(v, floats.rn32(0.3)), fmt) for v in a.double().tolist()]
        assert as_bits(run(lambda a=a: ours(a, 0.3))) == [floats.bits(v, fmt) for v in wanted]
    whole = torch.tensor([7, -7, 0])
    assert run(lambda: ours(whole, 2)).tolist() == ours(whole, 2).tolist()
