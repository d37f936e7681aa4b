"""Inputs that hurt, drawn on the CPU from a seed: the same on every machine, then moved to a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from repro_kernels.errors import KernelError

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.17549435e-38, 3.4028235e38, -3.4028235e38]


def values(
    shape: Sequence[int],
    seed: int,
    dtype: torch.dtype = torch.float32,
    *,
    kind: str = "normal",
    special: float = 0.0,
) -> torch.Tensor:
    """A CPU tensor: normal, "small" integers (ties), "wide" exponents, "subnormal", "cancelling", any "bits".

    Args:
        shape: its shape.
        seed: of the draw.
        dtype: float32, bfloat16 or float16.
        kind: which of these.
        special: the share that are zeros of both signs, infinities, NaN, subnormals and extremes.
    """
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape, dtype=np.int64))
    x = rng.standard_normal(count).astype(np.float32)
    if kind == "small":
        x = rng.integers(-3, 4, count).astype(np.float32) * np.float32(0.5)
        x[rng.random(count) < 0.2] *= np.float32(-0.0)
    elif kind == "wide":
        x *= np.float32(2.0) ** rng.integers(-60, 60, count).astype(np.float32)
    elif kind == "subnormal":
        x = (rng.integers(-(2**23), 2**23, count) * 2.0**-149).astype(np.float32)
    elif kind == "cancelling":
        x *= np.float32(1e6)
        x[1::2] = -x[: count // 2 * 2 : 2]
    elif kind == "bits":
        x = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32).copy()
    chosen = rng.random(count) < special
    x[chosen] = rng.choice(np.array(_SPECIAL, np.float32), int(chosen.sum()))
    return torch.from_numpy(x).reshape(tuple(shape)).to(dtype)


def strided(t: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The same values on a device, laid out last axis first, every second element, offset by one."""
    if t.dim() == 0:
        return t.to(device)
    moved = t.movedim(-1, 0)
    shape = (*moved.shape[:-1], 2 * moved.shape[-1] + 1)
    room = torch.full(shape, 7.0, dtype=t.dtype)[..., 1::2]
    room.copy_(moved)
    return room.to(device) if not room.numel() else _like(room, device).movedim(0, -1)


def _like(view: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A view on a device with the strides and the offset of a view on the CPU."""
    whole = torch.empty(view.untyped_storage().nbytes() // view.element_size(), dtype=view.dtype)
    whole.set_(view.untyped_storage())  # type: ignore[call-overload]
    return whole.to(device).as_strided(view.shape, view.stride(), view.storage_offset())


def error(call: Callable[[], object]) -> torch.Tensor:
    """The class and the text of the error that a call raises, as bytes; empty if it raises none."""
    try:
        call()
    except (KernelError, ValueError, IndexError) as found:
        return torch.tensor(list(f"{type(found).__name__}: {found}".encode()), dtype=torch.uint8)
    return torch.zeros(0, dtype=torch.uint8)
