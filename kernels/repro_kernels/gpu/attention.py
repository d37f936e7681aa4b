"""Attention under profile ``fp32`` on CUDA tensors: the composition of the specification, three launches.

The function, its arguments, errors and bits are those of ``repro_kernels.cpu.attention``. Three forms, chosen
by the number of rows (queries times heads that share a key head): ``attention_few`` for decoding,
``attention_tiles`` for prompts, ``attention_plain`` for anything. Every output and every partial sum belongs
to one thread, so the form cannot change a bit. A row in which something is not finite raises a flag on the
device; then the CPU computes the call, and says what is wrong. Lengths and positions are read by the kernels
alone, so a call with a flag can stand in a CUDA graph. Tests: ``tests/gpu/cases_attention.py``.
"""

from __future__ import annotations

import torch

from repro_kernels.cpu import attention as cpu
from repro_kernels.cpu.layout import DTYPES
from repro_kernels.errors import UnsupportedError
from repro_kernels.gpu import attention_few as few
from repro_kernels.gpu import attention_plain as plain
from repro_kernels.gpu import attention_tiles as tiles
from repro_kernels.gpu.attention_parts import Call
from repro_kernels.gpu.runtime import INTERPRETED, require
from repro_kernels.spec.floats import rn32

_SCRATCH = 1 << 28
"""Most scores that stand in memory at once, unless one query of the batch has more."""

_TILED = 48
"""Rows (queries times heads of a group) from which whole tiles pay."""


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float,
    out_dtype: torch.dtype,
    mask: torch.Tensor | None = None,
    q_positions: torch.Tensor | None = None,
    window: int | None = None,
    k_length: torch.Tensor | None = None,
    softcap: float | None = None,
    flag: torch.Tensor | None = None,
) -> torch.Tensor:
    """Softmax attention: :func:`repro_kernels.cpu.attention.attention`, with the same errors.

    The call waits for the device: whether everything was finite is part of its answer. With ``flag`` (int32
    [1]) it does not; where the CPU might raise NonFiniteError the flag is set to 1, and the result is void.
    """
    batch, heads, queries, depth = _four(q, "q")
    key_heads, keys = _four(k, "k")[1:3]
    width = _four(v, "v")[3]
    if k.shape != (batch, key_heads, keys, depth) or v.shape[:3] != k.shape[:3] or heads % max(key_heads, 1):
        raise ValueError(f"attention: shapes {list(q.shape)}, {list(k.shape)} and {list(v.shape)} do not fit")
    for dtype in (q.dtype, k.dtype, v.dtype, out_dtype):
        if dtype not in DTYPES:
            raise UnsupportedError(f"attention of {dtype}")
    if window is not None and (window < 1 or q_positions is None):
        raise UnsupportedError(f"attention with a window of {window} and positions {q_positions}")
    out = torch.empty(batch, queries, heads, width, dtype=out_dtype, device=q.device).transpose(1, 2)
    if out.numel() == 0:
        return out
    q, k, v = (t if t.stride(3) == 1 or t.shape[3] < 2 else t.contiguous() for t in (q, k, v))
    if mask is not None:
        if mask.dtype != torch.bool:
            raise UnsupportedError(f"attention with a mask of {mask.dtype}")
        mask = mask.expand(batch, heads, queries, keys)
    positions = _integers(q_positions, (batch, queries), "q_positions")
    lengths = _integers(k_length, (batch,), "k_length")
    waits = flag is None
    if flag is None:
        flag = torch.zeros(1, dtype=torch.int32, device=q.device)
    together = max(1, _SCRATCH // (batch * heads * max(keys, 1)))
    for start in range(0, queries, together):
        some = slice(start, min(queries, start + together))
        to = out[:, :, some]
        gaps = not to.transpose(1, 2).is_contiguous()
        dense = torch.empty_like(to.transpose(1, 2)).transpose(1, 2) if gaps else to
        _attend(
            Call(
                q[:, :, some],
                k,
                v,
                dense,
                flag,
                None if mask is None else mask[:, :, some],
                None if positions is None else positions[:, some].contiguous(),
                lengths,
                window,
                rn32(scale),
                None if softcap is None else rn32(softcap),
            )
        )
        if gaps:
            to.copy_(dense)
    if not waits or not flag.item():
        return out
    everything = [None if t is None else t.cpu() for t in (q, k, v, mask, q_positions, k_length)]
    left, key, value, allowed, places, ends = everything
    assert left is not None and key is not None and value is not None
    return cpu.attention(
        left,
        key,
        value,
        scale=scale,
        out_dtype=out_dtype,
        mask=allowed,
        q_positions=places,
        window=window,
        k_length=ends,
        softcap=softcap,
    ).to(q.device)


def _attend(call: Call) -> None:
    """Some queries, by the form that suits their number."""
    if INTERPRETED or call.keys == 0:
        plain.run(call)
    elif call.rows >= _TILED:
        tiles.run(call)
    elif few.fits(call):
        few.run(call)
    else:
        plain.run(call)


def _four(t: torch.Tensor, name: str) -> torch.Size:
    if t.dim() != 4:
        raise ValueError(f"attention: {name} has {t.dim()} dimensions instead of 4")
    require(t.device)
    return t.shape


def _integers(t: torch.Tensor | None, shape: tuple[int, ...], name: str) -> torch.Tensor | None:
    if t is None:
        return None
    if t.dtype != torch.int64 or t.dim() != len(shape):
        raise ValueError(f"attention: {name} is {t.dtype} {list(t.shape)} instead of int64 {list(shape)}")
    return t.expand(shape).contiguous()
