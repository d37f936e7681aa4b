"""Tensor digests, and the search for NaN and Inf, on values drawn to hurt."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from repro_audit.models.digests import first_bad, same_bits, tensor_digest
from repro_audit.trace.digest import tensor_digest as definition

FLOATS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int8, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 5)])
def test_equal_to_the_definition(dtype, shape):
    tensor = (torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape) - 2).to(dtype)
    array = (tensor.view(torch.uint16) if dtype == torch.bfloat16 else tensor).numpy()
    found = tensor_digest("t", tensor)
    assert found.digest == definition(array, found.dtype) and found.shape == shape


def test_digest_is_of_the_logical_order_and_typed():
    base = torch.randn(4, 6)
    assert tensor_digest("t", base.t()) == tensor_digest("t", base.t().contiguous())
    assert tensor_digest("t", base.t()).digest != tensor_digest("t", base).digest
    zeros = {
        tensor_digest("t", torch.zeros(shape, dtype=dtype)).digest
        for shape, dtype in [
            ((4,), torch.float32),
            ((2, 2), torch.float32),
            ((4,), torch.int32),
            ((8,), torch.float16),
        ]
    }
    assert len(zeros) == 4


@given(st.data())
def test_first_bad_against_the_obvious(data):
    dtype = data.draw(st.sampled_from(sorted(FLOATS, key=str)))
    width = 32 if dtype == torch.float32 else 16
    patterns = st.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1)
    special = st.sampled_from([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, 65504.0])
    drawn = data.draw(st.lists(st.one_of(patterns, special), max_size=12))
    tensor = torch.zeros(len(drawn), dtype=dtype)
    for index, item in enumerate(drawn):
        if isinstance(item, int):
            tensor.view(FLOATS[dtype])[index] = item
        else:
            tensor[index] = item
    values = tensor.double().numpy()
    finite, nan = np.flatnonzero(~np.isfinite(values)), np.flatnonzero(np.isnan(values))
    assert first_bad(tensor) == (int(finite[0]) if finite.size else None)
    assert first_bad(tensor, nan_only=True) == (int(nan[0]) if nan.size else None)


@pytest.mark.parametrize("dtype", sorted(FLOATS, key=str))
def test_first_bad_beyond_a_chunk_and_in_a_transpose(dtype):
    tensor = torch.zeros(3, 70_000, dtype=dtype)
    tensor[2, 69_999] = float("nan")
    assert first_bad(tensor) == 209_999
    assert first_bad(tensor.t()) == 209_999
    tensor[1, 5] = -float("inf")
    assert first_bad(tensor) == 70_005 and first_bad(tensor, nan_only=True) == 209_999


def test_same_bits():
    a = torch.tensor([0.0, 1.0, float("nan")])
    assert same_bits(a, a.clone())
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(a, a.reshape(3, 1)) and not same_bits(a, a.double())
    big = torch.zeros(300_001)
    other = big.clone()
    other[300_000] = -0.0
    assert same_bits(big, big.clone()) and not same_bits(big, other)
