"""What people use today, kernel by kernel: cuBLAS, LayerCast, PyTorch's attention, batch_invariant_ops."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn import functional

INVARIANT = "batch_invariant_ops bf16"
_INVARIANT_PACKAGE = "batch_invariant_ops"


class Operands(NamedTuple):
    """One input set of a product, as each stack wants it: x and w in fp32 and in bf16."""

    x: torch.Tensor
    x_bf16: torch.Tensor
    w: torch.Tensor
    w_fp32: torch.Tensor


@dataclass(frozen=True)
class Product:
    """A way to compute x . w^T.

    Attributes:
        call: the product [M, N], of any dtype.
        weight_bytes: per weight, as it lies in memory.
        unit: what computes it, as in :class:`repro_audit.bench.roofline.Work`.
    """

    name: str
    call: Callable[[Operands], torch.Tensor]
    weight_bytes: int
    unit: str


def products(device: str) -> list[Product]:
    """The products to compare with on a device."""
    if device == "cpu":
        return [
            Product("torch fp32", _wide, 4, "fp32"),
            Product("LayerCast", _layercast, 2, "fp32"),
        ]
    found = [
        Product("cuBLAS bf16", _half, 2, "bf16"),
        Product("cuBLAS fp32", _wide, 4, "fp32"),
        Product("cuBLAS TF32", _tf32, 4, "tf32"),
        Product("LayerCast", _layercast, 2, "fp32"),
    ]
    if has_invariant():
        found.append(Product(INVARIANT, _invariant, 2, "bf16"))
    return found


def _wide(operands: Operands) -> torch.Tensor:
    return torch.matmul(operands.x, operands.w_fp32.t())


def _half(operands: Operands) -> torch.Tensor:
    return torch.matmul(operands.x_bf16, operands.w.t())


def _tf32(operands: Operands) -> torch.Tensor:
    with tf32(True):
        return _wide(operands)


def _layercast(operands: Operands) -> torch.Tensor:
    return torch.matmul(operands.x, operands.w.float().t())


def _invariant(operands: Operands) -> torch.Tensor:
    with invariant():
        return _half(operands)


@contextmanager
def tf32(on: bool) -> Iterator[None]:
    """TF32 in cuBLAS on or off, as it was afterwards."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = on
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def has_invariant() -> bool:
    """Whether batch_invariant_ops is installed."""
    return importlib.util.find_spec(_INVARIANT_PACKAGE) is not None


def invariant() -> Any:
    """The context in which batch_invariant_ops replaces PyTorch's operators."""
    return importlib.import_module(_INVARIANT_PACKAGE).set_batch_invariant_mode(True)


@dataclass(frozen=True)
class Attention:
    """A way to attend: q [B, H, Sq, D], k, v [B, Hkv, Sk, D] -> [B, H, Sq, D]; causal, or over all keys."""

    name: str
    call: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]
    dtype: torch.dtype
    unit: str


def attentions(device: str) -> list[Attention]:
    """The attentions to compare with on a device: PyTorch picks the kernel, and all heads share keys."""
    found = [Attention("torch sdpa fp32 (LayerCast)", _sdpa, torch.float32, "fp32")]
    if device != "cpu":
        found.insert(0, Attention("torch sdpa bf16", _sdpa, torch.bfloat16, "bf16"))
    return found


def _sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
