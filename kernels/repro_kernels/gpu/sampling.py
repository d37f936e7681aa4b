"""Drawing tokens under profile ``fp32`` from CUDA logits: Philox4x32-10, temperature, top-k, top-p, greedy.

``sample`` has the arguments, errors and bits of ``repro_kernels.cpu.sampling.sample``, whose contract is
``repro_kernels.spec.sampling``. ``sample_rows`` draws for all rows at once and never waits for the device, so
that a CUDA graph can hold it: what is kept is a comparison with the key of the last one kept, instead of a
list of ids whose length the host would have to know. ``uniforms`` and ``draw`` are its last two steps.
Tests: ``tests/gpu/cases_sampling.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from repro_kernels.errors import NonFiniteError, UnsupportedError
from repro_kernels.gpu import order
from repro_kernels.gpu.ascending import ascending_sums
from repro_kernels.gpu.language import store
from repro_kernels.gpu.runtime import Build, launch
from repro_kernels.gpu.softmax import softmax
from repro_kernels.gpu.top_two import best_two, top_two
from repro_kernels.spec.floats import rn32
from repro_kernels.spec.philox import philox, uniform

__all__ = ["draw", "philox", "sample", "sample_rows", "top_two", "uniforms"]

_BLOCK = 1024
_LANES = 128
_FIRST_LOOK = 1024


@triton.jit
def _philox(c0, c1, c2, c3, k0, k1):
    """x0, the first output word of Philox4x32-10; every word a uint64 below 2^32."""
    for _ in tl.static_range(10):
        low0 = c0 * 0xD2511F53
        low1 = c2 * 0xCD9E8D57
        c0 = (low1 >> 32) ^ c1 ^ k0
        c1 = low1 & 0xFFFFFFFF
        c2 = (low0 >> 32) ^ c3 ^ k1
        c3 = low0 & 0xFFFFFFFF
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0


@triton.jit(do_not_specialize=["seed_low", "seed_high"])
def _uniform(positions, ids, out, seed_low, seed_high, total, BLOCK: tl.constexpr):
    """u = (x0 >> 8) * 2**-24 for each pair of a position and an id."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = e < total
    position = tl.load(positions + e, mask=inside, other=0).to(tl.uint64)
    identity = tl.load(ids + e, mask=inside, other=0).to(tl.uint64)
    zero = tl.zeros([BLOCK], tl.uint64)
    x0 = _philox(
        position, zero, identity & 0xFFFFFFFF, identity >> 32,
        zero + seed_low.to(tl.uint64), zero + seed_high.to(tl.uint64),
    )  # fmt: skip
    u = (x0 >> 8).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08
    tl.store(out + e, u, mask=inside)


