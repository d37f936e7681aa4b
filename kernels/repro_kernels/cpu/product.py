"""The call of the C kernel ``rk_gemm``: tensors become pointers, strides and offsets."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from array import array
from typing import Any

import torch

from repro_kernels.cpu import native
from repro_kernels.errors import UnsupportedError

SEGMENT = 128
"""Length of a segment of the contracted axis (``RK_SEGMENT``)."""

_DTYPES = {getattr(torch, name): number for name, number in native.DTYPES.items()}


def product(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    k_start: int = 0,
) -> None:
    """``RN_out(RN(RN(beta * bias) + RN(alpha * acc)))``, acc the rows of a against the rows of b, into out.

    Without a bias: ``RN_out(RN(alpha * acc))``.

    Args:
        a: [*batch, M, K], any strides.
        b: [*batch, N, K], the same batch, any strides.
        bias: broadcastable to out, or None.
        out: [*batch, M, N], contiguous.
        beta: factor of the bias, used as its nearest float.
        alpha: factor of the product, used as its nearest float.
        k_start: position of the first contracted index.

    Raises:
        UnsupportedError: a tensor is not float32, bfloat16 or float16, or not on the CPU.
        MemoryError: no memory for the packed rows.
    """
    if not out.numel():
        check(a, b, bias, out.dtype)
        return
    m, k = a.shape[-2:]
    shape = (out.numel() // (m * b.shape[-2]), m, b.shape[-2], k, k_start % SEGMENT)
    strides = (*a.stride()[-2:], *b.stride()[-2:])
    if bias is not None:
        bias = bias.expand(out.shape)
        strides = (*strides, *bias.stride()[-2:])
    call(
        shape,
        a,
        b,
        out,
        bias,
        strides,
        a_offsets=_offsets(a),
        b_offsets=_offsets(b),
        bias_offsets=None if bias is None else _offsets(bias),
        alpha=alpha,
        beta=beta,
    )


def call(  # noqa: PLR0917 - four tensors in the order of the C call
    shape: tuple[int, int, int, int, int],
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    strides: tuple[int, ...],
    *,
    a_offsets: bytes | None = None,
    b_offsets: bytes | None = None,
    bias_offsets: bytes | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> None:
    """:func:`product` for a caller that knows the numbers (a decode step makes hundreds of these calls).

    Args:
        shape: batch, M, N, K, k_start modulo 128.
        a: left matrices; only its memory and dtype are read.
        b: right matrices, likewise.
        out: [batch, M, N], contiguous, not empty.
        bias: likewise, or None.
        strides: in elements, of a's M and K, of b's N and K, and with a bias of its M and N.
        a_offsets: int64 element offset of each batch entry; None for a single one.
        b_offsets: likewise.
        bias_offsets: likewise.
        alpha: factor of the product.
        beta: factor of the bias.

    Raises:
        UnsupportedError: a tensor is not float32, bfloat16 or float16, or not on the CPU.
        MemoryError: no memory for the packed rows.
    """
    numbers = struct.pack(
        "15q", *shape, *strides, *(() if len(strides) == 6 else (0, 0)), *check(a, b, bias, out.dtype)
    )
    failed = _kernel()(
        numbers,
        a.data_ptr(),
        b.data_ptr(),
        out.data_ptr(),
        None if bias is None else bias.data_ptr(),
        a_offsets,
        b_offsets,
        bias_offsets,
        alpha,
        beta,
    )
    if failed:
        raise MemoryError("no memory for a matrix product")


def check(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, out_dtype: torch.dtype
) -> tuple[int, int, int, int]:
    """The C numbers of the dtypes of a, b, the result and the bias (0 without one).

    Raises:
        UnsupportedError: one is not float32, bfloat16 or float16, or a tensor is not on the CPU.
    """
    if not (a.is_cpu and b.is_cpu and (bias is None or bias.is_cpu)):
        raise UnsupportedError("a matrix product outside the CPU")
    try:
        return (
            _DTYPES[a.dtype],
            _DTYPES[b.dtype],
            _DTYPES[out_dtype],
            0 if bias is None else _DTYPES[bias.dtype],
        )
    except KeyError as error:
        raise UnsupportedError(f"a matrix product with {error.args[0]}") from None


@functools.cache
def _kernel() -> Any:
    function = native.fn("gemm")
    function.restype = ctypes.c_int
    function.argtypes = [
        ctypes.c_char_p,
        *[ctypes.c_void_p] * 4,
        *[ctypes.c_char_p] * 3,
        *[ctypes.c_float] * 2,
    ]
    return function


def _offsets(t: torch.Tensor) -> bytes | None:
    """Element offset of every batch entry of t [*batch, rows, columns] in C order; None for one entry."""
    sizes, strides = t.shape[:-2], t.stride()[:-2]
    if math.prod(sizes) == 1:
        return None
    offsets = list(range(0, sizes[0] * strides[0], strides[0])) if strides[0] else [0] * sizes[0]
    for size, stride in zip(sizes[1:], strides[1:], strict=True):
        offsets = [base + index * stride for base in offsets for index in range(size)]
    return array("q", offsets).tobytes()
