"""Steps of transformer modules in one launch each, under profile ``fp32`` on CUDA tensors.

The functions, their arguments, errors and bits are those of ``repro_kernels.cpu.fused``: the bits of the
module's own sequence of steps, each with its result type and casts. Tests: ``tests/gpu/cases_fused.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from repro_kernels.cpu.layout import number
from repro_kernels.errors import UnsupportedError
from repro_kernels.gpu.elementary_core import exp_rn
from repro_kernels.gpu.language import rounded, store
from repro_kernels.gpu.norm import normalise_rows
from repro_kernels.gpu.runtime import Build, launch

_BLOCK = 1024


@triton.jit
def _swiglu(gate, up, out, gate_stride, up_stride, n, total, BLOCK: tl.constexpr):
    """Rows of n, strides in elements, out contiguous."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = e < total
    row = e // n
    i = e - row * n
    x = tl.load(gate + row * gate_stride + i, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(up + row * up_stride + i, mask=inside, other=0.0).to(tl.float32)
    s = rounded(tl.div_rn(x, 1.0 + exp_rn(-x)), out.dtype.element_ty)
    store(out + e, s * y, inside)


@triton.jit
def _rotate(
    x, out, cosine, sine, heads, positions, width, rotated_width, total,
    x0, x1, x2, out0, out1, out2, cos0, cos1, sin0, sin1, BLOCK: tl.constexpr,
):  # fmt: skip
    """x [batch, heads, positions, width], by strides; elements from `rotated_width` on are copied."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = e < total
    row = e // width
    d = e - row * width
    s = row % positions
    h = row // positions % heads
    b = row // positions // heads
    source = x + b * x0 + h * x1 + s * x2
    half = rotated_width // 2
    turns = inside & (d < rotated_width)
    second = d >= half
    raw = tl.load(source + d, mask=inside, other=0.0)
    own = raw.to(tl.float32)
    other = tl.load(source + tl.where(second, d - half, d + half), mask=turns, other=0.0).to(tl.float32)
    other = other * tl.where(second, 1.0, -1.0)  # a minus sign would be 0 - x, which is +0 for +0
    c = tl.load(cosine + b * cos0 + s * cos1 + d, mask=turns, other=0.0).to(tl.float32)
    t = tl.load(sine + b * sin0 + s * sin1 + d, mask=turns, other=0.0).to(tl.float32)
    kind = out.dtype.element_ty
    target = out + b * out0 + h * out1 + s * out2 + d
    store(target, rounded(own * c, kind) + rounded(other * t, kind), turns)
    tl.store(target, raw, mask=inside & (d >= rotated_width))


def rms_norm_module(x: torch.Tensor, w: torch.Tensor, eps: float, *, one_plus: bool = False) -> torch.Tensor:
    """An RMSNorm module over the last axis: :func:`repro_kernels.cpu.fused.rms_norm_module`."""
    number(x.dtype, "rms_norm_module"), number(w.dtype, "rms_norm_module")
    if x.dim() == 0 or w.shape != x.shape[-1:]:
        raise ValueError(f"rms_norm_module: shapes {list(x.shape)} and {list(w.shape)} do not fit")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    rows = _rows(x)
    normalise_rows(
        rows,
        out,
        w.contiguous(),
        None,
        rows=rows.shape[0],
        n=rows.shape[1],
        stride=rows.stride(0),
        eps=eps,
        centre=False,
        first=not one_plus,
        one_plus=one_plus,
    )
    return out


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``RN_a(RN_a(silu(gate)) * up)``: :func:`repro_kernels.cpu.fused.swiglu`."""
    number(gate.dtype, "swiglu")
    if gate.shape != up.shape:
        raise ValueError(f"swiglu: shapes {list(gate.shape)} and {list(up.shape)} differ")
    if up.dtype != gate.dtype:
        raise UnsupportedError(f"swiglu of {gate.dtype} and {up.dtype}")
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    total = out.numel()
    if total:
        left, right = _rows(gate), _rows(up)
        strides = left.stride(0), right.stride(0)
        launch(_swiglu, -(-total // _BLOCK), left, right, out, *strides, left.shape[1], total, BLOCK=_BLOCK)
    return out


def rotary(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers' ``apply_rotary_pos_emb``: :func:`repro_kernels.cpu.fused.rotary`."""
    if any(t.dim() != 4 for t in (q, k)) or any(t.dim() != 3 for t in (cos, sin)) or cos.shape != sin.shape:
        raise ValueError("rotary: q, k are [B, H, S, D], cos, sin [B, S, R]")
    width = cos.shape[2]
    for t in (q, k):
        fits = cos.shape[0] in (1, t.shape[0]) and cos.shape[1] == t.shape[2]
        if not fits or width > t.shape[3] or width % 2:
            raise ValueError(f"rotary: shapes {list(t.shape)} and {list(cos.shape)} do not fit")
    number(q.dtype, "rotary")
    if any(t.dtype != q.dtype for t in (k, cos, sin)):
        raise UnsupportedError(f"rotary of {q.dtype}, {k.dtype}, {cos.dtype} and {sin.dtype}")
    cos, sin = (_last_contiguous(t) for t in (cos, sin))
    return _turn(q, cos, sin), _turn(k, cos, sin)


def _turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    x = _last_contiguous(x)
    out = torch.empty_like(x)
    if out.stride(3) != 1:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = out.numel()
    if total:
        tables = [step for t in (cos, sin) for step in (t.stride(0) if t.shape[0] > 1 else 0, t.stride(1))]
        launch(
            _rotate,
            -(-total // _BLOCK),
            *(x, out, cos, sin, *x.shape[1:], cos.shape[2], total),
            *(*x.stride()[:3], *out.stride()[:3], *tables),
            BLOCK=_BLOCK,
        )
    return out


def _last_contiguous(t: torch.Tensor) -> torch.Tensor:
    return t if t.stride(-1) == 1 else t.contiguous()


def _rows(t: torch.Tensor) -> torch.Tensor:
    """t as [rows, n], n contiguous: a view where t's strides allow."""
    if t.dim() < 2:
        return t.contiguous().view(1, -1)
    return _last_contiguous(t).reshape(math.prod(t.shape[:-1]), t.shape[-1])


def _builds() -> Iterator[Build]:
    for kind in ("*fp32", "*bf16", "*fp16"):
        pointers = dict.fromkeys(("gate", "up", "out"), kind)
        sizes = dict.fromkeys(("gate_stride", "up_stride", "n", "total"), "i32")
        yield Build(_swiglu, {**pointers, **sizes}, {"BLOCK": _BLOCK}, divisible=("gate", "up", "out", "n"))
        pointers = dict.fromkeys(("x", "out", "cosine", "sine"), kind)
        numbers = {name: "i32" for name in _rotate.arg_names if name not in pointers and name != "BLOCK"}
        # On sm_80 LLVM multiplies two bfloat16 by an FMA with -0: an exact product, rounded once too.
        yield Build(_rotate, {**pointers, **numbers}, {"BLOCK": _BLOCK}, divisible=("x", "out", "width"))


BUILDS = tuple(_builds())
"""Every kernel and dtype."""
