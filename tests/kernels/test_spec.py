"""The specification against hand-made cases and independent arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from repro_kernels.errors import NonFiniteError
from repro_kernels.spec import attention, convert, dot, floats, index, order, reduce
from repro_kernels.spec.floats import BFLOAT16, BINARY16, BINARY32, FORMATS, INF, NAN, Format

patterns = st.integers(0, 2**32 - 1)
near = st.builds(
    lambda e, m, s: s << 31 | e << 23 | m, st.integers(120, 134), st.integers(0, 2**23 - 1), st.integers(0, 1)
)
words = st.one_of(
    patterns, near, st.sampled_from([0, 1, 0x80000000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x00800000])
)


def canonical(result: np.float32) -> int:
    return 0x7FC00000 if np.isnan(result) else int(np.float32(result).view(np.uint32))


@settings(max_examples=400, deadline=None)
@given(words, words)
def test_arithmetic_is_that_of_the_hardware(a: int, b: int) -> None:
    x, y = floats.value(a), floats.value(b)
    u, v = (np.uint32(w).view(np.float32) for w in (a, b))
    with np.errstate(all="ignore"):
        for ours, theirs in (
            (floats.add(x, y), u + v),
            (floats.sub(x, y), u - v),
            (floats.mul(x, y), u * v),
            (floats.div(x, y), u / v),
            (floats.sqrt(x), np.sqrt(u)),
        ):
            assert floats.bits(ours) == canonical(theirs)
        half = np.float16(u)
    assert floats.bits(floats.rn(x, BINARY16), BINARY16) == (
        0x7E00 if np.isnan(half) else int(half.view(np.uint16))
    )
    brain = torch.tensor(x, dtype=torch.float32).to(torch.bfloat16)
    assert floats.bits(floats.rn(x, BFLOAT16), BFLOAT16) == (
        0x7FC0 if math.isnan(x) else int(brain.view(torch.int16)) & 0xFFFF
    )


@settings(max_examples=400, deadline=None)
@given(words, words, words)
def test_fma_is_the_exact_result_rounded_once(a: int, b: int, c: int) -> None:
    x, y, z = (floats.value(w) for w in (a, b, c))
    if not all(math.isfinite(v) for v in (x, y, z)):
        return
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    result = floats.fma(x, y, z)
    if exact:
        assert floats.bits(result) == floats.bits(floats.rn(exact))
    else:
        assert result == 0


def test_fma_of_zeros_and_infinities() -> None:
    assert floats.bits(floats.fma(-1.0, 0.0, -0.0)) == 0x80000000
    assert floats.bits(floats.fma(1.0, 0.0, -0.0)) == 0
    assert floats.bits(floats.fma(1.0, 1.0, -1.0)) == 0
    assert floats.bits(floats.fma(-floats.value(1), 0.25, 0.0)) == 0x80000000  # underflow keeps its sign
    assert math.isnan(floats.fma(INF, 0.0, 1.0))
    assert math.isnan(floats.fma(INF, 1.0, -INF))
    # one rounding: split in two, the product would round to 1 and the result to 0
    assert floats.fma(1 + 2.0**-23, 1 - 2.0**-23, -1.0) == -(2.0**-46)


@pytest.mark.parametrize("fmt", [BFLOAT16, BINARY16], ids=lambda f: f.name)
def test_every_16_bit_pattern_survives(fmt: Format) -> None:
    for pattern in range(1 << 16):
        number = floats.value(pattern, fmt)
        assert floats.bits(number, fmt) == (fmt.nan_bits if math.isnan(number) else pattern)


def test_formats_match_torch() -> None:
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        info = torch.finfo(dtype)
        assert (FORMATS[name].epsilon, FORMATS[name].lowest) == (info.eps, info.min)


def test_a_number_of_another_format_has_no_bits() -> None:
    with pytest.raises(ValueError, match="not a number of fp16"):
        floats.bits(1e6, BINARY16)


def test_rounding_ties_go_to_even() -> None:
    assert floats.rn32(2**24 + 1) == 2**24
    assert floats.rn32(2**24 + 3) == 2**24 + 4
    assert floats.rn32(Fraction(2**24 + 1) + Fraction(1, 3**50)) == 2**24 + 2
    assert floats.rn32(Fraction(1, 3)) == float(np.float32(1 / 3))
    assert floats.rn32(Fraction(2) ** 128 - 1) == INF
    assert floats.rn32(Fraction(-1, 2**200)) == 0
    assert floats.rn32(float.fromhex("0x1.fffffefffffffp127")) == floats.value(0x7F7FFFFF)
    assert floats.rn32(float.fromhex("0x1.ffffffp127")) == INF


def test_a_segment_is_128_long() -> None:
    big = float(2**24)
    xs = [big] + [1.0] * 255
    # inside the first segment every + 1 is a tie that falls back; the second sums to 128
    assert dot.dot(xs, [1.0] * 256) == big + 128
    assert reduce.segment_sum(xs) == big + 128
    assert [[s.start, len(s)] for s in dot.segments(300)] == [[0, 128], [128, 128], [256, 44]]


def test_segments_follow_the_position() -> None:
    assert [(s.start, s.stop) for s in dot.segments(200, 100)] == [(0, 28), (28, 156), (156, 200)]
    xs = [float(2**24)] + [1.0] * 29
    # position 100: 28 elements in the first segment, then two ones (and a multiple of two survives)
    assert dot.dot(xs, [1.0] * 30, 100) == 2**24 + 2
    assert dot.dot(xs, [1.0] * 30) == 2**24


def test_a_minus_zero_is_washed() -> None:
    assert floats.bits(dot.dot([-0.0], [1.0])) == 0
    assert floats.bits(reduce.sum([-0.0] * 5)) == 0
    assert floats.bits(reduce.sum([])) == 0
    assert math.isnan(reduce.mean([]))


def test_addmm_with_beta_zero_does_not_read_its_bias() -> None:
    assert dot.addmm([[NAN]], [[2.0]], [[3.0]], beta=0.0, alpha=0.5) == [[3.0]]
    assert dot.addmm([[1.0]], [[2.0]], [[3.0]], beta=2.0, alpha=0.5) == [[5.0]]


def test_linear_adds_its_bias_before_the_last_rounding() -> None:
    # 256 + 1 is a tie in bfloat16; with the bias it is above it
    assert dot.linear([[256.0, 1.0]], [[1.0, 1.0]], [0.5], BFLOAT16) == [[258.0]]
    assert dot.linear([[256.0, 1.0]], [[1.0, 1.0]], None, BFLOAT16) == [[256.0]]


def test_conv_is_torchs_on_integers() -> None:
    rng = np.random.default_rng(3)
    x = torch.from_numpy(rng.integers(-4, 5, (2, 4, 6, 5)).astype(np.float32))
    w = torch.from_numpy(rng.integers(-4, 5, (6, 2, 3, 2)).astype(np.float32))
    b = torch.arange(6, dtype=torch.float32)
    options = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}
    expected = torch.nn.functional.conv2d(x, w, b, groups=2, **options)
    result, shape = dot.conv(
        x.flatten().tolist(),
        w.flatten().tolist(),
        b.tolist(),
        x_shape=x.shape,
        w_shape=w.shape,
        groups=2,
        **options,
    )
    assert shape == tuple(expected.shape)
    assert result == expected.flatten().tolist()


def test_variance_divides_by_what_is_left() -> None:
    assert reduce.var([1.0, 3.0]) == 2.0
    assert reduce.var([1.0, 3.0], correction=0) == 1.0
    assert reduce.std([1.0, 5.0], correction=0) == 2.0
    assert math.isnan(reduce.var([1.0]))
    assert reduce.var([1.0, 3.0], correction=5) == INF


def test_cumsum_keeps_binary32_between_its_results() -> None:
    assert reduce.cumsum([256.0, 1.0, 1.0], BFLOAT16) == [256.0, 256.0, 258.0]
    assert [floats.bits(c) for c in reduce.cumsum([-0.0])] == [0]


def test_index_add_rounds_every_addition() -> None:
    assert index.index_add([256.0], [0, 0], [1.0, 1.0], fmt=BFLOAT16) == [256.0]
    assert index.index_add([0.0, 1.0], [1, 1, 0], [1.0, 2.0, 5.0], alpha=0.5) == [2.5, 2.5]
    assert index.scatter([0.0, 1.0], [1, 1], [5.0, 6.0]) == [0.0, 6.0]


def test_order_of_zeros_and_nans() -> None:
    assert order.argmax([-0.0, 0.0]) == 0 and order.argmin([0.0, -0.0]) == 0
    assert floats.bits(order.amax([-0.0, 0.0])) == 0x80000000
    assert order.argmax([1.0, NAN, INF, NAN]) == order.argmin([1.0, NAN, -INF, NAN]) == 1
    assert order.argsort([2.0, NAN, 0.0, -0.0, 2.0]) == [2, 3, 0, 4, 1]
    assert order.argsort([2.0, NAN, 0.0, -0.0, 2.0], descending=True) == [1, 0, 4, 2, 3]
    assert order.topk([1.0, 2.0, 1.0, 1.0], 3) == [1, 0, 2]
    assert floats.bits(order.relu(-0.0)) == 0x80000000
    assert floats.bits(order.maximum(0.0, -0.0)) == 0 and floats.bits(order.minimum(-0.0, 0.0)) == 0x80000000
    assert math.isnan(order.clamp(NAN, 0.0, 1.0)) and order.clamp(3.0, 0.0, 1.0) == 1.0


def test_casts_saturate() -> None:
    assert [convert.to_integer(x, 8) for x in (NAN, 1e9, -1e9, -1.9, INF, -INF)] == [
        0,
        127,
        -128,
        -1,
        127,
        -128,
    ]
    assert [convert.to_integer(x, 8, signed=False) for x in (-1.0, 255.5, 256.0)] == [0, 255, 255]
    assert convert.to_integer(2.0**63, 64) == 2**63 - 1


def test_ranges_round_once() -> None:
    assert convert.arange(0, 0.1, 4) == [float(np.float32(Fraction(0.1) * i)) for i in range(4)]
    assert convert.linspace(0, 1, 3) == [0.0, 0.5, 1.0] and convert.linspace(2, 7, 1) == [2.0]


def test_softmax_of_masked_rows() -> None:
    assert attention.softmax([5.0, 1.0, 1.0], [False, True, True]) == [0.0, 0.5, 0.5]
    assert attention.softmax([NAN, 1.0], [False, True]) == [0.0, 1.0]
    assert attention.softmax([-INF, -INF]) == [0.0, 0.0]
    assert attention.softmax([1.0, 1.0], [False, False]) == [0.0, 0.0]
    assert all(math.isnan(y) for y in attention.softmax([NAN, 1.0]))
    assert all(math.isnan(y) for y in attention.softmax([INF, 1.0]))
    assert attention.log_softmax([-INF, -INF]) == [-INF, -INF]
    assert attention.log_softmax([0.0]) == [0.0]


def test_attention_rounds_every_step_to_its_type() -> None:
    q, k, v = [[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0]]
    y = attention.softmax([0.5, 0.0], None, BFLOAT16)
    expected = floats.rn(dot.dot(y, [1.0, 2.0]), BFLOAT16)
    assert attention.attention(q, k, v, scale=0.5, out=BFLOAT16) == [[expected]]
    assert attention.attention(q, k, v, scale=0.5, out=BINARY32) != [[expected]]


def test_attention_reads_no_masked_key() -> None:
    q, k, v = [[1.0]], [[1.0], [NAN]], [[2.0], [NAN]]
    assert attention.attention(q, k, v, scale=1.0, allowed=[[True, False]]) == [[2.0]]
    assert attention.attention(q, k, v, scale=1.0, allowed=[[False, False]]) == [[0.0]]
    with pytest.raises(NonFiniteError, match="attention k"):
        attention.attention(q, k, v, scale=1.0)
    with pytest.raises(NonFiniteError, match="attention score"):
        attention.attention([[1e30]], [[1e30]], [[1.0]], scale=1.0)


def test_attention_cap_is_division_tanh_product() -> None:
    capped = attention.attention([[3.0]], [[2.0], [-2.0]], [[1.0], [0.0]], scale=1.0, softcap=1e-3)
    assert capped == [[attention.softmax([floats.rn32(1e-3), -floats.rn32(1e-3)])[0]]]


def test_may_attend() -> None:
    rules = {"causal": True, "window": 3, "key_length": 10, "mask": True}
    assert [k for k in range(12) if attention.may_attend(k, 8, **rules)] == [6, 7, 8]
    assert [k for k in range(12) if attention.may_attend(k, 20, **(rules | {"window": None}))] == list(
        range(10)
    )
    assert not attention.may_attend(0, 0, **(rules | {"mask": False}))
