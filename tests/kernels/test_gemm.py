"""linear, matmul, addmm and baddbmm against the specification, and what must not change a bit."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import (
    FORMATS,
    assert_bits,
    dtypes,
    flavours,
    instruction_sets,
    output_under,
    raw_bits,
    restrided,
    seeds,
    tensor,
    values,
)
from repro_kernels.cpu import gemm
from repro_kernels.errors import UnsupportedError
from repro_kernels.spec import dot, floats

depths = st.sampled_from([0, 1, 2, 7, 16, 31, 64, 100, 127, 128, 129, 256, 257, 300])
few = st.integers(1, 3)
specials = st.sampled_from([0.0, 0.0, 0.01, 0.2])


def nested(t: torch.Tensor) -> list[list[float]]:
    """A matrix as the spec takes it."""
    return [values(row) for row in t]


def flat(matrix: list[list[float]]) -> list[float]:
    return [v for row in matrix for v in row]


@given(
    m=few,
    n=few,
    k=depths,
    xt=dtypes,
    wt=dtypes,
    out=dtypes,
    xf=flavours,
    wf=flavours,
    special=specials,
    biased=st.booleans(),
    seed=seeds,
)
@settings(max_examples=120, deadline=None)
def test_linear_is_the_specification(*, m, n, k, xt, wt, out, xf, wf, special, biased, seed) -> None:
    x = restrided(tensor((m, k), seed=seed, flavour=xf, dtype=xt, specials=special), seed)
    w = restrided(tensor((n, k), seed=seed + 1, flavour=wf, dtype=wt, specials=special), seed + 1)
    b = tensor((n,), seed=seed + 2, flavour=wf, dtype=wt, specials=special) if biased else None
    expected = dot.linear(nested(x), nested(w), None if b is None else values(b), out=FORMATS[out])
    assert_bits(gemm.linear(x, w, b, out_dtype=out), flat(expected))


@given(
    m=few,
    n=few,
    k=depths,
    at=dtypes,
    bt=dtypes,
    out=dtypes,
    af=flavours,
    bf=flavours,
    start=st.sampled_from([0, 1, 27, 127, 128, 300]),
    seed=seeds,
)
@settings(max_examples=100, deadline=None)
def test_matmul_is_the_specification_from_any_position(*, m, n, k, at, bt, out, af, bf, start, seed) -> None:
    a = restrided(tensor((m, k), seed=seed, flavour=af, dtype=at), seed)
    b = restrided(tensor((k, n), seed=seed + 1, flavour=bf, dtype=bt), seed + 1)
    columns = nested(b.t())
    expected = [
        floats.rn(dot.dot(row, column, start), FORMATS[out]) for row in nested(a) for column in columns
    ]
    assert_bits(gemm.matmul(a, b, out_dtype=out, k_start=start), expected)


@given(
    m=few,
    n=few,
    k=depths.filter(bool),
    at=dtypes,
    out=dtypes,
    flavour=flavours,
    beta=st.sampled_from([0.0, 1.0, 0.1, -2.5]),
    alpha=st.sampled_from([1.0, 0.3]),
    seed=seeds,
)
@settings(max_examples=60, deadline=None)
def test_addmm_and_baddbmm_are_the_specification(*, m, n, k, at, out, flavour, beta, alpha, seed) -> None:
    a = [restrided(tensor((m, k), seed=seed + i, flavour=flavour, dtype=at), seed + i) for i in (0, 1)]
    b = [restrided(tensor((k, n), seed=seed + i, flavour=flavour), seed + i) for i in (2, 3)]
    bias = tensor((n,), seed=seed + 4, flavour=flavour, dtype=at, specials=0.3)
    expected = [
        flat(
            dot.addmm(
                [values(bias)] * m, nested(left), nested(right), beta=beta, alpha=alpha, out=FORMATS[out]
            )
        )
        for left, right in zip(a, b, strict=True)
    ]
    assert_bits(gemm.addmm(bias, a[0], b[0], beta=beta, alpha=alpha, out_dtype=out), expected[0])
    both = gemm.baddbmm(bias, torch.stack(a), torch.stack(b), beta=beta, alpha=alpha, out_dtype=out)
    assert_bits(both, expected[0] + expected[1])


@given(
    m=st.integers(1, 60),
    n=st.integers(1, 300),
    k=st.sampled_from([1, 33, 128, 200, 384, 515]),
    xt=dtypes,
    wt=dtypes,
    seed=seeds,
)
@settings(max_examples=60, deadline=None)
def test_tiles_of_any_shape_give_what_single_rows_give(*, m, n, k, xt, wt, seed) -> None:
    x, w = tensor((m, k), seed=seed, dtype=xt), restrided(tensor((n, k), seed=seed + 1, dtype=wt), seed)
    whole = gemm.linear(x, w, out_dtype=torch.float32)
    for i, j in {(0, 0), (m - 1, n - 1), (seed % m, seed % n), (m // 2, n // 3)}:
        assert_bits(whole[i, j].reshape(1), [dot.dot(values(x[i]), values(w[j]))])
    single = torch.cat([gemm.linear(row.unsqueeze(0), w, out_dtype=torch.float32) for row in x])
    assert raw_bits(whole) == raw_bits(single)
    assert raw_bits(whole.flip(0)) == raw_bits(gemm.linear(x.flip(0), w, out_dtype=torch.float32))


@given(
    n=st.sampled_from([33, 48, 64, 100]),
    k=st.sampled_from([16, 48, 128, 144, 256, 272]),
    xt=dtypes,
    wt=dtypes,
    start=st.sampled_from([0, 16, 112, 128]),
    special=specials,
    seed=seeds,
)
@settings(max_examples=40, deadline=None)
def test_one_row_of_a_weight_is_the_specification(*, n, k, xt, wt, start, special, seed) -> None:
    x = tensor((1, k), seed=seed, dtype=xt, specials=special)
    w = tensor((n, k), seed=seed + 1, dtype=wt, specials=special)
    expected = [dot.dot(values(x[0]), values(row), start) for row in w]
    assert_bits(gemm.matmul(x, w.t(), out_dtype=torch.float32, k_start=start), expected)


@given(m=st.integers(1, 20), n=st.integers(1, 40), k=st.sampled_from([1, 64, 200]), dtype=dtypes, seed=seeds)
@settings(max_examples=30, deadline=None)
def test_memory_layout_changes_no_bit(*, m, n, k, dtype, seed) -> None:
    a, b = tensor((2, m, k), seed=seed, dtype=dtype), tensor((2, k, n), seed=seed + 1, dtype=dtype)
    expected = raw_bits(gemm.matmul(a, b))
    for left in (a, a.transpose(1, 2).contiguous().transpose(1, 2), restrided(a, seed)):
        for right in (b, b.transpose(1, 2).contiguous().transpose(1, 2), restrided(b, seed + 1)):
            assert raw_bits(gemm.matmul(left, right)) == expected


def test_thread_count_changes_no_bit() -> None:
    x, w = tensor((150, 700), seed=1), tensor((400, 700), seed=2, dtype=torch.bfloat16)
    a, b = tensor((6, 90, 130), seed=3), tensor((6, 130, 64), seed=4)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append((raw_bits(gemm.linear(x, w)), raw_bits(gemm.matmul(a, b))))
    finally:
        torch.set_num_threads(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((5,), (5,)),
        ((3, 5), (5,)),
        ((5,), (5, 4)),
        ((2, 3, 5), (5, 4)),
        ((2, 1, 3, 5), (4, 5, 2)),
        ((4, 3, 5), (5,)),
        ((0, 5), (5, 4)),
        ((3, 0), (0, 4)),
        ((2, 3, 0), (2, 0, 4)),
        ((0, 3, 5), (5, 4)),
    ],
)
def test_shapes_are_those_of_torch(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = tensor(left, seed=1, flavour="integers"), tensor(right, seed=2, flavour="integers")
    expected = torch.matmul(a, b)
    found = gemm.matmul(a, b)
    assert found.shape == expected.shape
    assert (found == expected).all()  # small integers: any order gives the same value


def test_an_empty_contraction_is_plus_zero() -> None:
    assert raw_bits(gemm.linear(torch.ones(2, 0), torch.ones(3, 0))) == [0] * 6
    assert_bits(gemm.linear(torch.ones(1, 0), torch.ones(2, 0), torch.tensor([-0.0, 2.0])), [0.0, 2.0])


def test_a_negative_zero_partial_sum_is_washed() -> None:
    # -2^-200 rounds to -0, which the segment's chain keeps; the accumulator, from +0, does not.
    small = torch.full((1, 1), 2.0**-100)
    assert floats.bits(floats.fma(-(2.0**-100), 2.0**-100, 0.0)) == 0x80000000
    assert raw_bits(gemm.linear(-small, small)) == [0]


def test_with_beta_zero_the_bias_is_not_read() -> None:
    bias = torch.full((2, 2), torch.nan)
    assert_bits(gemm.addmm(bias, torch.ones(2, 3), torch.ones(3, 2), beta=0.0), [3.0] * 4)


def test_a_nan_is_the_canonical_one() -> None:
    x = torch.tensor([[-1, 0x7F812345, 0x7FC00001]], dtype=torch.int32).view(torch.float32)
    for out, bits in ((torch.float32, 0x7FC00000), (torch.bfloat16, 0x7FC0), (torch.float16, 0x7E00)):
        for rows, columns in ((1, 1), (1, 32), (15, 70)):
            found = gemm.linear(x.expand(rows, 3), torch.ones(columns, 3), out_dtype=out)
            assert set(raw_bits(found)) == {bits}


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"linear: shapes \(2, 3\) and \(4, 5\) do not fit"):
        gemm.linear(torch.ones(2, 3), torch.ones(4, 5))
    with pytest.raises(ValueError, match="do not fit"):
        gemm.matmul(torch.ones(2, 3), torch.ones(4, 5))
    with pytest.raises(ValueError, match="position is not negative"):
        gemm.matmul(torch.ones(2, 3), torch.ones(3, 5), k_start=-1)
    with pytest.raises(UnsupportedError, match=r"torch\.float64 is not specified"):
        gemm.linear(torch.ones(2, 3, dtype=torch.float64), torch.ones(4, 3))
    with pytest.raises(UnsupportedError, match=r"torch\.int64 is not specified"):
        gemm.matmul(torch.ones(2, 0), torch.ones(0, 3), out_dtype=torch.int64)
    with pytest.raises(UnsupportedError, match="outside the CPU"):
        gemm.linear(torch.ones(2, 3, device="meta"), torch.ones(4, 3))


PROGRAM = f"""
import ctypes, hashlib, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
from kernel_support import DTYPES, tensor
from repro_kernels.cpu import gemm

