"""Row digests: widths about blocks, chunks, groups of chunks, all dtypes with NaN, strides, many items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tests.gpu.cases import Kernels, add, case

KEY = bytes(range(5, 37))
DTYPES = (
    torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.complex128,
    torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.bool, torch.uint8, torch.int16,
    torch.int64,
)  # fmt: skip


def drawn(shape: Sequence[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random bits, among them many NaNs and infinities of every kind."""
    source = torch.Generator().manual_seed(seed)
    width = shape[-1] * dtype.itemsize
    if dtype is torch.bool:
        return torch.randint(0, 2, tuple(shape), generator=source).bool()
    raw = torch.randint(0, 256, (*shape[:-1], width), generator=source, dtype=torch.uint8)
    kinds = torch.randint(0, 4, (*shape[:-1], width // dtype.itemsize), generator=source)
    kinds = kinds.repeat_interleave(dtype.itemsize, dim=-1)
    # All ones in the upper half of an element, all ones but the lowest bits, or as drawn.
    top = torch.arange(width).remainder(dtype.itemsize) >= dtype.itemsize / 2
    raw = torch.where(top & (kinds == 1), raw | 0x7F, raw)
    raw = torch.where(top & (kinds == 2), torch.tensor(0x7C, dtype=torch.uint8), raw)
    raw = torch.where(~top & (kinds == 2) & (raw > 99), torch.tensor(0, dtype=torch.uint8), raw)
    return raw.view(dtype)


def digests(kernels: Kernels, items: Sequence[tuple[torch.Tensor, bytes, int]]) -> list[torch.Tensor]:
    """Of either back end as tensors."""
    found = kernels.digest.digest_many(items)
    return [torch.from_numpy(part) if isinstance(part, np.ndarray) else part for part in found]


def _widths(label: str, widths: Sequence[int], *, rows: int = 3, small: bool = False) -> None:
    def run(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
        found = []
        for width in widths:
            tensor = drawn((rows, width), torch.uint8, width).to(device)
            found += digests(kernels, [(tensor, KEY, 1)])
        return found

    add(f"digest: {label}", run, small=small)


_widths("one byte to three blocks", range(1, 193))
_widths("around one and two chunks", [*range(1000, 1050), *range(2040, 2060), 3000])
_widths("around groups of chunks", [1024 * n + d for n in (63, 64, 65, 127, 128, 129) for d in (-1, 0, 1)])
_widths("long", [1 << 20, (1 << 22) + 3, 64 * 64 * 1024, 64 * 64 * 1024 + 1], rows=2)
_widths("few widths", (1, 64, 80), small=True)
_widths("two chunks and a byte", (2049,), rows=1, small=True)
_widths("two groups", (66000,), rows=1, small=True)
_widths("many rows", (1024, 16384), rows=3000)


def _types(label: str, rows: int, width: int, dtypes: Sequence[torch.dtype], *, small: bool) -> None:
    def run(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
        found = []
        for seed, dtype in enumerate(dtypes):
            tensor = drawn((rows, width), dtype, seed).to(device)
            found += digests(kernels, [(tensor, KEY, 1)])
        return found

    add(f"digest: {label}", run, small=small)


_types("every dtype", 5, 4096, DTYPES, small=False)
_types("every dtype, odd width", 5, 333, DTYPES, small=False)
_types("dtypes with NaN", 2, 16, (*DTYPES[:4], DTYPES[6]), small=True)


def _items(device: torch.device, scale: int) -> list[tuple[torch.Tensor, bytes, int]]:
    """Many tensors: types, widths, keys, rows and heads, strides, empty ones, one row of all."""
    items: list[tuple[torch.Tensor, bytes, int]] = []
    for seed in range(3 * scale):
        dtype = DTYPES[seed % len(DTYPES)]
        width = (1, 8, 48, 64, 100, 512, 2048, 4096, 14336)[seed % (3 * min(scale, 3))]
        tensor = drawn((1 + seed % 3, width), dtype, seed).to(device)
        items.append((tensor, bytes([seed % 5]) * 32, 1))
    base = drawn((4, 6, 5, 16), torch.float32, 99).to(device)
    items += [
        (base[0].transpose(0, 1), KEY, 2),  # heads by rows, as a cache has them
        (base[1, :, :, :8], KEY, 2),
        (base[2, ::2], KEY, 1),
        (base[3].transpose(1, 2), KEY, 1),  # rows that are not contiguous
        (base[:, :, 0, 3:7], KEY, 2),  # not aligned
        (base.flatten()[1:65], KEY, 0),
        (base[0, 0, 0].expand(3, 16), KEY, 1),
        (base[:0], KEY, 1),
        (base[:3, :0, 0], KEY, 1),
        (base[0, 0, 0, 0], KEY, 0),
        (base, KEY, 3),
    ]
    return items


@case("digest: items of all kinds", small=True)
def _few(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    return digests(kernels, _items(device, 1))


@case("digest: many items of all kinds", small=False)
def _many(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    large = [(drawn((700, 4096), dtype, 3).to(device), KEY, 1) for dtype in DTYPES[:3]]
    return digests(kernels, [*large[:1], *_items(device, 60), *large[1:]])


@case("digest: no items", small=True)
def _none(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    return digests(kernels, []) + digests(kernels, [(torch.ones(0, 4, device=device), KEY, 1)])


@case("digest: errors", small=True)
def _errors(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    x = torch.ones(3, 4, device=device)
    found: list[Any] = []
    for values, key, dims in ((x, KEY[:31], 1), (x, KEY, 3), (x[0, 0], KEY, 1)):
        try:
            digests(kernels, [(values, key, dims)])
        except ValueError as error:
            found.append(torch.tensor(list(str(error).encode()), dtype=torch.uint8))
    assert len(found) == 3
    return found
