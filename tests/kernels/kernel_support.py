"""What kernel tests share: hostile tensors, comparison by bits, runs under another instruction set."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import torch
from hypothesis import strategies as st
from repro_kernels.cpu import native
from repro_kernels.spec import floats
from repro_kernels.spec.floats import Format

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
FORMATS: dict[torch.dtype, Format] = dict(
    zip(DTYPES, (floats.BINARY32, floats.BFLOAT16, floats.BINARY16), strict=True)
)
FLAVOURS = ["normal", "integers", "ties", "cancelling", "subnormal", "wide", "any bits"]
SPECIALS = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1.17549435e-38,
    3.4028235e38,
    -3.4028235e38,
    1.0,
]
LENGTHS = [0, 1, 2, 3, 127, 128, 129, 255, 256, 257, 576, 1024, 1025, 1153]

dtypes = st.sampled_from(DTYPES)
flavours = st.sampled_from(FLAVOURS)
lengths = st.sampled_from(LENGTHS)
seeds = st.integers(0, 2**32 - 1)


def tensor(
    shape: Sequence[int],
    *,
    seed: int,
    flavour: str = "normal",
    dtype: torch.dtype = torch.float32,
    specials: float = 0.0,
) -> torch.Tensor:
    """Values drawn to hurt; a share `specials` of them zeros of both signs, infinities, NaN and extremes."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape, dtype=np.int64))
    x = rng.standard_normal(count).astype(np.float32)
    if flavour == "integers":
        x = rng.integers(-3, 4, count).astype(np.float32)
    elif flavour == "ties":
        x = (1 + rng.integers(0, 4, count) * np.float32(2.0**-23)).astype(np.float32)
        x *= np.float32(2.0) ** rng.integers(-2, 3, count).astype(np.float32)
    elif flavour == "cancelling":
        x = (x * np.float32(1e6)).astype(np.float32)
        x[1::2] = -x[: count // 2 * 2 : 2] + rng.standard_normal(count // 2).astype(np.float32)
    elif flavour == "subnormal":
        x = (rng.integers(-(2**23), 2**23, count).astype(np.float64) * 2.0**-149).astype(np.float32)
    elif flavour == "wide":
        x *= np.float32(2.0) ** rng.integers(-60, 60, count).astype(np.float32)
    elif flavour == "any bits":
        x = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32).copy()
        if not specials:
            x[~np.isfinite(x)] = np.float32(-0.0)
    chosen = rng.random(count) < specials
    x[chosen] = rng.choice(np.array(SPECIALS, np.float32), int(chosen.sum()))
    return torch.from_numpy(x).reshape(tuple(shape)).to(dtype)


def restrided(t: torch.Tensor, seed: int) -> torch.Tensor:
    """The same values in another memory layout: permuted axes, a step of two, an offset."""
    if t.dim() == 0 or seed % 4 == 0:
        return t
    order = list(np.random.default_rng(seed).permutation(t.dim()))
    shape = [t.shape[d] for d in order]
    shape[-1] = 2 * shape[-1] + 1
    storage = torch.full(shape, 7.0, dtype=t.dtype)
    view = storage[..., 1::2].permute([order.index(d) for d in range(t.dim())])
    view.copy_(t)
    return view


def values(t: torch.Tensor) -> list[float]:
    """The elements in logical C order, as the spec carries them."""
    return [float(v) for v in t.to(torch.float64).reshape(-1).tolist()]


def rows(t: torch.Tensor, dims: Sequence[int]) -> list[list[float]]:
    """One list per result of a reduction over `dims`: its elements in logical C order."""
    kept = [d for d in range(t.dim()) if d not in dims]
    moved = t.permute(*kept, *dims)
    n = int(np.prod([t.shape[d] for d in dims], dtype=np.int64))
    flat = values(moved)
    count = int(np.prod([t.shape[d] for d in kept], dtype=np.int64))
    return [flat[r * n : (r + 1) * n] for r in range(count)]


def canonical(t: torch.Tensor) -> torch.Tensor:
    """NaN canonical: for elements that were only moved, which keep their bits, a NaN's payload included."""
    return torch.where(t.isnan(), torch.tensor(torch.nan).to(t.dtype).abs(), t)


def raw_bits(t: torch.Tensor) -> list[int]:
    """Bit patterns in logical C order, without any canonicalisation."""
    flat = t.contiguous().reshape(-1)
    if t.dtype == torch.float32:
        return [v & 0xFFFFFFFF for v in flat.view(torch.int32).tolist()]
    return [v & 0xFFFF for v in flat.view(torch.int16).tolist()]


def assert_bits(actual: torch.Tensor, expected: Sequence[float]) -> None:
    """Every element has exactly the expected bits, a NaN those of the canonical one."""
    fmt = FORMATS[actual.dtype]
    got, want = raw_bits(actual), [floats.bits(v, fmt) for v in expected]
    wrong = [i for i, (g, w) in enumerate(zip(got, want, strict=True)) if g != w]
    assert not wrong, f"{len(wrong)} of {len(want)} differ, first at {wrong[0]}: " + ", ".join(
        f"{side} {bits[wrong[0]]:#x}" for side, bits in (("got", got), ("want", want))
    )


def instruction_sets() -> list[str]:
    """What this CPU can run of what was compiled."""
    return native.available()


def output_under(code: str, *, isa: str, threads: int = 1) -> str:
    """What a Python program prints in a process of its own, with one instruction set and thread count."""
    environment = dict(os.environ, REPRO_KERNELS_ISA=isa, OMP_NUM_THREADS=str(threads))
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
