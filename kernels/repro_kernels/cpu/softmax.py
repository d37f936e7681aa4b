"""Softmax and log-softmax under profile ``fp32`` on CPU tensors.

The bit contract (``repro_kernels.spec.attention``): ``m`` = max; ``e_i = exp(RN(x_i - m))``, correctly
rounded; ``s`` by the segment rule along the axis; ``y_i = RN_out(RN(e_i / s))``; log-softmax is
``RN_out(RN(RN(x_i - m) - log(s)))``. A masked entry is +0 and enters neither m nor s. A row with no entry
above -inf is all +0 (log-softmax: -inf). A NaN among the entries that count makes them all NaN. Tests:
``tests/kernels/test_softmax.py``.
"""

from __future__ import annotations

import struct

import torch

from repro_kernels.cpu.layout import axis, check, kernel, number

_SOFTMAX = struct.Struct("=8q")
"""``softmax_job`` of csrc/reduce_softmax.c."""


def softmax(
    x: torch.Tensor, dim: int, *, out_dtype: torch.dtype | None = None, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Softmax along one axis.

    Args:
        x: float32, bfloat16 or float16, any strides; ``softmax(x, dtype=d)`` casts x to d first.
        dim: the axis; its first element has position 0.
        out_dtype: result type; default that of x.
        mask: bool, broadcastable to x, True where the entry takes part; default everywhere.

    Returns:
        A tensor of x's shape, contiguous with `dim` innermost.

    Raises:
        UnsupportedError: another dtype, or a mask that is not bool.
        IndexError: no such axis.
    """
    return _run(x, dim, mask, False, out_dtype or x.dtype)


def log_softmax(x: torch.Tensor, dim: int, *, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """Log-softmax along one axis; arguments and errors as in :func:`softmax`."""
    return _run(x, dim, None, True, out_dtype or x.dtype)


def _run(
    x: torch.Tensor, dim: int, mask: torch.Tensor | None, logarithm: bool, out_dtype: torch.dtype
) -> torch.Tensor:
    dim = axis(x, dim)
    source, target = number(x.dtype, "softmax"), number(out_dtype, "softmax")
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
    record = _SOFTMAX.pack(
        rows.data_ptr(),
        0 if allowed is None else allowed.data_ptr(),
        out.data_ptr(),
        rows.numel() // n,
        n,
        source,
        target,
        logarithm,
    )
    check(kernel("softmax")(record), "softmax")
    return out if last else out.movedim(-1, dim)
