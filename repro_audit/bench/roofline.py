"""What a device can do at most: a figure above it is a mistake of the measurement, and is not printed.

Peaks of known devices are the vendor's; of others they follow from what the driver tells: multiprocessors,
clock and memory bus. Arithmetic is counted in multiply-adds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

MARGIN = 1.05
"""How far above its peaks a device may seem to be: clocks and counters are not exact."""

LATENCY = 4e-6
"""Seconds of work below which launching, waiting and draining decide (`latency`), and no peak does."""


@dataclass(frozen=True)
class Work:
    """The least that a computation must do.

    Attributes:
        bytes: read and written in the device's memory, each input once.
        fmas: multiply-adds.
        unit: what computes them: ``fp32``, ``tf32`` or ``bf16`` (tensor units).
    """

    bytes: float
    fmas: float = 0
    unit: str = "fp32"

    def by(self, unit: str, scale: float = 1.0) -> Work:
        """The same work by another unit, its bytes scaled, as for operands half as wide."""
        return replace(self, unit=unit, bytes=self.bytes * scale)


@dataclass(frozen=True)
class Roofline:
    """Peaks of a device.

    Attributes:
        bandwidth: bytes per second of its memory.
        fmas: multiply-adds per second by unit.
        cache: bytes of its last cache.
        source: where the peaks come from, in words.
    """

    bandwidth: float
    fmas: dict[str, float]
    cache: int
    source: str

    def least(self, work: Work) -> tuple[str, float]:
        """What bounds some work, ``bytes``, ``FMA issue``, ``tensor units`` or ``latency``, and seconds that
        no program can beat.
        """
        moving = work.bytes / self.bandwidth
        computing = work.fmas / self.fmas[work.unit]
        seconds = max(moving, computing)
        if seconds < LATENCY:
            return "latency", seconds
        if moving >= computing:
            return "bytes", seconds
        return ("FMA issue" if work.unit == "fp32" else "tensor units"), seconds

    def impossible(self, work: Work, seconds: float) -> bool:
        """Whether this device cannot have done the work in this time, :data:`MARGIN` granted."""
        return seconds * MARGIN < self.least(work)[1]


#: Name (a part of it) -> memory bytes/s; multiply-adds/s in fp32, tf32, bf16. Dense, at boost clock.
KNOWN = {
    "H200": (4.8e12, 33.5e12, 247.4e12, 494.7e12),
    "H100 80GB HBM3": (3.35e12, 33.5e12, 247.4e12, 494.7e12),
    "A100-SXM4-80GB": (2.04e12, 9.75e12, 78e12, 156e12),
}
_LANES = 128
"""fp32 multiply-adds per clock of a multiprocessor, at most, on NVIDIA GPUs from capability 8.0 on."""
_TENSOR = 4096
"""bf16 multiply-adds per clock of a multiprocessor, at most, on every one so far."""


def of(device: str) -> Roofline | None:
    """The roofline of ``cuda:N``; None for the CPU, whose peaks nobody tells."""
    return None if device == "cpu" else from_properties(torch.cuda.get_device_properties(device))


def from_properties(properties: Any) -> Roofline:
    """From what ``torch.cuda.get_device_properties`` returns: clocks in kHz, the bus in bits."""
    cache = int(properties.L2_cache_size)
    for name, (bandwidth, fp32, tf32, bf16) in KNOWN.items():
        if name in properties.name:
            fmas = {"fp32": fp32, "tf32": tf32, "bf16": bf16}
            return Roofline(bandwidth, fmas, cache, f"the vendor's peaks of {name}")
    clocks = properties.multi_processor_count * properties.clock_rate * 1e3
    bandwidth = properties.memory_clock_rate * 1e3 * 2 * properties.memory_bus_width / 8
    fmas = {"fp32": clocks * _LANES, "tf32": clocks * _TENSOR / 2, "bf16": clocks * _TENSOR}
    return Roofline(bandwidth, fmas, cache, "multiprocessors, clocks and bus as the driver tells them")
