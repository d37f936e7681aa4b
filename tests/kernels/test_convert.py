"""Casts to integers and float ranges against the specification."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import FORMATS, assert_bits, dtypes, seeds, tensor, values
from repro_kernels.cpu import reduce as cpu
from repro_kernels.errors import UnsupportedError
from repro_kernels.spec import convert as spec

INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
EDGES = [
    2.0**31,
    -(2.0**31),
    2.0**63,
    -(2.0**63),
    9.223371487098962e18,
    2147483520.0,
    255.5,
    256.0,
    -0.5,
    1.9999999,
]


@settings(max_examples=40, deadline=None)
@given(dtypes, st.sampled_from(INTEGERS), st.sampled_from(["wide", "any bits"]), seeds)
def test_casts(dtype: torch.dtype, target: torch.dtype, flavour: str, seed: int) -> None:
    edges = torch.tensor(EDGES).to(dtype)
    x = torch.cat([tensor((60,), seed=seed, flavour=flavour, dtype=dtype, specials=0.2), edges])
    width, signed = torch.iinfo(target).bits, torch.iinfo(target).min < 0
    result = cpu.to_integer(x, target)
    assert result.dtype == target
    assert result.tolist() == [spec.to_integer(v, width, signed) for v in values(x)]


@settings(max_examples=40, deadline=None)
@given(
    st.floats(-1e3, 1e3) | st.integers(-300, 300).map(float),
    st.floats(0.01, 10) | st.integers(1, 5).map(float),
    st.integers(0, 700),
    dtypes,
    st.booleans(),
)
def test_arange(start: float, step: float, count: int, dtype: torch.dtype, backwards: bool) -> None:
    step = -step if backwards else step
    end = start + count * step
    result = cpu.arange(start, end, step, dtype=dtype)
    assert result.shape == torch.arange(start, end, step).shape
    assert_bits(result, spec.arange(start, step, result.numel(), FORMATS[dtype]))


@settings(max_examples=40, deadline=None)
@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.integers(0, 200), dtypes)
def test_linspace(start: float, end: float, count: int, dtype: torch.dtype) -> None:
    assert_bits(
        cpu.linspace(start, end, count, dtype=dtype), spec.linspace(start, end, count, FORMATS[dtype])
    )


def test_large_whole_numbers_round_once() -> None:
    for dtype in FORMATS:
        assert_bits(
            cpu.arange(2**24 - 3, 2**24 + 9, dtype=dtype), spec.arange(2**24 - 3, 1, 12, FORMATS[dtype])
        )


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError):
        cpu.to_integer(torch.ones(1), torch.bool)
    with pytest.raises(UnsupportedError):
        cpu.to_integer(torch.ones(1).double(), torch.int32)
    for start, end, step in ((0, 1, 0), (0, float("inf"), 1), (0, 1, -1)):
        with pytest.raises(ValueError, match="arange"):
            cpu.arange(start, end, step, dtype=torch.float32)
    with pytest.raises(ValueError, match="linspace"):
        cpu.linspace(0, 1, -1, dtype=torch.float32)
    with pytest.raises(UnsupportedError):
        cpu.arange(0, 1, 1, dtype=torch.float64)