@triton.jit
def _divide(x, out, divisor, total, BLOCK: tl.constexpr):
    """out = RN(x / divisor)."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = e < total
    value = tl.load(x + e, mask=inside, other=0.0).to(tl.float32)
    store(out + e, tl.div_rn(value, divisor), inside)


@triton.jit
def _first_above(sums, u, out, n, stride, rows, steps, LANES: tl.constexpr):
    """The first index whose running sum exceeds RN(u * the last); sums [rows, n] ascend, `stride` apart."""
    row = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    valid = row < rows
    line = sums + row * stride
    threshold = tl.load(u + row, mask=valid, other=0.0) * tl.load(line + n - 1, mask=valid, other=0.0)
    low = tl.zeros([LANES], tl.int64)
    high = low + (n - 1)
    for _ in range(0, steps):
        active = low < high
        middle = (low + high) // 2
        above = tl.load(line + middle, mask=valid, other=0.0) > threshold
        high = tl.where(active & above, middle, high)
        low = tl.where(active & ~above, middle + 1, low)
    tl.store(out + row, low, mask=valid)


def uniforms(seed: int, positions: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """``u = (x0 >> 8) * 2**-24`` of one Philox call for each position and id.

    Args:
        seed: 64 bits, unsigned.
        positions: int64 [draws], 0-based indices of the tokens being drawn, below 2^32.
        ids: int64 [draws], the sequences' recorded ids; one of 2^63 or more as its two's complement.

    Returns:
        float32 [draws], each in [0, 1).

    Raises:
        ValueError: the seed is too wide, or the tensors are not int64 of one shape.
    """
    philox(seed, 0, 0)
    if positions.dtype != torch.int64 or ids.dtype != torch.int64 or positions.shape != ids.shape:
        raise ValueError("uniforms: positions and ids are int64 of one shape")
    out = torch.empty(positions.shape, dtype=torch.float32, device=positions.device)
    total = out.numel()
    if total:
        places, names = positions.contiguous(), ids.contiguous()
        launch(
            _uniform, -(-total // _BLOCK), places, names, out, seed & 0xFFFFFFFF, seed >> 32, total,
            BLOCK=_BLOCK,
        )  # fmt: skip
    return out


def draw(y: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """For each u the first index whose ascending running sum of y exceeds ``RN(u * the whole sum)``.

    Args:
        y: float32 [rows, n], at least 0 and finite, n >= 1; or [1, n], one row for all.
        u: float32 [rows], in [0, 1).

    Returns:
        int64 [rows].
    """
    sums = ascending_sums(y)
    out = torch.empty(u.shape, dtype=torch.int64, device=u.device)
    rows, n = u.numel(), y.shape[1]
    if rows:
        stride = 0 if y.shape[0] == 1 else n
        grid = -(-rows // _LANES)
        launch(_first_above, grid, sums, u.contiguous(), out, n, stride, rows, n.bit_length(), LANES=_LANES)
    return out


def sample(
    logits: torch.Tensor,
    *,
    temperature: float,
    seed: int,
    position: int,
    sequence_id: int,
    top_k: int = 0,
    top_p: float = 1.0,
) -> int:
    """Pick a token from one row of logits: :func:`repro_kernels.cpu.sampling.sample`."""
    if logits.dim() != 1 or logits.numel() == 0:
        raise ValueError(f"sample: logits have shape {tuple(logits.shape)}, not one row")
    t, p = _factors(temperature, top_k, top_p)
    best = int(order.argmax(logits))
    if bool(logits[best].isnan()):  # a NaN wins every maximum
        raise NonFiniteError("logits")
    if temperature == 0:
        return best
    row, n = logits.contiguous(), logits.numel()
    z = torch.empty(n, dtype=torch.float32, device=row.device)
    launch(_divide, -(-n // _BLOCK), row, z, t, n, BLOCK=_BLOCK)
    if not bool(z[best].isfinite()):  # division keeps the order, so the greatest stays greatest
        raise NonFiniteError("logits / temperature")
    kept = None
    if 0 < top_k < n:
        kept = torch.zeros(n, dtype=torch.bool, device=row.device)
        kept[order.topk(z, top_k).indices] = True
    y = softmax(z, 0, mask=kept)
    if top_p < 1:
        nucleus = torch.zeros(n, dtype=torch.bool, device=row.device)
        nucleus[_nucleus(y, p)] = True
        kept = nucleus if kept is None else kept & nucleus
    weights = y if kept is None else y.masked_fill(~kept, 0.0)
    u = torch.full((1,), uniform(seed, position, sequence_id), dtype=torch.float32, device=row.device)
    return int(draw(weights.view(1, n), u))


def sample_rows(
    logits: torch.Tensor,
    *,
    temperature: float,
    seed: int,
    positions: torch.Tensor,
    ids: torch.Tensor,
    flag: torch.Tensor,
    top_k: int = 0,
    top_p: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A token of every row: :func:`repro_kernels.cpu.sampling.sample_rows`; nothing is read back."""
    if logits.dim() != 2 or logits.shape[1] == 0:
        raise ValueError(f"sample_rows: logits have shape {tuple(logits.shape)}")
    t, p = _factors(temperature, top_k, top_p)
    best, tops = best_two(logits, flag)
    if temperature == 0:
        return best, tops
    rows, n = logits.shape
    z = torch.empty(rows, n, dtype=torch.float32, device=logits.device)
    launch(_divide, -(-rows * n // _BLOCK), logits.contiguous(), z, t, rows * n, BLOCK=_BLOCK)
    # Division keeps the order, so the greatest stays greatest.
    flag |= ~z.gather(1, best[:, None]).isfinite().all()
    kept = None
    if 0 < top_k < n:
        keys = order.keys(z)
        kept = keys >= keys.topk(top_k, dim=1).values[:, -1:]
    y = softmax(z, 1, mask=kept)
    if top_p < 1:
        keys = order.keys(y)
        ranked = keys.sort(dim=1, descending=True).values
        sums = ascending_sums(y.gather(1, order.indices(ranked)))
        count = (sums < p).sum(1, keepdim=True).clamp(max=n - 1)
        nucleus = keys >= ranked.gather(1, count)
        kept = nucleus if kept is None else kept & nucleus
    weights = y if kept is None else y.masked_fill(~kept, 0.0)
    return draw(weights, uniforms(seed, positions, ids)), tops


def _factors(temperature: float, top_k: int, top_p: float) -> tuple[float, float]:
    """Temperature and top-p as the kernels use them.

    Raises:
        UnsupportedError: one of the three is outside its range.
    """
    t, p = rn32(float(temperature)), rn32(float(top_p))
    if not (math.isfinite(t) and t >= 0 and (t > 0 or temperature == 0)):
        raise UnsupportedError(f"sampling at temperature {temperature}")
    if top_k < 0 or not 0 < p <= 1:
        raise UnsupportedError(f"sampling with top_k {top_k} and top_p {top_p}")
    return t, p


def _nucleus(y: torch.Tensor, p: float) -> torch.Tensor:
    """The ids of the shortest prefix whose running sum reaches p; looks at few first: they usually do."""
    n = y.numel()
    for looked in (min(n, _FIRST_LOOK), n):
        values, ids = order.topk(y, looked)
        count = int((ascending_sums(values[None]) < p).sum()) + 1
        if count <= looked:
            break
    return ids[:count]


def _builds() -> Iterator[Build]:
    block = {"BLOCK": _BLOCK}
    draws = {"positions": "*i64", "ids": "*i64", "out": "*fp32", "total": "i32"}
    yield Build(_uniform, {**draws, "seed_low": "i64", "seed_high": "i32"}, block, fma=False)
    for kind in ("*fp32", "*bf16", "*fp16"):
        yield Build(_divide, {"x": kind, "out": "*fp32", "divisor": "fp32", "total": "i32"}, block, fma=False)
    sizes = dict.fromkeys(("n", "stride", "rows", "steps"), "i32")
    pointers = {"sums": "*fp32", "u": "*fp32", "out": "*i64"}
    yield Build(_first_above, {**pointers, **sizes}, {"LANES": _LANES}, fma=False)


BUILDS = tuple(_builds())
"""Every kernel and dtype."""
