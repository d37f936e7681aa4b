"""Elementary functions: correctly rounded, against MPFR and the spec; the fast and the wide path apart."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

import gmpy2
import mpfr
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_support import assert_bits
from repro_kernels.cpu import elementary, native, tables
from repro_kernels.spec import elementary as spec

NAMES = list(elementary.ELEMENTARY)
APPROXIMATED = [n for n in NAMES if n not in ("sqrt", "reciprocal")]

# Zeros, subnormals, powers of two, limits of ranges, infinities, NaNs: of both signs.
SPECIAL_BITS = [
    sign | magnitude
    for sign in (0, 1 << 31)
    for magnitude in (
        0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F000000,
        0x40490FDB, 0x3FC90FDB, 0x42B17217, 0x42B17218, 0x42B17219, 0x42CFF1B4, 0x42CFF1B5, 0x43150000,
        0x43160000, 0x43168000, 0x43000000, 0x42FFFFFF, 0x4B000000, 0x4B800000, 0x7F000000, 0x7F7FFFFF,
        0x7F800000, 0x7F800001, 0x7FC00000, 0x7FC12345, 0x7FFFFFFF,
    )
]  # fmt: skip

# Arguments whose value lies nearest to a midpoint (within 2^-46 to 2^-55, relative): of all binary32 for exp,
# tanh and rsqrt (prove_elementary.py), of 24 million samples for the others.
HARD: dict[str, list[int]] = {
    "exp": [0xC16912CD, 0xBBF0EDF1, 0xBAE0E25C, 0xB3000000, 0x377EFF81, 0x40315B33],
    "exp2": [0x41AE6939, 0xC0A65B1C, 0xC1B196C7, 0xC1C196C7, 0xB9F6500A, 0xBD5CA1FC],
    "expm1": [0xBB64AEC5, 0xBF777395, 0x39EDF4F0, 0x419647ED, 0xBFE6EFC8, 0x3EFD6484],
    "log": [0x11B257E3, 0x3A51C713, 0x18A0AD04, 0x0779AB1E, 0x63BBD86B, 0x70EB44BC],
    "log2": [0x7E114A90, 0x64914A90, 0x63114A90, 0x46FFC006, 0x34F50F8C, 0x626B8090],
    "log10": [0x45BDEDC8, 0x2F149212, 0x0CB01343, 0x19D16A17, 0x05806C44, 0x25ECF2B7],
    "log1p": [0x789E5998, 0x4CD4C8EB, 0x467921D0, 0x3DF2E073, 0x7291B57C, 0x73A6DFEF],
    "sin": [0x7A5AACDB, 0x653CEE8F, 0xE7051B8D, 0x5CE229A9, 0x537ABBA0, 0x4ECADC3F],
    "cos": [0x5D9615E4, 0xD1A2837B, 0xF6545E3C, 0xDA3E4403, 0xCBD3F72E, 0x6753FFEB],
    "tan": [0x49CED458, 0x3A5E7737, 0xD9940157, 0xDECD9648, 0xF497709E, 0x74A4DA31],
    "asin": [0x3ABFFFFC, 0xBABFFFFC, 0xB9E89767, 0xBE9F4C6B, 0x3B1B2966, 0x3EB163E5],
    "acos": [0x3B7D281B, 0xBD56BD25, 0x3E0B7255, 0x3AB0F085, 0x39823222, 0xBF59BF20],
    "atan": [0x3D8D6B23, 0x40357F1D, 0xC47413FC, 0xC1C28B74, 0x3FA8FAD8, 0x3D790670],
    "sinh": [0xBA1285FF, 0xC1F77C01, 0x3D7EE648, 0x41704429, 0x3B08B99E, 0x3D6A141B],
    "cosh": [0xBF859B7E, 0x4018A405, 0xBBDFB6B3, 0xBE5E1D31, 0x3DD0C5A1, 0x3F0B0ADE],
    "tanh": [0x3AC37DE2, 0xBAC37DE2, 0xBC96AE2E, 0xBBC8B605, 0x3FB3C82A, 0x3DA99442],
    "erf": [0xBAA60E18, 0x3A540BDE, 0xBB5DD8C5, 0x3CB55B05, 0x3E993B49, 0xBFFAFAA7],
    "erfc": [0x3CFA05D7, 0xBB43CC42, 0xBBBB02F1, 0x3FAF0760, 0xBFB6F215, 0x3B1ADCFE],
    "rsqrt": [0x403A18E3, 0x4009F038, 0x407FFFFE, 0x3FD2208F, 0x3FED3230, 0x3F8A5C86],
}


def compute(name: str, x: mpfr.Floats) -> mpfr.Bits:
    """Bits as they come, without canonicalisation."""
    return elementary.unary(name, torch.from_numpy(np.ascontiguousarray(x))).numpy().view(np.uint32)


def assert_correct(name: str, x: mpfr.Floats) -> None:
    got, want = compute(name, x), mpfr.bits(mpfr.function(name, x))
    wrong = np.flatnonzero(got != want)
    assert not wrong.size, f"{name}: {wrong.size} wrong, first {x.view(np.uint32)[wrong[0]]:#010x}: " + (
        f"got {got[wrong[0]]:#010x}, want {want[wrong[0]]:#010x}"
    )


def test_the_tables_are_what_their_script_prints() -> None:
    path = Path(tables.__file__).with_name("csrc") / "elementary_tables.h"
    assert path.read_text() == tables.header()


@pytest.mark.parametrize("name", NAMES)
def test_special_values_and_every_exponent(name: str) -> None:
    mantissas = (0, 1, 0x2AAAAA, 0x400000, 0x7FFFFF)
    patterns = [s << 31 | e << 23 | m for s in (0, 1) for e in range(256) for m in mantissas]
    assert_correct(name, mpfr.of_bits(SPECIAL_BITS + patterns))


def screen(name: str, x: mpfr.Floats) -> np.ndarray:
    """A binary64 value from numpy or torch: other code than ours, within 2^-45 where it is finite."""
    v = x.astype(np.float64)
    if name in ("erf", "erfc"):
        return getattr(torch.special, name)(torch.from_numpy(v)).numpy()
    if name == "rsqrt":
        return 1 / np.sqrt(v)
    other = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}.get(name, name)
    return np.asarray(getattr(np, other)(v))


def assert_correct_screened(name: str, x: mpfr.Floats) -> None:
    """As assert_correct, but MPFR decides only what a binary64 value with a margin of 2^-40 leaves open."""
    got = compute(name, x)
    with np.errstate(all="ignore"):
        y = screen(name, x)
        low, high = (y * (1 - 2.0**-40)).astype(np.float32), (y * (1 + 2.0**-40)).astype(np.float32)
    decided = (mpfr.bits(low) == mpfr.bits(high)) & np.isfinite(y) & (y != 0)
    wrong = decided & (got != mpfr.bits(low))
    assert not wrong.any(), f"{name} at {x.view(np.uint32)[wrong][0]:#010x}"
    rest = x[~decided]
    assert_correct(name, rest[:: max(1, rest.size // 4000)])  # zeros, infinities and NaN are many: a sample


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_16_bit_input(name: str, dtype: torch.dtype) -> None:
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    wide = x.to(torch.float32)
    assert_correct_screened(name, wide.numpy())
    # ... and the 16-bit result is one rounding of the 32-bit one.
    full = elementary.unary(name, wide)
    got = elementary.unary(name, x).view(torch.int16)
    canonical = 0x7FC0 if dtype is torch.bfloat16 else 0x7E00
    want = torch.where(full.isnan(), canonical, full.to(dtype).view(torch.int16))
    assert bool((got == want).all())


@pytest.mark.parametrize("name", NAMES)
def test_a_million_random_inputs(name: str) -> None:
    rng = np.random.default_rng(NAMES.index(name))
    anything = rng.integers(0, 2**32, 400_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    moderate = (rng.standard_normal(400_000) * 4).astype(np.float32)
    small = (rng.uniform(-1, 1, 200_000) * np.exp2(rng.uniform(-12, 0, 200_000))).astype(np.float32)
    near_one = np.float32(1) + small * np.float32(2**-6)
    assert_correct_screened(name, np.concatenate([anything, moderate, small, near_one]))


@pytest.mark.parametrize("name", sorted(HARD))
def test_hard_cases(name: str) -> None:
    """Near-midpoints: here the fast path must hand over, and the wide path alone must agree with MPFR."""
    x = mpfr.of_bits(HARD[name])
    assert_correct(name, x)
    wide = np.empty_like(x)
    pointers = ctypes.c_void_p(x.ctypes.data), None, ctypes.c_void_p(wide.ctypes.data)
    native.fn("elementary_wide")(ctypes.c_int(NAMES.index(name)), *pointers, ctypes.c_int64(x.size))
    assert (wide.view(np.uint32) == mpfr.bits(mpfr.function(name, x))).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_wide_path_alone(name: str) -> None:
    rng = np.random.default_rng(7)
    x = np.concatenate([
        mpfr.of_bits(SPECIAL_BITS),
        rng.integers(0, 2**32, 500, dtype=np.uint64).astype(np.uint32).view(np.float32),
        (rng.standard_normal(500) * 3).astype(np.float32),
        rng.uniform(-1, 1, 300).astype(np.float32),
    ])  # fmt: skip
    wide = np.empty_like(x)
    pointers = ctypes.c_void_p(x.ctypes.data), None, ctypes.c_void_p(wide.ctypes.data)
    native.fn("elementary_wide")(ctypes.c_int(NAMES.index(name)), *pointers, ctypes.c_int64(x.size))
    assert (wide.view(np.uint32) == mpfr.bits(mpfr.function(name, x))).all()


@pytest.mark.parametrize("name", APPROXIMATED)
def test_the_margin_is_sixteen_times_the_error(name: str) -> None:
    """The rounding test of the fast path assumes an error below 2^-44: measured, it is below 2^-48."""
    rng = np.random.default_rng(11)
    x = np.concatenate([
        rng.integers(0, 2**32, 3000, dtype=np.uint64).astype(np.uint32).view(np.float32),
        (rng.standard_normal(2000) * 3).astype(np.float32),
        rng.uniform(-1, 1, 2000).astype(np.float32),
        (1 + rng.uniform(-1, 1, 500) * 1e-3).astype(np.float32),
    ])  # fmt: skip
    approximation = np.empty(x.size, np.float64)
    pointers = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(approximation.ctypes.data)
    native.fn("elementary_core")(ctypes.c_int(NAMES.index(name)), *pointers, ctypes.c_int64(x.size))
    gmpy2.set_context(gmpy2.context(precision=120))
    undecided = float.fromhex("0x1.000001p0")
    real = gmpy2.rec_sqrt if name == "rsqrt" else getattr(gmpy2, name)
    measured = 0
    for argument, value in zip(x.tolist(), approximation.tolist(), strict=True):
        # Far outside binary32's range the approximation only has to be far outside too.
        if not math.isfinite(value) or value == undecided or not 2.0**-151 < abs(value) < 2.0**129:
            continue
        exact = real(gmpy2.mpfr(argument))
        measured += 1
        assert abs(gmpy2.mpfr(value) - exact) <= abs(exact) * gmpy2.exp2(-48), argument.hex()
    assert measured > 500


@given(name=st.sampled_from(NAMES), patterns=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_the_spec(name: str, patterns: list[int]) -> None:
    x = torch.from_numpy(mpfr.of_bits(patterns))
    assert_bits(elementary.unary(name, x), [spec.FUNCTIONS[name](v) for v in x.tolist()])


@pytest.mark.parametrize("name", NAMES)
def test_the_spec_at_special_values(name: str) -> None:
    x = torch.from_numpy(mpfr.of_bits(SPECIAL_BITS))
    assert_bits(elementary.unary(name, x), [spec.FUNCTIONS[name](v) for v in x.tolist()])
