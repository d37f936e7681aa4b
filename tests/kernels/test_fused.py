"""Module steps in one pass: the bits of the steps, against the specification."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import (
    DTYPES,
    FORMATS,
    assert_bits,
    canonical,
    dtypes,
    flavours,
    instruction_sets,
    lengths,
    output_under,
    raw_bits,
    restrided,
    seeds,
    tensor,
    values,
)
from repro_kernels.cpu.fused import rms_norm_module, rotary, swiglu
from repro_kernels.errors import UnsupportedError
from repro_kernels.spec import composite, norm
from repro_kernels.spec.floats import add, mul, rn

specials = st.sampled_from([0.0, 0.03])
booleans = st.booleans()


@settings(max_examples=40, deadline=None)
@given(
    n=lengths, dtype=dtypes, w_dtype=dtypes, flavour=flavours, seed=seeds, special=specials, one=st.booleans()
)
def test_rms_norm_module(
    *,
    n: int,
    dtype: torch.dtype,
    w_dtype: torch.dtype,
    flavour: str,
    seed: int,
    special: float,
    one: bool,
) -> None:
    x = tensor((3, n), seed=seed, flavour=flavour, dtype=dtype, specials=special)
    w = tensor((n,), seed=seed + 1, dtype=w_dtype)
    eps = [1e-6, 1e-5, 0.0][seed % 3]
    fmt = FORMATS[dtype]
    expected = [
        y
        for row in x
        for y in norm.rms_norm_module(values(row), values(w), eps, fmt=fmt, w_fmt=fmt, one_plus=one)
    ]
    result = rms_norm_module(restrided(x, seed), restrided(w, seed), eps, one_plus=one)
    assert result.dtype == dtype
    assert_bits(result, expected)


def test_rms_norm_module_rows_are_independent() -> None:
    x, w = tensor((2, 300, 576), seed=1), tensor((576,), seed=2, dtype=torch.bfloat16)
    together = rms_norm_module(x, w, 1e-5)
    for b, row in ((0, 0), (0, 299), (1, 7), (1, 123)):
        assert raw_bits(rms_norm_module(x[b, row], w, 1e-5)) == raw_bits(together[b, row])
    with pytest.raises(ValueError, match="do not fit"):
        rms_norm_module(x, w[:-1], 1e-5)
    with pytest.raises(UnsupportedError, match="float64"):
        rms_norm_module(x.double(), w, 1e-5)


@settings(max_examples=30, deadline=None)
@given(n=st.sampled_from([0, 1, 15, 300]), dtype=dtypes, flavour=flavours, seed=seeds, special=specials)
def test_swiglu(*, n: int, dtype: torch.dtype, flavour: str, seed: int, special: float) -> None:
    gate = tensor((2, n), seed=seed, flavour=flavour, dtype=dtype, specials=special)
    up = tensor((2, n), seed=seed + 1, flavour=flavour, dtype=dtype, specials=special)
    fmt = FORMATS[dtype]
    pairs = zip(values(gate), values(up), strict=True)
    expected = [rn(mul(rn(composite.silu(g), fmt), u), fmt) for g, u in pairs]
    assert_bits(swiglu(restrided(gate, seed), restrided(up, seed + 1)), expected)
    halves = torch.cat([gate, up], -1)
    assert_bits(swiglu(*halves.chunk(2, -1)), expected)


def test_swiglu_refusals() -> None:
    with pytest.raises(ValueError, match="differ"):
        swiglu(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(UnsupportedError, match="bfloat16"):
        swiglu(torch.zeros(2), torch.zeros(2, dtype=torch.bfloat16))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), dtype=dtypes, flavour=flavours, seed=seeds, special=specials)
def test_rotary(*, data: st.DataObject, dtype: torch.dtype, flavour: str, seed: int, special: float) -> None:
    width = 2 * data.draw(st.sampled_from([0, 1, 8, 33]))
    depth = width + data.draw(st.sampled_from([0, 0, 5]))
    tables = data.draw(st.sampled_from([1, 2]))
    q = tensor((2, 3, 4, depth), seed=seed, flavour=flavour, dtype=dtype, specials=special)
    k = tensor((2, 1, 4, depth), seed=seed + 1, flavour=flavour, dtype=dtype, specials=special)
    cos, sin = (tensor((tables, 4, width), seed=seed + n, dtype=dtype) for n in (2, 3))
    fmt, half = FORMATS[dtype], width // 2
    results = rotary(*(restrided(t, seed + n) for n, t in enumerate((q, k, cos, sin))))
    for x, result in zip((q, k), results, strict=True):
        expected = []
        for b in range(2):
            for h in range(x.shape[1]):
                for s in range(4):
                    row, c, d = (values(t) for t in (x[b, h, s], cos[b % tables, s], sin[b % tables, s]))
                    turned = [-v for v in row[half:width]] + row[:half]
                    expected += [
                        rn(add(rn(mul(row[i], c[i]), fmt), rn(mul(turned[i], d[i]), fmt)), fmt)
                        for i in range(width)
                    ] + row[width:]
        assert result.shape == x.shape
        assert_bits(canonical(result), expected)


def test_rotary_keeps_the_layout_and_refuses_what_it_does_not_know() -> None:
    q = tensor((1, 5, 3, 8), seed=1).transpose(1, 2)
    table = tensor((1, 5, 8), seed=2)
    assert rotary(q, q, table, table)[0].stride() == q.stride()
    with pytest.raises(UnsupportedError, match="bfloat16"):
        rotary(q, q, table.bfloat16(), table)
    with pytest.raises(ValueError, match="do not fit"):
        rotary(q, q, table[:, :4], table[:, :4])
    with pytest.raises(ValueError, match=r"\[B, H, S, D\]"):
        rotary(q[0], q[0], table, table)


PROGRAM = f"""
import hashlib, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
from kernel_support import DTYPES, FLAVOURS, tensor
from repro_kernels.cpu.elementary import unary
from repro_kernels.cpu.fused import rms_norm_module, rotary, swiglu

