"""What the forms of attention on a GPU share: the call, which keys a query may attend to, a score's rounding.

The rows of a call are the queries of all heads that share a key head: row = query * group + head of the
group.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from repro_kernels.gpu.elementary_core import tanh_rn
from repro_kernels.gpu.language import rounded


@triton.jit
def not_finite(x):
    """Whether a float32 is an infinity or a NaN."""
    return (x.to(tl.int32, bitcast=True) & 0x7F800000) == 0x7F800000


@triton.jit
def span(positions, lengths, b, i, queries, keys, window):
    """First and last + 1 key that query i of batch entry b may attend to, masks aside."""
    low = i * 0
    high = low + keys
    if lengths is not None:
        high = tl.minimum(high, tl.load(lengths + b).to(tl.int32))
    if positions is not None:
        at = tl.load(positions + b * queries + i)
        high = tl.minimum(high, (at + 1).to(tl.int32))
        if window is not None:
            low = tl.maximum(low, (at - window + 1).to(tl.int32))
    return low, high


@triton.jit
def logits(x, scale, softcap, kind: tl.constexpr):
    """``q . k``, already of type `kind`, scaled and capped; each step has the type's rounding.

    For scale >= 0 it never falls as x grows.
    """
    x = rounded(x * scale, kind)
    if softcap is not None:
        x = rounded(tl.div_rn(x, softcap), kind)
        x = rounded(tanh_rn(x), kind)
        x = rounded(x * softcap, kind)
    return x


class Call(NamedTuple):
    """Some queries of a call, with everything checked.

    Attributes:
        q: [B, H, Sq, D], contiguous along D, as k [B, Hkv, Sk, D] and v [B, Hkv, Sk, Dv] are.
        k: the keys.
        v: the values.
        out: [B, H, Sq, Dv], in memory [B, Sq, H, Dv] without gaps.
        flag: int32 [1], set to 1 where something is not finite.
        mask: bool [B, H, Sq, Sk], or None.
        positions: int64 [B, Sq] without gaps, or None.
        lengths: int64 [B], or None.
        window: keys that a query attends to at most, or None.
        scale: a float32 value.
        softcap: a float32 value, or None.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor
    flag: torch.Tensor
    mask: torch.Tensor | None
    positions: torch.Tensor | None
    lengths: torch.Tensor | None
    window: int | None
    scale: float
    softcap: float | None

    @property
    def group(self) -> int:
        """Heads that share a key head."""
        return self.q.shape[1] // self.k.shape[1]

    @property
    def rows(self) -> int:
        """Rows of a key head."""
        return self.q.shape[2] * self.group

    @property
    def heads(self) -> int:
        """Key heads of the batch."""
        return self.k.shape[0] * self.k.shape[1]

    @property
    def keys(self) -> int:
        """Keys, whatever the lengths."""
        return self.k.shape[2]

    @property
    def masks(self) -> tuple[int, ...]:
        """Steps of the mask."""
        return (0, 0, 0, 0) if self.mask is None else self.mask.stride()

    def floats(self, *sizes: int) -> torch.Tensor:
        """Scratch memory on the device."""
        total = 1
        for size in sizes:
            total *= size
        return torch.empty(total, dtype=torch.float32, device=self.q.device)
