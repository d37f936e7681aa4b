"""pow: correctly rounded for every pair, against MPFR and the spec; exact and midpoint cases above all."""

from __future__ import annotations

import mpfr
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_support import assert_bits
from repro_kernels.cpu import elementary
from repro_kernels.errors import UnsupportedError
from repro_kernels.spec import elementary as spec
from repro_kernels.spec.floats import rn32

SPECIAL = np.array(
    [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2, -2, 3, -3, 0.5, -0.5, 1.5, -1.5, 1e-45, -1e-45,
    3.4028235e38, -3.4028235e38, 4, 9, 16, 27, 81, 0.25, 2**24, 2**24 - 1, 2**24 + 2, -149, -150, 150, 1
    / 3, 127, 128, 1 + 2**-23, 1 - 2**-24, -(1 + 2**-23), 2.0**-75, 2.0**-126, 1.17549435e-38],
    np.float32,
)  # fmt: skip


def assert_correct(x: mpfr.Floats, y: mpfr.Floats) -> None:
    got = elementary.pow(torch.from_numpy(x), torch.from_numpy(y)).numpy().view(np.uint32)
    wrong = np.flatnonzero(got != mpfr.bits(mpfr.power(x, y)))
    assert not wrong.size, f"{wrong.size} wrong, first {x[wrong[0]].hex()} ^ {y[wrong[0]].hex()}"


def test_special_pairs() -> None:
    x, y = np.meshgrid(SPECIAL, SPECIAL)
    assert_correct(x.ravel(), y.ravel())
    assert_bits(
        elementary.pow(torch.from_numpy(x.ravel().copy()), torch.from_numpy(y.ravel().copy())),
        [spec.pow(float(a), float(b)) for a, b in zip(x.ravel(), y.ravel(), strict=True)],
    )


def test_random_pairs() -> None:
    rng = np.random.default_rng(3)
    n = 20_000
    bits = rng.integers(0, 2**32, (2, n), dtype=np.uint64).astype(np.uint32).view(np.float32)
    assert_correct(bits[0], bits[1])
    base = np.exp2(rng.uniform(-140, 127, n)).astype(np.float32)
    exponent = (rng.uniform(-152, 130, n) / np.log2(base.astype(np.float64))).astype(np.float32)
    assert_correct(base, exponent)
    near_one = (1 + rng.uniform(-1, 1, n) * 1e-5).astype(np.float32)
    assert_correct(near_one, rng.uniform(-1e7, 1e7, n).astype(np.float32))


@pytest.mark.parametrize(
    "exponent", [2.0, 3.0, 4.0, 5.0, 7.0, 0.5, 0.25, 0.125, 1.5, 0.75, 2.5, -0.5, -1.0, -2.0]
)
def test_exact_and_midpoint_results(exponent: float) -> None:
    """Few-bit bases: their powers are exact, or exactly half-way, in normal and subnormal range."""
    rng = np.random.default_rng(5)
    few = rng.integers(1, 2**12 + 2, 3000).astype(np.float32)
    squares = rng.integers(1, 2**12, 1000).astype(np.float32) ** 2
    fourth = rng.integers(1, 2**6, 500).astype(np.float32) ** 4
    scale = np.exp2(rng.integers(-74, 8, 4500)).astype(np.float32)
    x = np.concatenate([few, squares, fourth]) * scale
    x = np.concatenate([x, np.concatenate([few, squares, fourth])])
    assert_correct(x, np.full(x.size, exponent, np.float32))


def test_midpoints_exist_in_the_sample_and_go_to_even() -> None:
    """(2^12 + 1)^2 = 2^24 + 2^13 + 1 is half-way between two binary32 numbers."""
    x = torch.tensor([4097.0, 2.0**-75, 3 * 2.0**-75])
    assert elementary.pow(x, torch.full((3,), 2.0)).tolist() == [2.0**24 + 2**13, 0.0, 2.0**-147]


@pytest.mark.parametrize("exponent", [*SPECIAL.tolist(), 0.1, 2.2, -0.333, 10.0])
def test_a_scalar_exponent_is_a_tensor_of_it(exponent: float) -> None:
    rng = np.random.default_rng(9)
    any_bits = rng.integers(0, 2**32, 3000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = torch.from_numpy(np.concatenate([SPECIAL, any_bits, rng.uniform(0, 4, 1000).astype(np.float32)]))
    scalar = elementary.pow(x, exponent).view(torch.int32)
    tensor = elementary.pow(x, torch.full_like(x, exponent)).view(torch.int32)
    assert bool((scalar == tensor).all())


@given(
    st.floats(width=32),
    st.one_of(st.floats(width=32), st.integers(-20, 20), st.sampled_from([0.5, 1.5, 0.25])),
)
def test_the_spec(x: float, y: float) -> None:
    assert_bits(elementary.pow(torch.tensor([x]), float(y)), [spec.pow(x, rn32(float(y)))])


def test_broadcasting_scalar_bases_and_result_types() -> None:
    x, y = torch.tensor([[2.0], [3.0]]), torch.tensor([1.0, 2.0, 3.0])
    assert elementary.pow(x, y).tolist() == [[2, 4, 8], [3, 9, 27]]
    assert elementary.pow(2.0, y).tolist() == [2, 4, 8]
    assert elementary.pow(torch.tensor(2.0), y.to(torch.bfloat16)).dtype == torch.bfloat16
    assert elementary.pow(x.to(torch.float16), 2).dtype == torch.float16
    assert elementary.pow(x, 2, out_dtype=torch.bfloat16).dtype == torch.bfloat16
    assert elementary.pow(torch.empty(0, 3), y).shape == (0, 3)
    assert elementary.pow(torch.tensor(3.0), torch.tensor(2.0)).shape == ()
    with pytest.raises(UnsupportedError, match="pow"):
        elementary.pow(2.0, 3.0)
    with pytest.raises(UnsupportedError, match="int64"):
        elementary.pow(torch.tensor([2]), y)
