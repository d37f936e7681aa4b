"""Every kernel rounds a float32 to its 16-bit result the same way: to nearest, ties to even, one NaN."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kernel_support import assert_bits
from repro_kernels.cpu import gemm
from repro_kernels.spec import dot
from repro_kernels.spec.floats import BFLOAT16, BINARY16, rn

#: Lower halves around a tie of bfloat16, and around ties of binary16 (13 bits are lost).
LOWER = (0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)


def patterns() -> torch.Tensor:
    """float32 [65536 * len(LOWER)]: every upper half, so every exponent, infinities and NaN among them."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    bits = np.concatenate([upper | np.uint32(low) for low in LOWER])
    return torch.from_numpy(bits.view(np.float32).copy())


@pytest.mark.parametrize(("dtype", "nan"), [(torch.bfloat16, 0x7FC0), (torch.float16, 0x7E00)])
def test_every_upper_half(dtype: torch.dtype, nan: int) -> None:
    x = patterns()
    got = gemm.linear(x[:, None], torch.ones(1, 1), out_dtype=dtype)[:, 0]
    want = (x + 0.0).to(dtype)  # fma(x, 1, +0) has washed the sign of a zero
    bits = torch.where(want.isnan(), torch.tensor(nan, dtype=torch.int16), want.view(torch.int16))
    wrong = (got.view(torch.int16) != bits).nonzero()
    assert wrong.numel() == 0, x.view(torch.int32)[wrong[0]]


@pytest.mark.parametrize(("dtype", "form"), [(torch.bfloat16, BFLOAT16), (torch.float16, BINARY16)])
def test_a_sample_against_the_specification(dtype, form) -> None:
    x = patterns()[::997]
    got = gemm.linear(x[:, None], torch.ones(1, 1), out_dtype=dtype)[:, 0]
    assert_bits(got, [rn(dot.dot([v], [1.0]), form) for v in x.tolist()])


def test_a_nan_of_float32_is_the_canonical_one() -> None:
    bits = np.array([0x7F800001, 0xFFC00000, 0xFFFFFFFF, 0x7FC00001] * 16, dtype=np.uint32)
    for count in (1, 5, 64):
        w = torch.from_numpy(bits[:count].view(np.float32).copy())[:, None]
        got = gemm.linear(torch.ones(1, 1), w)
        assert got.view(torch.int32).tolist() == [[0x7FC00000] * count]
