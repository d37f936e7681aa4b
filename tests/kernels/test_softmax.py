"""Softmax and log-softmax, bit for bit against the specification."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import FORMATS, assert_bits, dtypes, flavours, restrided, rows, seeds, tensor, values
from repro_kernels.cpu import reduce as cpu
from repro_kernels.errors import UnsupportedError
from repro_kernels.spec import attention as spec


@settings(max_examples=50, deadline=None)
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 7, 130]), min_size=1, max_size=3).filter(
        lambda s: torch.Size(s).numel() < 500
    ),
    data=st.data(),
    dtype=dtypes,
    out=dtypes,
    flavour=flavours,
    seed=seeds,
    specials=st.sampled_from([0.0, 0.03]),
)
def test_softmax(
    *,
    shape: list[int],
    data: st.DataObject,
    dtype: torch.dtype,
    out: torch.dtype,
    flavour: str,
    seed: int,
    specials: float,
) -> None:
    x = tensor(shape, seed=seed, flavour=flavour, dtype=dtype, specials=specials)
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    axis, fmt, seen = dim % len(shape), FORMATS[out], restrided(x, seed)
    each = rows(x, [axis])
    result = cpu.softmax(seen, dim, out_dtype=out)
    assert result.shape == x.shape
    assert_bits(result.movedim(dim, -1), [y for r in each for y in spec.softmax(r, None, fmt)])
    result = cpu.log_softmax(seen, dim, out_dtype=out)
    assert_bits(result.movedim(dim, -1), [y for r in each for y in spec.log_softmax(r, fmt)])
    mask = tensor(shape, seed=seed + 1) > 0
    masks = rows(mask.float(), [axis])
    expected = [y for r, m in zip(each, masks, strict=True) for y in spec.softmax(r, [a > 0 for a in m], fmt)]
    assert_bits(cpu.softmax(seen, dim, out_dtype=out, mask=mask).movedim(dim, -1), expected)


@pytest.mark.parametrize("n", [1, 128, 129, 1000, 4000])
def test_longer_rows(n: int) -> None:
    x = tensor((2, n), seed=n) * 4
    assert_bits(cpu.softmax(x, -1), [y for r in rows(x, [1]) for y in spec.softmax(r)])


def test_the_mask_broadcasts_and_hides_what_is_not_finite() -> None:
    x = tensor((2, 3, 5), seed=1)
    x[..., 4] = float("nan")
    x[..., 3] = float("inf")
    mask = torch.tensor([True, True, False, False, False])
    expected = [y for r in rows(x, [2]) for y in spec.softmax(r, mask.tolist())]
    assert_bits(cpu.softmax(x, -1, mask=mask), expected)
    assert_bits(cpu.softmax(x, -1, mask=torch.tensor(False)), [0.0] * 30)


def test_rows_of_nothing() -> None:
    x = torch.full((2, 4), -torch.inf)
    assert_bits(cpu.softmax(x, 1), [0.0] * 8)
    assert_bits(cpu.log_softmax(x, 1), [-torch.inf] * 8)
    assert cpu.softmax(torch.empty(2, 0), 1).shape == (2, 0)
    assert cpu.softmax(torch.empty(0, 2), 0).shape == (0, 2)
    assert_bits(cpu.softmax(torch.tensor(3.0), 0), [1.0])


def test_a_lowest_score_that_is_not_masked_takes_part() -> None:
    x = torch.tensor([[torch.finfo(torch.float32).min, 0.0], [torch.finfo(torch.float32).min] * 2])
    assert_bits(cpu.softmax(x, 1), [0.0, 1.0, 0.5, 0.5])


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError):
        cpu.softmax(torch.ones(2).double(), 0)
    with pytest.raises(UnsupportedError, match="mask"):
        cpu.softmax(torch.ones(2), 0, mask=torch.ones(2, dtype=torch.int64))
    with pytest.raises(IndexError):
        cpu.softmax(torch.ones(2), 1)


def test_values_sum_to_about_one() -> None:
    assert abs(sum(values(cpu.softmax(tensor((1000,), seed=2), 0))) - 1) < 1e-5
