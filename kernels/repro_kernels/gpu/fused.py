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
"""Elements of a program."""


@triton.jit
def _swiglu(gate, up, out, gate_stride, up_stride, n, BLOCK: tl.constexpr):
    """A block of a row of n; strides in elements, out contiguous."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(gate + row * gate_stride + i, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(up + row * up_stride + i, mask=inside, other=0.0).to(tl.float32)
    s = rounded(tl.div_rn(x, 1.0 + exp_rn(-x)), out.dtype.element_ty)
    store(out + row * n + i, s * y, inside)


@triton.jit
def _turn(
    program, x, out, cosine, sine, rows, heads, positions, width, rotated_width,
    x0, x1, x2, out0, out1, out2, cos0, cos1, sin0, sin1,
    HALF: tl.constexpr, REST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """ROWS rows of x [batch, heads, positions, width]; elements from `rotated_width` on are copied."""
    row = program * ROWS + tl.arange(0, ROWS)
    real = (row < rows)[:, None]
    s = (row % positions).to(tl.int64)
    h = (row // positions % heads).to(tl.int64)
    b = (row // positions // heads).to(tl.int64)
    source = (x + b * x0 + h * x1 + s * x2)[:, None]
    target = (out + b * out0 + h * out1 + s * out2)[:, None]
    half = rotated_width // 2
    d = tl.arange(0, HALF)[None, :]
    inside = real & (d < half)
    first = tl.load(source + d, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + half + d, mask=inside, other=0.0).to(tl.float32)
    c = (cosine + b * cos0 + s * cos1)[:, None] + d
    t = (sine + b * sin0 + s * sin1)[:, None] + d
    kind = out.dtype.element_ty
    own = rounded(first * tl.load(c, mask=inside, other=0.0).to(tl.float32), kind)
    other = second * -1.0  # a minus sign would be 0 - x, which is +0 for +0
    other = rounded(other * tl.load(t, mask=inside, other=0.0).to(tl.float32), kind)
    store(target + d, own + other, inside)
    own = rounded(second * tl.load(c + half, mask=inside, other=0.0).to(tl.float32), kind)
    other = rounded(first * tl.load(t + half, mask=inside, other=0.0).to(tl.float32), kind)
    store(target + half + d, own + other, inside)
    if REST > 0:
        d = rotated_width + tl.arange(0, REST)[None, :]
        inside = real & (d < width)
        tl.store(target + d, tl.load(source + d, mask=inside, other=0.0), mask=inside)


@triton.jit(do_not_specialize=["q_rows", "k_rows", "q_heads", "k_heads", "positions"])
def _rotate(
    q, k, q_out, k_out, cosine, sine, q_rows, k_rows, q_heads, k_heads, positions, width, rotated_width,
    q0, q1, q2, k0, k1, k2, qo0, qo1, qo2, ko0, ko1, ko2, cos0, cos1, sin0, sin1,
    HALF: tl.constexpr, REST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """First the programs of q, then those of k."""
    program = tl.program_id(0)
    before = tl.cdiv(q_rows, ROWS)
    if program < before:
        _turn(
            program, q, q_out, cosine, sine, q_rows, q_heads, positions, width, rotated_width,
            q0, q1, q2, qo0, qo1, qo2, cos0, cos1, sin0, sin1, HALF, REST, ROWS,
        )  # fmt: skip
    else:
        _turn(
            program - before, k, k_out, cosine, sine, k_rows, k_heads, positions, width, rotated_width,
            k0, k1, k2, ko0, ko1, ko2, cos0, cos1, sin0, sin1, HALF, REST, ROWS,
        )  # fmt: skip


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
    if out.numel():
        left, right = _rows(gate), _rows(up)
        rows, n = left.shape
        block = _BLOCK if n > 128 else 128
        launch(
            _swiglu, (rows, -(-n // block)), left, right, out, left.stride(0), right.stride(0), n,
            BLOCK=block, num_warps=block // 256 or 1,
        )  # fmt: skip
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
    q, k, cos, sin = (_last_contiguous(t) for t in (q, k, cos, sin))
    outs = [_like(t) for t in (q, k)]
    counts = [t.numel() // max(t.shape[3], 1) for t in (q, k)]
    half = max(16, triton.next_power_of_2(width // 2))
    rest = q.shape[3] - width
    height = max(1, _BLOCK // half)
    tables = [step for t in (cos, sin) for step in (t.stride(0) if t.shape[0] > 1 else 0, t.stride(1))]
    launch(
        _rotate, sum(-(-count // height) for count in counts), q, k, *outs, cos, sin,
        *counts, q.shape[1], k.shape[1], q.shape[2], q.shape[3], width,
        *(step for t in (q, k, *outs) for step in t.stride()[:3]), *tables,
        HALF=half, REST=triton.next_power_of_2(rest) if rest else 0, ROWS=height,
    )  # fmt: skip
    return outs[0], outs[1]


def _like(x: torch.Tensor) -> torch.Tensor:
    """An empty tensor, its axes in memory in x's order if the last one is last there too."""
    out = torch.empty_like(x)
    return out if out.stride(3) == 1 else torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _last_contiguous(t: torch.Tensor) -> torch.Tensor:
    return t if t.stride(-1) == 1 else t.contiguous()


def _rows(t: torch.Tensor) -> torch.Tensor:
    """t as [rows, n], n contiguous: a view where t's strides allow."""
    if t.dim() < 2:
        return t.contiguous().view(1, -1)
    return _last_contiguous(t).reshape(math.prod(t.shape[:-1]), t.shape[-1])


def _builds() -> Iterator[Build]:
    for kind, rest in (("*fp32", 0), ("*bf16", 32), ("*fp16", 0)):
        pointers = dict.fromkeys(("gate", "up", "out"), kind)
        sizes = dict.fromkeys(("gate_stride", "up_stride", "n"), "i32")
        yield Build(_swiglu, {**pointers, **sizes}, {"BLOCK": _BLOCK}, divisible=(*pointers, *sizes))
        pointers = dict.fromkeys(("q", "k", "q_out", "k_out", "cosine", "sine"), kind)
        how = {"HALF": 64, "REST": rest, "ROWS": _BLOCK // 64}
        numbers = {name: "i32" for name in _rotate.arg_names if name not in pointers and name not in how}
        strides = tuple(name for name in numbers if name[-1].isdigit())
        # On sm_80 LLVM multiplies two bfloat16 by an FMA with -0: an exact product, rounded once too.
        yield Build(_rotate, {**pointers, **numbers}, how, divisible=(*pointers, "width", *strides))


BUILDS = tuple(_builds())
"""Every kernel and dtype."""