digest = hashlib.sha256()
for seed, flavour in enumerate(FLAVOURS):
    for dtype in DTYPES:
        for n in (64, 130, 1026):
            x, y = (tensor((2, 40, 3, n), seed=seed + i, flavour=flavour, dtype=dtype) for i in (0, 1))
            w, table = tensor((n,), seed=7), tensor((2, 40, n), seed=8, dtype=dtype)
            both = []
            for flush in (False, True):
                torch.set_flush_denormal(flush)
                results = [
                    rms_norm_module(x, w, 1e-6), rms_norm_module(x, w, 1e-6, one_plus=True), swiglu(x, y),
                    *rotary(x.transpose(1, 2), y.transpose(1, 2), table, table),
                ]
                torch.set_flush_denormal(False)
                flat = [z.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for z in results]
                both.append(b"".join(flat))
            assert both[0] == both[1]
            digest.update(both[0])
print(digest.hexdigest())
"""


def test_instruction_sets_threads_and_flushed_subnormals() -> None:
    sets = instruction_sets()
    outputs = {output_under(PROGRAM, isa=isa, threads=1 + i) for i, isa in enumerate(sets)}
    assert len(outputs) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_llama_norm_equals_the_modules_own_steps(dtype: torch.dtype) -> None:
    x, w = tensor((7, 64), seed=3, dtype=dtype), tensor((64,), seed=4, dtype=dtype)
    steps = [
        norm.rms_norm_module(values(row), [1.0] * 64, 1e-5, fmt=FORMATS[dtype], w_fmt=FORMATS[dtype])
        for row in x
    ]
    hidden = torch.tensor(steps, dtype=torch.float64).to(dtype)
    assert raw_bits(rms_norm_module(x, w, 1e-5)) == raw_bits(w * hidden)
