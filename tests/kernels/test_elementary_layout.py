"""Elementwise operators: the bits depend on the operand, not on layout, size, threads, instruction set."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from kernel_support import DTYPES, instruction_sets, output_under, restrided, tensor
from repro_kernels.cpu import elementary
from repro_kernels.errors import UnsupportedError

NAMES = sorted(elementary.SUPPORTED)

PROGRAM = f"""
import hashlib, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
from kernel_support import DTYPES, FLAVOURS, tensor
from repro_kernels.cpu import elementary

# The last input is long enough for two threads.
inputs = [
    tensor((3_001 if seed < 6 else 21_001,), seed=seed, flavour=flavour, dtype=dtype, specials=0.001)
    for seed, flavour in enumerate(FLAVOURS) for dtype in DTYPES
]
exponents = [2, 3, -0.5, 1.7, tensor((21_001,), seed=2, flavour="wide")]
torch.set_flush_denormal(FLUSH)
for name in sorted(elementary.SUPPORTED):
    digest = hashlib.sha256()
    for number, x in enumerate(inputs):
        y = elementary.unary(name, x, out_dtype=DTYPES[number // 3 % 3])
        digest.update(y.view(torch.uint8).numpy().tobytes())
    print(name, digest.hexdigest())
for exponent in exponents:
    print("pow", hashlib.sha256(elementary.pow(inputs[-3], exponent).numpy().tobytes()).hexdigest())
"""


@pytest.fixture(scope="module")
def reference() -> str:
    return output_under(PROGRAM.replace("FLUSH", "False"), isa=instruction_sets()[-1])


@pytest.mark.parametrize("isa", instruction_sets())
def test_every_instruction_set_with_two_threads(isa: str, reference: str) -> None:
    assert output_under(PROGRAM.replace("FLUSH", "False"), isa=isa, threads=2).split("\n") == reference.split(
        "\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="x86 or Arm Linux only")
def test_a_process_that_flushes_subnormals(reference: str) -> None:
    flushed = output_under(PROGRAM.replace("FLUSH", "True"), isa=instruction_sets()[-1], threads=2)
    assert flushed.split("\n") == reference.split("\n")


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("name", ["exp", "sin", "gelu", "silu"])
def test_thread_count_and_position_do_not_show(name: str) -> None:
    x = tensor((70_001,), seed=3, specials=0.01)
    torch.set_num_threads(2)
    whole = elementary.unary(name, x).view(torch.int32)
    torch.set_num_threads(1)
    assert bool((elementary.unary(name, x).view(torch.int32) == whole).all())
    for start, stop in ((1, 2), (7, 24), (255, 513), (1023, 1025), (5, 70_000)):
        part = elementary.unary(name, x[start:stop]).view(torch.int32)
        assert bool((part == whole[start:stop]).all())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layout_does_not_show(name: str, dtype: torch.dtype) -> None:
    x = tensor((3, 5, 33), seed=NAMES.index(name), dtype=dtype)
    want = elementary.unary(name, x)
    for seed in range(1, 4):
        got = elementary.unary(name, restrided(x, seed))
        assert got.dtype is dtype
        assert bool((got.contiguous().view(torch.int16) == want.view(torch.int16)).all())


def test_results_have_the_layout_that_pytorch_gives() -> None:
    dense = tensor((3, 5, 33), seed=1).permute(2, 0, 1)
    for x in (dense, dense[:, 1:], dense[::2], torch.ones(3, 1).expand(3, 4)):
        assert elementary.unary("exp", x).stride() == torch.exp(x).stride()
        assert elementary.unary("exp", x, out_dtype=torch.bfloat16).shape == x.shape


def test_sizes_zero_and_none() -> None:
    assert elementary.unary("exp", torch.empty(0, 3)).shape == (0, 3)
    assert elementary.unary("exp", torch.tensor(0.0)).shape == ()
    assert elementary.div_scalar(torch.empty(0), 3.0).shape == (0,)


def test_what_is_not_specified_is_refused() -> None:
    for x in (
        torch.ones(2, dtype=torch.float64),
        torch.ones(2, dtype=torch.int64),
        torch.ones(2, device="meta"),
    ):
        with pytest.raises(UnsupportedError, match="exp of"):
            elementary.unary("exp", x)
    with pytest.raises(UnsupportedError, match="float64"):
        elementary.unary("exp", torch.ones(2), out_dtype=torch.float64)