F32, BF16, F16 = DTYPES
inputs = [
    (tensor((m, k), seed=m, flavour=flavour, dtype=x, specials=0.0005),
     tensor((n, k), seed=n, flavour=flavour, dtype=w, specials=0.0005))
    for flavour in ('normal', 'cancelling', 'subnormal', 'wide', 'any bits')
    for m, n, k in ((1, 70, 300), (1, 96, 272), (2, 64, 129), (3, 40, 128), (7, 33, 260), (29, 130, 200),
                    (64, 20, 515))
    for x, w in ((F32, F32), (F32, BF16), (BF16, F16), (F16, F32))
]
digest = hashlib.sha256()
SETTING
for x, w in inputs:
    for y in (gemm.linear(x, w, out_dtype=torch.float32), gemm.linear(x, w, w[:, 0], out_dtype=BF16),
              gemm.matmul(x, w.t(), out_dtype=torch.float16, k_start=40),
              gemm.matmul(x.t(), x[:, :1].expand(-1, 5), out_dtype=torch.float32)):
        digest.update(y.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
print(digest.hexdigest())
"""
FE_UPWARD = 0x400000 if platform.machine() == "aarch64" else 0x800
HOSTILE = f"""torch.set_flush_denormal(True)
assert ctypes.CDLL('libm.so.6').fesetround({FE_UPWARD}) == 0
"""  # only now: it would change the inputs too; threads made later inherit both


@pytest.fixture(scope="module")
def reference() -> str:
    """The fastest instruction set with one thread."""
    return output_under(PROGRAM.replace("SETTING", ""), isa=instruction_sets()[-1])


@pytest.mark.parametrize("isa", instruction_sets())
def test_instruction_set_threads_and_the_callers_rounding_change_no_bit(isa: str, reference: str) -> None:
    assert output_under(PROGRAM.replace("SETTING", HOSTILE), isa=isa, threads=2) == reference
