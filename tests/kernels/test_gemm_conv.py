"""Convolutions against the specification."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import FORMATS, assert_bits, dtypes, flavours, raw_bits, restrided, seeds, tensor, values
from repro_kernels.cpu import gemm
from repro_kernels.errors import UnsupportedError
from repro_kernels.spec import dot

steps = st.integers(1, 3)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, object]:
    """Shapes and arguments of a small convolution over 1 to 3 axes."""
    axes = draw(st.integers(1, 3))

    def per_axis(strategy: st.SearchStrategy[int]) -> list[int]:
        return [draw(strategy) for _ in range(axes)]

    groups, channels, filters = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kernel, dilation, padding = per_axis(steps), per_axis(st.integers(1, 2)), per_axis(st.integers(0, 2))
    sizes = [
        max(1, d * (k - 1) + 1 - 2 * p) + draw(st.integers(0, 2))
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    return {
        "x_shape": (draw(st.integers(1, 2)), groups * channels, *sizes),
        "w_shape": (groups * filters, channels, *kernel),
        "stride": per_axis(steps),
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
    }


@given(case=cases(), xt=dtypes, wt=dtypes, out=dtypes, flavour=flavours, biased=st.booleans(), seed=seeds)
@settings(max_examples=60, deadline=None)
def test_conv_is_the_specification(*, case, xt, wt, out, flavour, biased, seed) -> None:
    x_shape, w_shape = case["x_shape"], case["w_shape"]
    x = tensor(x_shape, seed=seed, flavour=flavour, dtype=xt)
    w = tensor(w_shape, seed=seed + 1, flavour=flavour, dtype=wt)
    b = tensor(w_shape[:1], seed=seed + 2, flavour=flavour, dtype=wt) if biased else None
    expected, shape = dot.conv(
        values(x), values(w), None if b is None else values(b), out=FORMATS[out], **case
    )
    arguments = {name: case[name] for name in ("stride", "padding", "dilation", "groups")}
    found = gemm.conv(restrided(x, seed), restrided(w, seed + 1), b, out_dtype=out, **arguments)
    assert found.shape == shape
    assert_bits(found, expected)
    one = gemm.conv(x[0], w, b, out_dtype=out, **arguments)
    assert raw_bits(one) == raw_bits(found[0])


def test_a_receptive_field_longer_than_a_segment() -> None:
    x, w = tensor((1, 20, 3, 3), seed=1), tensor((2, 20, 3, 3), seed=2, dtype=torch.bfloat16)
    taps = [dot.dot(values(x), values(kernel)) for kernel in w]
    assert_bits(gemm.conv(x, w), taps)


def test_padding_meets_an_infinite_weight_as_plus_zero() -> None:
    found = gemm.conv(torch.ones(1, 1, 1), torch.tensor([[[torch.inf, 1.0, 1.0]]]), padding=1)
    assert_bits(found, [float("nan")])


@pytest.mark.parametrize(("padding", "total"), [("same", 3), ("valid", 0)])
def test_named_padding(padding: str, total: int) -> None:
    x, w = tensor((2, 2, 9), seed=1, flavour="integers"), tensor((3, 2, 4), seed=2, flavour="integers")
    with warnings.catch_warnings(action="ignore"):  # torch would rather not pad an even kernel
        expected = torch.nn.functional.conv1d(x, w, padding=padding)
    found = gemm.conv(x, w, padding=padding)
    assert found.shape[-1] == 9 - 3 + total
    assert found.shape == expected.shape
    assert (found == expected).all()  # small integers: any order gives the same value


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="in 2 groups do not fit"):
        gemm.conv(torch.ones(1, 4, 5), torch.ones(2, 4, 3), groups=2)
    with pytest.raises(ValueError, match=r"kernel \(3,\) is larger than its input \(2,\)"):
        gemm.conv(torch.ones(1, 1, 2), torch.ones(1, 1, 3))
    with pytest.raises(UnsupportedError, match="conv over 4 axes is not specified"):
        gemm.conv(torch.ones(1, 1, 2, 2, 2, 2), torch.ones(1, 1, 1, 1, 1, 1))
