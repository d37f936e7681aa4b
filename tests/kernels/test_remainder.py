"""Remainders and whole quotients: ``repro_kernels.cpu.remainder`` against the spec's fractions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from kernel_support import DTYPES, FORMATS, assert_bits, flavours, restrided, seeds, tensor, values
from repro_kernels.cpu import remainder
from repro_kernels.errors import UnsupportedError
from repro_kernels.spec import floats
from repro_kernels.spec import remainder as spec

NAMES = ["fmod", "remainder", "div_trunc", "div_floor"]


def check(name: str, x: torch.Tensor, y: torch.Tensor) -> None:
    step, fmt = getattr(spec, name), FORMATS[x.dtype]
    pairs = zip(values(x), values(y), strict=True)
    assert_bits(getattr(remainder, name)(x, y), [floats.rn(step(a, b), fmt) for a, b in pairs])


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds, flavour=flavours, other=flavours)
@settings(max_examples=25, deadline=None)
def test_bits(name: str, seed: int, flavour: str, other: str) -> None:
    dtype = DTYPES[seed % 3]
    x = tensor((64,), seed=seed, flavour=flavour, dtype=dtype, specials=0.1)
    y = tensor((64,), seed=seed + 1, flavour=other, dtype=dtype, specials=0.1)
    check(name, restrided(x, seed), restrided(y, seed + 1))


@pytest.mark.parametrize("name", NAMES)
def test_far_apart(name: str) -> None:
    """The largest quotients there are, and subnormal remainders: where iterations of a vendor's loop end."""
    x = torch.tensor([3.4028235e38, -3.4028235e38, 3e38, 1.0, 1e-38, 8e-45, -1e-40, 0.0, -0.0, 5.5, -5.5])
    infinity = float("inf")
    y = torch.tensor([1e-45, 7e-45, 1e-10, 1e-45, 3e-39, 3e-45, 3e-45, 3.0, -3.0, infinity, -infinity])
    check(name, x, y)


def test_broadcast_and_empty() -> None:
    x, y = torch.arange(6.0).view(2, 3, 1), torch.tensor([2.0, -4.0])
    check("remainder", *(t.contiguous() for t in torch.broadcast_tensors(x, y)))
    assert remainder.fmod(x, y).shape == (2, 3, 2)
    assert remainder.div_floor(x[:0], y).shape == (0, 3, 2)


def test_whole_numbers_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"fmod of torch\.int64"):
        remainder.fmod(torch.arange(3), torch.arange(3))
