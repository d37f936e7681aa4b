"""Additions through an index, bit for bit against the specification."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import (
    FORMATS,
    assert_bits,
    canonical,
    dtypes,
    flavours,
    raw_bits,
    restrided,
    rows,
    seeds,
    tensor,
)
from repro_kernels.cpu import reduce as cpu
from repro_kernels.errors import UnsupportedError
from repro_kernels.spec import index as spec

sizes = st.sampled_from([1, 2, 3, 70])


@settings(max_examples=60, deadline=None)
@given(
    a=sizes,
    m=st.integers(1, 5),
    n=st.integers(0, 40),
    c=sizes,
    dim=st.integers(0, 2),
    dtype=dtypes,
    flavour=flavours,
    seed=seeds,
    alpha=st.sampled_from([1.0, 0.3]),
)
def test_index_add(
    *, a: int, m: int, n: int, c: int, dim: int, dtype: torch.dtype, flavour: str, seed: int, alpha: float
) -> None:
    x = tensor((a, m, c), seed=seed, flavour=flavour, dtype=dtype, specials=0.02).movedim(1, dim)
    source = tensor((a, n, c), seed=seed + 1, flavour=flavour, dtype=dtype, specials=0.02).movedim(1, dim)
    index = torch.randint(0, m, (n,), generator=torch.Generator().manual_seed(seed))
    before = x.clone()
    result = cpu.index_add(restrided(x, seed), dim, index, restrided(source, seed + 1), alpha=alpha)
    pairs = zip(rows(x, [dim]), rows(source, [dim]), strict=True)
    expected = [y for own, s in pairs for y in spec.index_add(own, index.tolist(), s, alpha, FORMATS[dtype])]
    assert_bits(canonical(result.movedim(dim, -1)), expected)
    assert raw_bits(x) == raw_bits(before)


@settings(max_examples=60, deadline=None)
@given(
    a=sizes,
    m=st.integers(1, 5),
    n=st.integers(0, 40),
    c=sizes,
    dim=st.integers(0, 2),
    dtype=dtypes,
    flavour=flavours,
    seed=seeds,
)
def test_scatter_add(
    *, a: int, m: int, n: int, c: int, dim: int, dtype: torch.dtype, flavour: str, seed: int
) -> None:
    x = tensor((a, m, c), seed=seed, flavour=flavour, dtype=dtype).movedim(1, dim)
    source = tensor((a, n, c), seed=seed + 1, flavour=flavour, dtype=dtype).movedim(1, dim)
    index = torch.randint(0, m, source.shape, generator=torch.Generator().manual_seed(seed))
    result = cpu.scatter_add(restrided(x, seed), dim, index, restrided(source, seed + 1))
    each = zip(rows(x, [dim]), rows(index.double(), [dim]), rows(source, [dim]), strict=True)
    expected = [
        y for own, i, s in each for y in spec.index_add(own, [int(v) for v in i], s, 1.0, FORMATS[dtype])
    ]
    assert_bits(canonical(result.movedim(dim, -1)), expected)


def test_scatter_add_reads_only_what_the_index_covers() -> None:
    x, source = torch.ones(3, 4), torch.full((5, 6), 2.0)
    index = torch.tensor([[0, 0, 2], [0, 1, 2]])
    expected = torch.ones(3, 4).scatter_add(0, index, source)  # small integers: any order gives them
    assert_bits(cpu.scatter_add(x, 0, index, source), expected.flatten().tolist())


def test_duplicates_round_one_by_one() -> None:
    x, ones = torch.tensor([256.0], dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)
    assert_bits(cpu.index_add(x, 0, torch.tensor([0, 0]), ones), [256.0])


def test_scalars_and_emptiness() -> None:
    assert_bits(cpu.index_add(torch.tensor(1.0), 0, torch.tensor(0), torch.tensor(2.0)), [3.0])
    assert_bits(cpu.scatter_add(torch.tensor(1.0), 0, torch.tensor(0), torch.tensor(2.0)), [3.0])
    empty = torch.empty(0, dtype=torch.int64)
    assert_bits(cpu.index_add(torch.ones(2), 0, empty, torch.empty(0)), [1.0, 1.0])


def test_what_is_refused() -> None:
    x = torch.ones(2, 2)
    for bad in (2, -1):
        with pytest.raises(IndexError, match="out of range"):
            cpu.index_add(x, 0, torch.tensor([bad]), torch.ones(1, 2))
        with pytest.raises(IndexError, match="out of range"):
            cpu.scatter_add(x, 0, torch.full((1, 2), bad), torch.ones(1, 2))
    with pytest.raises(ValueError, match="source has shape"):
        cpu.index_add(x, 0, torch.tensor([0]), torch.ones(2, 2))
    with pytest.raises(ValueError, match="does not fit"):
        cpu.scatter_add(x, 0, torch.zeros(1, 3, dtype=torch.int64), torch.ones(1, 3))
    with pytest.raises(UnsupportedError, match="bfloat16 into"):
        cpu.index_add(x, 0, torch.tensor([0]), torch.ones(1, 2, dtype=torch.bfloat16))
