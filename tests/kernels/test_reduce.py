"""Sums, means, variances and cumulative sums, bit for bit against the specification."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import (
    DTYPES,
    FORMATS,
    assert_bits,
    dtypes,
    flavours,
    lengths,
    restrided,
    rows,
    seeds,
    tensor,
)
from repro_kernels.cpu import reduce as cpu
from repro_kernels.errors import UnsupportedError
from repro_kernels.spec import reduce as spec

shapes = st.lists(st.sampled_from([1, 2, 3, 5, 17, 130]), min_size=1, max_size=4).filter(
    lambda s: torch.Size(s).numel() <= 3000
)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 9),
    n=lengths,
    dtype=dtypes,
    flavour=flavours,
    seed=seeds,
    out=dtypes,
    specials=st.sampled_from([0.0, 0.02]),
)
def test_rows(
    *, count: int, n: int, dtype: torch.dtype, flavour: str, seed: int, out: torch.dtype, specials: float
) -> None:
    x = tensor((count, n), seed=seed, flavour=flavour, dtype=dtype, specials=specials)
    fmt = FORMATS[out]
    each = rows(x, [1])
    seen = restrided(x, seed)
    assert_bits(cpu.sum(seen, -1, out_dtype=out), [spec.sum(r, fmt) for r in each])
    assert_bits(cpu.mean(seen, -1, out_dtype=out), [spec.mean(r, fmt) for r in each])
    assert_bits(cpu.var(seen, -1, out_dtype=out), [spec.var(r, 1, fmt) for r in each])
    assert_bits(cpu.std(seen, 1, correction=0, out_dtype=out), [spec.std(r, 0, fmt) for r in each])
    assert_bits(cpu.cumsum(seen, 1, out_dtype=out), [c for r in each for c in spec.cumsum(r, fmt)])


@settings(max_examples=60, deadline=None)
@given(shapes, st.data(), dtypes, flavours, seeds)
@pytest.mark.filterwarnings("ignore:var\\(\\)")
def test_any_axes(shape: list[int], data: st.DataObject, dtype: torch.dtype, flavour: str, seed: int) -> None:
    x = tensor(shape, seed=seed, flavour=flavour, dtype=dtype, specials=0.01)
    dims = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    keepdim = data.draw(st.booleans())
    fmt, each, seen = FORMATS[dtype], rows(x, dims), restrided(x, seed)
    given_dims = [d - len(shape) if seed % 2 else d for d in reversed(dims)]
    for ours, theirs, reference in (
        (cpu.sum, torch.sum, spec.sum),
        (cpu.mean, torch.mean, spec.mean),
        (cpu.var, torch.var, lambda r, out: spec.var(r, 1, out)),
    ):
        result = ours(seen, given_dims, keepdim)
        assert result.shape == theirs(x, dims, keepdim=keepdim).shape
        assert_bits(result, [reference(r, fmt) for r in each])
    if len(dims) == 1:
        moved = cpu.cumsum(seen, dims[0]).movedim(dims[0], -1)
        assert_bits(moved, [c for r in each for c in spec.cumsum(r, fmt)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(33_000,), (3, 129, 200), (70, 600)])
def test_large_enough_for_threads(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = tensor(shape, seed=5, flavour="wide", dtype=dtype)
    for dim in range(len(shape)):
        each = rows(x, [dim])
        picked = [0, len(each) // 2, len(each) - 1]
        for ours, reference in ((cpu.sum, spec.sum), (cpu.var, spec.var)):
            result = ours(x, dim, out_dtype=torch.float32).reshape(-1)[picked]
            assert_bits(result, [reference(each[i]) for i in picked])


@pytest.mark.parametrize("correction", [0, 1, 2, 0.5, 7, 100])
def test_corrections(correction: float) -> None:
    x = tensor((7,), seed=1)
    assert_bits(cpu.var(x, correction=correction), [spec.var(rows(x, [0])[0], correction)])
    assert_bits(cpu.var(x[:1], correction=correction), [spec.var(rows(x[:1], [0])[0], correction)])


def test_all_axes_and_no_axes() -> None:
    x = tensor((3, 50, 4), seed=2)
    everything = spec.sum(rows(x, [0, 1, 2])[0])
    for result in (cpu.sum(x), cpu.sum(x, []), cpu.sum(x, [0, 1, 2])):
        assert result.shape == ()
        assert_bits(result, [everything])
    assert_bits(cpu.mean(torch.tensor(-0.0)), [0.0])
    assert_bits(cpu.sum(torch.empty(0, 3), 0), [0.0] * 3)
    assert cpu.sum(torch.empty(0, 3), 1).shape == (0,)
    assert cpu.cumsum(torch.empty(2, 0), 1).shape == (2, 0)
    assert_bits(cpu.cumsum(torch.tensor(-0.0), 0), [0.0])


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"torch\.int64"):
        cpu.sum(torch.ones(2, dtype=torch.int64))
    with pytest.raises(UnsupportedError, match=r"torch\.float64"):
        cpu.mean(torch.ones(2), out_dtype=torch.float64)
    with pytest.raises(IndexError):
        cpu.sum(torch.ones(2), 1)
    with pytest.raises(IndexError, match="twice"):
        cpu.sum(torch.ones(2, 2), [0, -2])
