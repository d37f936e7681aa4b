"""Maxima, sorting and selection against the specification, signs of zero and NaN included."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import assert_bits, canonical, dtypes, restrided, rows, seeds, tensor, values
from repro_kernels.cpu import reduce as cpu
from repro_kernels.spec import order as spec

shapes = st.lists(st.sampled_from([1, 2, 3, 9, 40]), min_size=1, max_size=3).filter(
    lambda s: torch.Size(s).numel() < 900
)
kinds = st.sampled_from(["integers", "any bits", "normal"])


@settings(max_examples=80, deadline=None)
@given(
    shape=shapes, data=st.data(), dtype=dtypes, kind=kinds, seed=seeds, specials=st.sampled_from([0.0, 0.3])
)
def test_along_an_axis(
    *, shape: list[int], data: st.DataObject, dtype: torch.dtype, kind: str, seed: int, specials: float
) -> None:
    x = tensor(shape, seed=seed, flavour=kind, dtype=dtype, specials=specials)
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    keepdim, descending = data.draw(st.booleans()), data.draw(st.booleans())
    axis, seen = dim % len(shape), restrided(x, seed)
    each = rows(x, [axis])
    for ours, theirs, reference in ((cpu.max, torch.max, spec.argmax), (cpu.min, torch.min, spec.argmin)):
        result = ours(seen, dim, keepdim)
        assert result.values.shape == theirs(x, dim, keepdim).values.shape
        assert result.indices.flatten().tolist() == [reference(r) for r in each]
        assert_bits(canonical(result.values), [r[reference(r)] for r in each])
    assert cpu.argmax(seen, dim).flatten().tolist() == [spec.argmax(r) for r in each]
    assert cpu.argmin(seen, dim).flatten().tolist() == [spec.argmin(r) for r in each]
    ordered = cpu.sort(seen, dim, descending)
    assert ordered.indices.movedim(dim, -1).flatten().tolist() == [
        i for r in each for i in spec.argsort(r, descending)
    ]
    assert_bits(
        canonical(ordered.values.movedim(dim, -1)), [r[i] for r in each for i in spec.argsort(r, descending)]
    )
    k = data.draw(st.integers(0, shape[axis]))
    top = cpu.topk(seen, k, dim, descending)
    assert top.indices.movedim(dim, -1).flatten().tolist() == [
        i for r in each for i in spec.topk(r, k, descending)
    ]


@settings(max_examples=60, deadline=None)
@given(shapes, dtypes, kinds, seeds)
def test_element_by_element(shape: list[int], dtype: torch.dtype, kind: str, seed: int) -> None:
    x = tensor(shape, seed=seed, flavour=kind, dtype=dtype, specials=0.3)
    y = tensor(shape, seed=seed + 1, flavour=kind, dtype=dtype, specials=0.3)
    pairs = list(zip(values(x), values(y), strict=True))
    assert_bits(cpu.maximum(restrided(x, seed), y), [spec.maximum(a, b) for a, b in pairs])
    assert_bits(cpu.minimum(x, restrided(y, seed)), [spec.minimum(a, b) for a, b in pairs])
    assert_bits(cpu.relu(x), [spec.relu(a) for a in values(x)])
    assert_bits(cpu.clamp(x, -1.0, 2.0), [spec.clamp(a, -1.0, 2.0) for a in values(x)])
    assert_bits(cpu.clamp(x, high=0.0), [spec.clamp(a, high=0.0) for a in values(x)])
    assert_bits(canonical(cpu.amax(x)), [spec.amax(values(x))])
    assert_bits(canonical(cpu.amin(x)), [spec.amin(values(x))])


def test_several_axes() -> None:
    x = tensor((3, 4, 5), seed=1, flavour="integers", specials=0.2)
    for dims in ([0, 2], [-1, 0], [0, 1, 2], [1]):
        result = cpu.amax(x, dims, True)
        assert result.shape == torch.amax(x, dims, True).shape
        assert_bits(result, [spec.amax(r) for r in rows(x, sorted(d % 3 for d in dims))])
    assert cpu.argmax(x).shape == () and int(cpu.argmax(x)) == spec.argmax(values(x))
    assert cpu.argmax(x, keepdim=True).shape == (1, 1, 1)


def test_broadcasting_and_promotion() -> None:
    x, y = tensor((3, 1), seed=1, dtype=torch.bfloat16), tensor((4,), seed=2)
    assert_bits(cpu.maximum(x, y), [spec.maximum(a, b) for a in values(x) for b in values(y)])


def test_integers_and_scalars() -> None:
    x = torch.tensor([3, 1, 3, 2])
    assert cpu.topk(x, 3).indices.tolist() == [0, 2, 3]
    assert cpu.sort(x, descending=True).indices.tolist() == [0, 2, 3, 1]
    assert int(cpu.argmax(x)) == 0 and int(cpu.argmin(x)) == 1
    assert cpu.max(torch.tensor(2.0), 0).values.shape == () and int(cpu.argsort(torch.tensor(2.0))) == 0


def test_a_long_row() -> None:
    x = tensor((2, 50_000), seed=1, flavour="integers")
    each = rows(x, [1])
    assert cpu.argmax(x, 1).tolist() == [spec.argmax(r) for r in each]
    assert cpu.topk(x, 9, 1).indices.flatten().tolist() == [i for r in each for i in spec.topk(r, 9)]


def test_what_is_refused() -> None:
    with pytest.raises(IndexError, match="no elements"):
        cpu.argmax(torch.empty(2, 0), 1)
    with pytest.raises(IndexError, match="no elements"):
        cpu.amax(torch.empty(0))
    with pytest.raises(IndexError, match="topk"):
        cpu.topk(torch.ones(3), 4)
    assert cpu.amax(torch.empty(0, 3), 1).shape == (0,)


def test_the_extreme_of_a_scalar() -> None:
    x = torch.tensor(-0.0)
    for found in (cpu.amax(x), cpu.amin(x, None, True), cpu.amax(x, 0), cpu.max(x, 0).values):
        assert_bits(found, [-0.0])
        assert found.shape == ()
