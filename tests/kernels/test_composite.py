"""Composites: the trees of spec/composite.py, bit for bit; another tree would be noticed."""

from __future__ import annotations

import mpfr
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_support import DTYPES, FORMATS, SPECIALS, assert_bits, values
from repro_kernels.cpu import elementary
from repro_kernels.errors import UnsupportedError
from repro_kernels.spec import composite as spec
from repro_kernels.spec import floats
from repro_kernels.spec.elementary import exp, tanh

NAMES = sorted(spec.FUNCTIONS)

# Where a branch of a tree turns, or a step overflows, underflows or saturates.
EDGES = [
    *SPECIALS, 20.0, 20.000002, -20.0, 88.7, 88.8, -88.8, 103.9, -104.0, 3.0, -3.0, 2.9999998, 6.0, 6.0000005,
    0.5, -0.5, 5.6, -5.6, 9.1, 1e-38, -1e-38, 1e13, -1e13, 1e20, 3e38, -3e38,
]  # fmt: skip


def moderate(seed: int, count: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy((rng.standard_normal(count) * rng.choice([0.1, 1, 10], count)).astype(np.float32))


def test_spec_and_operators_have_the_same_names() -> None:
    assert set(elementary.SUPPORTED) == {*spec.FUNCTIONS, *elementary.ELEMENTARY}


@pytest.mark.parametrize("name", NAMES)
def test_edges_and_a_sample(name: str) -> None:
    x = torch.cat([torch.tensor(EDGES, dtype=torch.float32), moderate(NAMES.index(name), 400)])
    assert_bits(elementary.unary(name, x), [spec.FUNCTIONS[name](v) for v in values(x)])


@given(
    name=st.sampled_from(NAMES),
    patterns=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=10),
    near=st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=10),
)
def test_any_bits(name: str, patterns: list[int], near: list[float]) -> None:
    x = torch.cat([torch.from_numpy(mpfr.of_bits(patterns)), torch.tensor(near, dtype=torch.float32)])
    assert_bits(elementary.unary(name, x), [spec.FUNCTIONS[name](v) for v in values(x)])


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh", "sigmoid"])
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_16_bit_operators_are_one_rounding_of_the_32_bit_one(name: str, dtype: torch.dtype) -> None:
    x = torch.arange(-(2**15), 2**15, 37, dtype=torch.int32).to(torch.int16).view(dtype)
    expected = [floats.rn(spec.FUNCTIONS[name](v), FORMATS[dtype]) for v in values(x)]
    assert_bits(elementary.unary(name, x), expected)


@given(
    x=st.floats(width=32, allow_nan=True),
    a=st.floats(0.01, 10),
    b=st.floats(0.01, 30),
    c=st.floats(0.1, 3),
)
def test_parameters_are_used_as_their_binary32_rounding(x: float, a: float, b: float, c: float) -> None:
    t = torch.tensor([x], dtype=torch.float32)
    assert_bits(elementary.composite("softplus", t, a, b), [spec.softplus(x, a, b)])
    assert_bits(elementary.composite("elu", t, a, scale=b, input_scale=c), [spec.elu(x, a, b, c)])
    assert_bits(elementary.composite("leaky_relu", t, negative_slope=a), [spec.leaky_relu(x, a)])
    assert_bits(elementary.composite("hardtanh", t, -a, b), [spec.hardtanh(x, -a, b)])
    assert_bits(elementary.div_scalar(t, a), [spec.div_scalar(x, a)])


def test_division_by_a_scalar_is_not_a_product_with_its_reciprocal() -> None:
    x = moderate(1, 4000)
    got = elementary.div_scalar(x, 2560.0)
    assert_bits(got, [spec.div_scalar(v, 2560.0) for v in values(x)])
    assert (got.view(torch.int32) != (x * (1 / 2560.0)).view(torch.int32)).any()


def test_other_trees_would_be_noticed() -> None:
    """x * sigmoid(x) is not silu, a fused or reassociated gelu is not gelu: the sample tells them apart."""
    sample = values(moderate(2, 500))
    assert any(floats.mul(v, spec.sigmoid(v)) != spec.silu(v) for v in sample)
    assert any(floats.rn32(v / (1.0 + exp(-v))) != spec.silu(v) for v in sample)

    def reassociated(v: float) -> float:
        inner = floats.add(v, floats.mul(floats.mul(floats.mul(spec._GELU_CUBIC, v), v), v))
        scaled = floats.mul(spec._SQRT_TWO_OVER_PI, inner)
        return floats.mul(floats.mul(0.5, v), floats.add(1.0, tanh(scaled)))

    assert any(reassociated(v) != spec.gelu_tanh(v) for v in values(moderate(2, 6000)))


def test_constants_are_the_stated_ones() -> None:
    """The hexadecimal constants are the binary32 roundings of 1/sqrt(2), sqrt(2/pi) and 0.044715."""
    assert floats.rn32(0.5**0.5) == spec._SQRT_HALF
    assert floats.rn32((2 / 3.141592653589793) ** 0.5) == spec._SQRT_TWO_OVER_PI
    assert floats.rn32(0.044715) == spec._GELU_CUBIC


def test_relu_keeps_the_first_of_two_equal_operands() -> None:
    assert_bits(
        elementary.unary("relu", torch.tensor([-0.0, 0.0, -1.0, torch.nan])), [-0.0, 0.0, 0.0, floats.NAN]
    )


def test_unknown_names_and_parameters_are_refused() -> None:
    x = torch.ones(2)
    with pytest.raises(UnsupportedError, match="digamma"):
        elementary.unary("digamma", x)
    with pytest.raises(UnsupportedError, match="digamma"):
        elementary.composite("digamma", x, 1.0)
    with pytest.raises(UnsupportedError, match="slope"):
        elementary.composite("leaky_relu", x, slope=1.0)
    with pytest.raises(UnsupportedError, match="beta"):
        elementary.composite("softplus", x, 1.0, beta=2.0)
    with pytest.raises(UnsupportedError, match="leaky_relu"):
        elementary.composite("leaky_relu", x, 1.0, 2.0)
