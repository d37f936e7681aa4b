"""Normalisations, bit for bit against the specification."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import (
    FORMATS,
    assert_bits,
    dtypes,
    flavours,
    lengths,
    restrided,
    rows,
    seeds,
    tensor,
    values,
)
from repro_kernels.cpu import reduce as cpu
from repro_kernels.errors import UnsupportedError
from repro_kernels.spec import norm as spec

epsilons = st.sampled_from([1e-5, 1e-6, 0.0, 1e-12, 0.1])


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 9),
    n=lengths,
    dtype=dtypes,
    w_dtype=dtypes,
    flavour=flavours,
    seed=seeds,
    eps=epsilons,
    with_w=st.booleans(),
    specials=st.sampled_from([0, 0.02]),
)
def test_layer_and_rms_norm(
    *,
    count: int,
    n: int,
    dtype: torch.dtype,
    w_dtype: torch.dtype,
    flavour: str,
    seed: int,
    eps: float,
    with_w: bool,
    specials: float,
) -> None:
    x = tensor((count, n), seed=seed, flavour=flavour, dtype=dtype, specials=specials)
    w = tensor((n,), seed=seed + 1, dtype=w_dtype) if with_w else None
    b = tensor((n,), seed=seed + 2, dtype=dtype) if seed % 3 else None
    fmt, seen = FORMATS[dtype], restrided(x, seed)
    wv, bv = (None if p is None else values(p) for p in (w, b))
    expected = [y for r in rows(x, [1]) for y in spec.layer_norm(r, wv, bv, eps, fmt)]
    assert_bits(cpu.layer_norm(seen, [n], w, b, eps), expected)
    given_eps = None if seed % 2 else eps
    expected = [y for r in rows(x, [1]) for y in spec.rms_norm(r, wv, given_eps, fmt)]
    assert_bits(cpu.rms_norm(seen, (n,), w, given_eps), expected)


def test_several_axes() -> None:
    x, w, b = tensor((2, 3, 4, 50), seed=1), tensor((4, 50), seed=2), tensor((4, 50), seed=3)
    expected = [y for r in rows(x, [2, 3]) for y in spec.layer_norm(r, values(w), values(b), 1e-5)]
    assert_bits(cpu.layer_norm(x, [4, 50], w.t().contiguous().t(), b), expected)


@settings(max_examples=30, deadline=None)
@given(
    batch=st.integers(1, 3),
    groups=st.sampled_from([1, 2, 3]),
    each=st.sampled_from([1, 2, 5]),
    run=st.sampled_from([1, 7, 130, 600]),
    dtype=dtypes,
    flavour=flavours,
    seed=seeds,
)
def test_group_and_batch_norm(
    *, batch: int, groups: int, each: int, run: int, dtype: torch.dtype, flavour: str, seed: int
) -> None:
    channels = groups * each
    x = tensor((batch, channels, run), seed=seed, flavour=flavour, dtype=dtype)
    w, b = tensor((channels,), seed=seed + 1, dtype=dtype), tensor((channels,), seed=seed + 2, dtype=dtype)
    mean, variance = tensor((channels,), seed=seed + 3), tensor((channels,), seed=seed + 4).abs()
    fmt, seen = FORMATS[dtype], restrided(x, seed)
    expected = []
    for r, row in enumerate(rows(x.reshape(batch, groups, each * run), [2])):
        mine = slice(r % groups * each, (r % groups + 1) * each)
        expected += spec.group_norm(row, values(w)[mine], values(b)[mine], 1e-5, channels=each, out=fmt)
    assert_bits(cpu.group_norm(seen, groups, w, b), expected)
    expected = []
    for r, row in enumerate(rows(x, [2])):
        c = r % channels
        expected += spec.batch_norm(
            row,
            mean=values(mean)[c],
            variance=values(variance)[c],
            w=values(w)[c],
            b=values(b)[c],
            eps=1e-3,
            out=fmt,
        )
    assert_bits(cpu.batch_norm(seen, mean, variance, w=w, b=b, eps=1e-3), expected)


def test_optional_parameters_and_images() -> None:
    x = tensor((2, 4, 3, 5), seed=1)
    expected = [
        y for r in rows(x.reshape(2, 2, 30), [2]) for y in spec.group_norm(r, None, None, 1e-5, channels=2)
    ]
    assert_bits(cpu.group_norm(x, 2), expected)
    mean, variance = torch.zeros(4), torch.ones(4)
    expected = [
        y
        for r in rows(x.reshape(2, 4, 15), [2])
        for y in spec.batch_norm(r, mean=0.0, variance=1.0, w=None, b=None, eps=1e-5)
    ]
    assert_bits(cpu.batch_norm(x, mean, variance), expected)


@pytest.mark.parametrize("n", [64, 576, 2048])
def test_large_enough_for_threads(n: int) -> None:
    x, w = tensor((1200, n), seed=3), tensor((n,), seed=4)
    each = rows(x[[0, 7, 8, 1199]], [1])
    result = cpu.layer_norm(x, [n], w, w)[[0, 7, 8, 1199]]
    assert_bits(result, [y for r in each for y in spec.layer_norm(r, values(w), values(w), 1e-5)])


def test_the_module_tree_rounds_where_the_module_does() -> None:
    fmt = FORMATS[torch.bfloat16]
    xs, w = (
        values(tensor((40,), seed=1, dtype=torch.bfloat16)),
        values(tensor((40,), seed=2, dtype=torch.bfloat16)),
    )
    assert spec.rms_norm_module(xs, w, 1e-5, fmt=fmt, w_fmt=fmt) != spec.rms_norm(xs, w, 1e-5, fmt)
    assert spec.rms_norm_module(xs, w, 1e-5) == spec.rms_norm(xs, w, 1e-5)
    ones = [0.0] * 40
    assert spec.rms_norm_module(xs, ones, 1e-5, fmt=fmt, w_fmt=fmt, one_plus=True) == spec.rms_norm(
        xs, None, 1e-5, fmt
    )


def test_what_is_refused() -> None:
    x = torch.ones(2, 4)
    with pytest.raises(ValueError, match="does not fit"):
        cpu.layer_norm(x, [3])
    with pytest.raises(ValueError, match="parameter has shape"):
        cpu.rms_norm(x, [4], torch.ones(3))
    with pytest.raises(ValueError, match="do not divide"):
        cpu.group_norm(x, 3)
    with pytest.raises(UnsupportedError):
        cpu.layer_norm(x.double(), [4])
    assert cpu.layer_norm(torch.empty(0, 4), [4]).shape == (0, 4)
