"""Attention under profile ``fp32``: a fused kernel with the bits of ``repro_kernels.spec.attention``.

Each step has the activation type's result: scores by the dot rule, * scale, soft cap, softmax with its sum by
the segment rule over key positions, the division before the second product, that product by the dot rule. The
index of a key is its position. A key that the causal, window, length or boolean mask excludes has weight +0,
whatever its score; where no query attends to it, its contents do not matter. Batch, padding, strides, threads
and instruction set do not show in the result, and a row of a prefill equals the same row decoded alone.
Tests: ``tests/kernels/test_attention*.py``.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from typing import Any

import torch

from repro_kernels.cpu import native
from repro_kernels.errors import NonFiniteError, UnsupportedError

_DTYPES = {getattr(torch, name): number for name, number in native.DTYPES.items()}
_KINDS = ("", "query", "key", "value", "score")


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
    """Softmax attention, query head h reading key head ``h // (H // Hkv)``.

    Args:
        q: queries [B, H, Sq, D]; float32, bfloat16 or float16, as k and v.
        k: keys [B, Hkv, Sk, D], a view of a cache without copying where the last axis is contiguous.
        v: values [B, Hkv, Sk, Dv], likewise.
        scale: factor of the scores, used as its nearest float.
        out_dtype: the activation type, to which every step rounds.
        mask: bool, broadcastable to [B, H, Sq, Sk]; True = may attend.
        q_positions: int64 [B, Sq], position of each query: key j is attended only if j <= position (causal).
        window: at least 1: and only if position - j < window; needs ``q_positions``.
        k_length: int64 [B]: keys from this index on do not exist and are never read.
        softcap: c of c * tanh(x / c), used as its nearest float.
        flag: int32 [1] to set to 1 instead of raising NonFiniteError; the result is void then. With it a GPU
            need not be waited for.

    Returns:
        [B, H, Sq, Dv] of ``out_dtype``, in memory [B, Sq, H, Dv]. Where a query may attend to nothing: +0.

    Raises:
        NonFiniteError: a query that attends to something, a key or value attended to, or their score is
            not finite.
        UnsupportedError: another dtype or device, or a window without positions.
        ValueError: the shapes do not fit.
    """
    batch, heads, queries, depth = _four(q, "q")
    key_heads, keys = _four(k, "k")[1:3]
    width = _four(v, "v")[3]
    if k.shape != (batch, key_heads, keys, depth) or v.shape[:3] != k.shape[:3] or heads % max(key_heads, 1):
        raise ValueError(f"attention: shapes {list(q.shape)}, {list(k.shape)} and {list(v.shape)} do not fit")
    for dtype in (q.dtype, k.dtype, v.dtype, out_dtype):
        if dtype not in _DTYPES:
            raise UnsupportedError(f"attention of {dtype}")
    if window is not None and (window < 1 or q_positions is None):
        raise UnsupportedError(f"attention with a window of {window} and positions {q_positions}")
    out = torch.empty(batch, queries, heads, width, dtype=out_dtype).transpose(1, 2)
    if out.numel() == 0:
        return out
    q, k, v = (t if t.stride(3) == 1 or t.shape[3] < 2 else t.contiguous() for t in (q, k, v))
    strides: tuple[int, ...] = (0, 0, 0, 0)
    if mask is not None:
        if mask.dtype != torch.bool:
            raise UnsupportedError(f"attention with a mask of {mask.dtype}")
        mask = mask.expand(batch, heads, queries, keys)
        strides = mask.stride()
    positions = _integers(q_positions, (batch, queries), "q_positions")
    lengths = _integers(k_length, (batch,), "k_length")
    problem = array(
        "q",
        (
            *(0 if t is None else t.data_ptr() for t in (q, k, v, out, mask, positions, lengths)),
            *(batch, heads, key_heads, queries, keys, depth, width),
            *(_DTYPES[dtype] for dtype in (q.dtype, k.dtype, v.dtype, out_dtype)),
            *(step for t in (q, k, v, out) for step in t.stride()[:3]),
            *strides,
            window or 0,
            softcap is not None,
        ),
    )
    found = array("q", (0, 0, 0, 0, 0))
    status = _kernel()(problem.buffer_info()[0], scale, softcap or 0.0, found.buffer_info()[0])
    if status != 0:
        raise MemoryError("no memory for attention")
    kind, b, h, i, j = found
    if kind and flag is not None:
        flag.fill_(1)
    elif kind:
        where = f"batch entry {b}, head {h}, query {i}" + (f", key {j}" if j >= 0 else "")
        raise NonFiniteError(f"an attention {_KINDS[kind]} ({where})")
    return out


@functools.cache
def _kernel() -> Any:
    function = native.fn("attention")
    function.restype = ctypes.c_int
    function.argtypes = [ctypes.c_void_p, ctypes.c_float, ctypes.c_float, ctypes.c_void_p]
    return function


def _four(t: torch.Tensor, name: str) -> torch.Size:
    if t.dim() != 4:
        raise ValueError(f"attention: {name} has {t.dim()} dimensions instead of 4")
    if t.device.type != "cpu":
        raise UnsupportedError(f"attention on {t.device.type}")
    return t.shape


def _integers(t: torch.Tensor | None, shape: tuple[int, ...], name: str) -> torch.Tensor | None:
    if t is None:
        return None
    if t.dtype != torch.int64 or t.dim() != len(shape):
        raise ValueError(f"attention: {name} is {t.dtype} {list(t.shape)} instead of int64 {list(shape)}")
    return t.expand(shape).contiguous()
