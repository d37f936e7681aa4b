"""Row digests that stay on a GPU: what was hashed there, and how it comes to the host in one copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from repro_audit.trace.record import Digests


@dataclass(frozen=True, slots=True)
class DeviceRows:
    """Some digests of a tensor of them.

    Attributes:
        buffer: uint8 [rows, 32], on a GPU.
        begin: the first that is meant.
        shape: how many rows, and in domain kv how many heads of each.
    """

    buffer: torch.Tensor
    begin: int
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many digests."""
        return math.prod(self.shape)

    def __getitem__(self, rows: slice) -> DeviceRows:
        """The digests of some rows, as a slice of an array would be."""
        begin, end, _ = rows.indices(self.shape[0])
        inner = self.shape[1:]
        return DeviceRows(self.buffer, self.begin + begin * math.prod(inner), (end - begin, *inner))

    def tensor(self) -> torch.Tensor:
        """uint8 [digests, 32]."""
        return self.buffer[self.begin : self.begin + self.count]


Part = Digests | DeviceRows
"""Digests uint8 [rows, (heads,) 32], wherever they are."""


def stays(tensor: torch.Tensor) -> bool:
    """Whether a tensor's digests are made on a GPU and stay there."""
    return tensor.is_cuda


def hash_rows(
    items: Sequence[tuple[torch.Tensor, bytes, int]],
) -> tuple[list[DeviceRows], object]:
    """Digest rows of CUDA tensors in one tensor, without waiting for it.

    Args:
        items: (tensor, row key, leading dimensions that count rows), at least one.

    Returns:
        The digests per item, and what holds the tables on the device that the launches read: who captures
        them in a CUDA graph keeps it.
    """
    # Triton is imported where there is a GPU.
    from repro_kernels.gpu.digest import prepare

    batch, tensors = prepare(items)
    buffer = batch.run(tensors)
    found = [
        DeviceRows(buffer, start, tuple(tensor.shape[:dims]))
        for start, (tensor, _, dims) in zip(batch.starts, items, strict=True)
    ]
    return found, batch


def one_tensor(parts: Sequence[DeviceRows]) -> tuple[torch.Tensor, list[int]]:
    """The digests of several parts in one tensor [rows, 32], and where in it each part begins."""
    buffers = {id(part.buffer): part.buffer for part in parts}
    starts = dict(zip(buffers, np.cumsum([0, *map(len, buffers.values())]).tolist(), strict=False))
    whole = list(buffers.values()) or [torch.empty(0, 32, dtype=torch.uint8)]
    found = whole[0] if len(whole) == 1 else torch.cat(whole)
    return found, [starts[id(part.buffer)] + part.begin for part in parts]


def to_host(parts: Sequence[DeviceRows]) -> list[Digests]:
    """The digests as numpy holds them, all in one copy, which waits for the device."""
    found, starts = one_tensor(parts)
    arrived = found.cpu().numpy()
    return [
        arrived[start : start + part.count].reshape(*part.shape, 32)
        for part, start in zip(parts, starts, strict=True)
    ]


def joined(parts: Sequence[Part]) -> Digests:
    """Parts one behind the other, as numpy holds them."""
    found = [to_host([part])[0] if isinstance(part, DeviceRows) else part for part in parts]
    return np.concatenate(found) if len(found) > 1 else found[0]


def shaped(digests: Digests, tensor: torch.Tensor, dims: int) -> Digests:
    """The digests [rows * heads, 32] of a tensor as [rows, (heads,) 32]."""
    return digests.reshape(*tensor.shape[:dims], digests.shape[-1])


def differing(now: Sequence[Part], recorded: Sequence[Sequence[Part]]) -> list[list[int]]:
    """Per item the rows of which some digest is another; compared where the first is, one wait for all.

    Args:
        now: per item its digests, [positions, heads] of them.
        recorded: per item what was recorded, in parts, position 0 first.
    """
    device = now[0].buffer.device if isinstance(now[0], DeviceRows) else torch.device("cpu")
    left = torch.cat([_on(part, device) for part in now])
    right = torch.cat([_on(part, device) for parts in recorded for part in parts])
    wrong: Any = (left != right).any(dim=1).cpu().numpy()
    found, begin = [], 0
    for part in now:
        shape = part.shape[:2]
        end = begin + math.prod(shape)
        found.append(np.flatnonzero(wrong[begin:end].reshape(shape).any(axis=1)).tolist())
        begin = end
    return found


def _on(part: Part, device: torch.device) -> torch.Tensor:
    """int64 [digests, 4]."""
    found = part.tensor() if isinstance(part, DeviceRows) else torch.from_numpy(np.ascontiguousarray(part))
    return found.to(device).reshape(-1, 32).view(torch.int64)
