"""Evidence grade: how far apart were the two machines that agree? No torch.

Agreement between two runs on one kind of device proves little (stock kernels manage that); agreement between
a GPU and a CPU of another vendor proves that nothing but the specification made the bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum


class Grade(IntEnum):
    """Weakest first."""

    SAME_DEVICE = 0
    SAME_CLASS = 1
    OTHER_CLASS = 2
    OTHER_VENDOR = 3

    @property
    def text(self) -> str:
        """As people read it."""
        return _TEXT[self]


_TEXT = {
    Grade.SAME_DEVICE: "same device model",
    Grade.SAME_CLASS: "same numerics class",
    Grade.OTHER_CLASS: "other numerics class",
    Grade.OTHER_VENDOR: "other vendor or CPU",
}


@dataclass(frozen=True)
class Device:
    """What decides bits where nothing promises them.

    Attributes:
        kind: ``cpu``, ``cuda`` or ``unknown``.
        vendor: of the chip.
        numerics: class within which stock kernels tend to agree: instruction set, or compute capability.
        model: name of the chip.
    """

    kind: str
    vendor: str
    numerics: str
    model: str

    @property
    def text(self) -> str:
        """``Intel(R) Xeon(R) Processor (cpu, avx512)``."""
        return f"{self.model} ({self.kind}, {self.numerics})"


def device_of(environment: Mapping[str, str]) -> Device:
    """The device that environment facts describe; ``unknown`` where they are silent."""

    def fact(name: str) -> str:
        return environment.get(name, "unknown")

    kind = fact("device").partition(":")[0]
    if kind == "cuda":
        return Device(kind, fact("gpu.vendor"), fact("gpu.capability"), fact("gpu.name"))
    if kind == "cpu":
        return Device(kind, fact("cpu.vendor"), fact("cpu.isa"), fact("cpu.model"))
    return Device("unknown", "unknown", "unknown", "unknown")


def grade(recorder: Device, verifier: Device) -> Grade:
    """The evidence grade of an agreement between two devices.

    What is unknown on either side counts as equal, so that silence never raises a grade.
    """

    def differ(a: str, b: str) -> bool:
        return a != b and "unknown" not in (a, b)

    if differ(recorder.kind, verifier.kind) or differ(recorder.vendor, verifier.vendor):
        return Grade.OTHER_VENDOR
    if differ(recorder.numerics, verifier.numerics):
        return Grade.OTHER_CLASS
    if differ(recorder.model, verifier.model):
        return Grade.SAME_CLASS
    return Grade.SAME_DEVICE
