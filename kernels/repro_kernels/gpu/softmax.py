"""Softmax and log-softmax under profile ``fp32`` on CUDA tensors: one program a row.

The functions, their arguments, errors and bits are those of ``repro_kernels.cpu.softmax``. The maximum is
the same in any order; the exponentials are stored, then one lane adds each segment of 128 of them, and
every thread adds the partial sums in order. Tests: ``tests/gpu/cases_softmax.py``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from repro_kernels.cpu.layout import axis, number
from repro_kernels.gpu.elementary_core import exp_rn, log_rn
from repro_kernels.gpu.language import load, store
from repro_kernels.gpu.norm import row_sum
from repro_kernels.gpu.runtime import Build, launch, require

_BLOCK = 512
_LANES = 32


@triton.jit
def exponentials(x, m):
    """``exp(RN(x - m))``; +0 where x is -inf, whatever m."""
    none = x == -float("inf")
    return tl.where(none, 0.0, exp_rn(tl.where(none, 0.0, x - m)))


@triton.jit
def greatest(x):
    """The greatest element of a block, a NaN if there is one: (greatest of the others, 1 or 0)."""
    nan = x != x  # noqa: PLR0124 - a NaN
    return tl.max(tl.where(nan, -float("inf"), x), axis=0), tl.max(nan.to(tl.int32), axis=0)


@triton.jit
def _softmax(
    x, mask, out, e, parts, n, stride, segments, LOG: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr
):
    """Row of x [rows, n], mask alike or None, to out; scratch: e [rows, stride], parts [rows, segments]."""
    row = tl.program_id(0).to(tl.int64)
    x += row * n
    out += row * n
    m = -float("inf")
    any_nan = 0
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        open = i < n
        if mask is not None:
            open = open & (tl.load(mask + row * n + i, mask=open, other=0) != 0)
        value = tl.where(open, load(x + i, open), -float("inf"))
        most, nan = greatest(value)
        m = tl.maximum(m, most)
        any_nan = tl.maximum(any_nan, nan)
    m = tl.where(any_nan != 0, float("nan"), m)
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        open = i < n
        if mask is not None:
            open = open & (tl.load(mask + row * n + i, mask=open, other=0) != 0)
        value = load(x + i, open)
        none = (value == -float("inf")) & (m == -float("inf"))
        power = exp_rn(tl.where(none, -float("inf"), value - m))
        tl.store(e + row * stride + i, tl.where(open, power, 0.0), mask=i < stride)
    tl.debug_barrier()
    s = row_sum(e, row * stride, parts + row * segments, stride, segments, 0.0, 0, 4, LANES)
    empty = m == -float("inf")
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        inside = i < n
        if LOG:
            value = (load(x + i, inside) - m) - log_rn(tl.zeros([BLOCK], tl.float32) + s)
            value = tl.where(empty, -float("inf"), value)
        else:
            power = tl.load(e + row * stride + i, mask=inside, other=0.0)
            value = tl.where(empty, 0.0, tl.div_rn(power, tl.where(empty, 1.0, s)))
            if mask is not None:
                value = tl.where(tl.load(mask + row * n + i, mask=inside, other=0) != 0, value, 0.0)
        store(out + i, value, inside)


def softmax(
    x: torch.Tensor, dim: int, *, out_dtype: torch.dtype | None = None, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Softmax along one axis: :func:`repro_kernels.cpu.softmax.softmax`."""
    return _run(x, dim, mask, False, out_dtype or x.dtype)


def log_softmax(x: torch.Tensor, dim: int, *, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """Log-softmax along one axis: :func:`repro_kernels.cpu.softmax.log_softmax`."""
    return _run(x, dim, None, True, out_dtype or x.dtype)


def _run(
    x: torch.Tensor, dim: int, mask: torch.Tensor | None, logarithm: bool, out_dtype: torch.dtype
) -> torch.Tensor:
    require(x.device)
    dim = axis(x, dim)
    number(x.dtype, "softmax")
    number(out_dtype, "softmax")
    last = x.dim() <= 1 or dim == x.dim() - 1
    rows = x.contiguous() if last else x.movedim(dim, -1).contiguous()
    out = torch.empty_like(rows, dtype=out_dtype)
    if out.numel() == 0:
        return out if last else out.movedim(-1, dim)
    allowed = None
    if mask is not None:
        number(torch.float32 if mask.dtype == torch.bool else mask.dtype, "softmax with a mask")
        spread = mask.expand(x.shape)
        allowed = (spread if last else spread.movedim(dim, -1)).contiguous()
    n = rows.shape[-1] if rows.dim() else 1
    count, stride, segments = rows.numel() // n, -(-n // 4) * 4, -(-n // 128)
    powers = torch.empty(count * stride, dtype=torch.float32, device=x.device)
    parts = torch.empty(count * segments, dtype=torch.float32, device=x.device)
    launch(
        _softmax, count, rows, allowed, out, powers, parts, n, stride, segments,
        LOG=logarithm, BLOCK=min(_BLOCK, max(32, triton.next_power_of_2(stride))), LANES=_LANES,
        num_warps=1 if n <= 256 else 4,
    )  # fmt: skip
    return out if last else out.movedim(-1, dim)


def _builds() -> tuple[Build, ...]:
    types = [("*fp32", "*fp32"), ("*bf16", "*bf16"), ("*fp16", "*fp16"), ("*bf16", "*fp32")]
    sizes = dict.fromkeys(("n", "stride", "segments"), "i32")
    scratch = {"e": "*fp32", "parts": "*fp32"}
    how = {"BLOCK": _BLOCK, "LANES": _LANES}
    return (
        *(
            Build(_softmax, {"x": x, "out": out, **scratch, **sizes}, {"mask": None, "LOG": False, **how})
            for x, out in types
        ),
        Build(
            _softmax, {"x": "*fp32", "mask": "*i1", "out": "*fp32", **scratch, **sizes}, {"LOG": False, **how}
        ),
        Build(
            _softmax, {"x": "*fp32", "out": "*fp32", **scratch, **sizes}, {"mask": None, "LOG": True, **how}
        ),
    )


BUILDS = _builds()
"""Every type of rows, with and without a mask."""
