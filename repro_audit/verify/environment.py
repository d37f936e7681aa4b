"""Facts about this machine and its software: recorded as claims, shown, never compared. No torch is imported.

No host name, user name, path or environment variable is collected.
"""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from repro_audit import __version__

_PACKAGES = ("torch", "transformers", "numpy", "safetensors", "tokenizers", "gguf", "blake3")
_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")


def collect() -> dict[str, str]:
    """Name to text, in the order a person reads it.

    Keys: ``device`` (what computes), ``cpu.vendor``, ``cpu.model``, ``cpu.isa`` (instruction set of the
    kernels), ``cpu.cores``, ``system``, ``python``, ``repro-audit``, ``kernels`` (digest of the kernel
    sources), and one ``package.NAME`` per library that takes part.
    """
    vendor, model = cpu()
    facts = {
        "device": "cpu",
        "cpu.vendor": vendor,
        "cpu.model": model,
        "cpu.isa": isa(),
        "cpu.cores": str(os.cpu_count() or 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "repro-audit": __version__,
        "kernels": kernel_sources(),
    }
    for name in _PACKAGES:
        version = package_version(name)
        if version is not None:
            facts[f"package.{name}"] = version
    return facts


def cpu() -> tuple[str, str]:
    """Vendor and model name of the CPU, as the system tells them; ``unknown`` where it does not."""
    found: dict[str, str] = {}
    if _CPUINFO.is_file():
        for line in _CPUINFO.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    vendor = found.get("vendor_id") or found.get("CPU implementer") or platform.machine() or "unknown"
    model = found.get("model name") or found.get("CPU part") or platform.processor() or "unknown"
    return vendor, model


def isa() -> str:
    """Instruction set that the kernels of this process use; the sentence why, where they cannot be loaded."""
    from repro_kernels.cpu import native
    from repro_kernels.errors import KernelError

    try:
        return native.isa()
    except KernelError as error:
        return f"unavailable: {error}"


def kernel_sources() -> str:
    """Digest of the kernels' C sources (hex)."""
    from repro_kernels.cpu import build

    return build.source_hash()


def package_version(name: str) -> str | None:
    """Installed version of a distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def memory_bytes() -> tuple[int, int] | None:
    """Total and available memory in bytes, where the system tells."""
    if not _MEMINFO.is_file():
        return None
    fields = {}
    for line in _MEMINFO.read_text().splitlines():
        key, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            fields[key] = int(words[0]) * 1024
    if "MemTotal" not in fields:
        return None
    return fields["MemTotal"], fields.get("MemAvailable", 0)
