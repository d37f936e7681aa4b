"""Facts about this machine and its software: recorded as claims, shown, never compared. Torch is imported for
a GPU alone.

No host name, user name, path or environment variable is collected.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from importlib import metadata
from pathlib import Path

import repro_kernels

from repro_audit import __version__

_PACKAGES = ("torch", "triton", "transformers", "numpy", "safetensors", "tokenizers", "gguf", "blake3")
_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_DRIVER = Path("/proc/driver/nvidia/version")
_GPU_SOURCES = Path(str(repro_kernels.__file__)).with_name("gpu")


def collect(device: str = "cpu") -> dict[str, str]:
    """Name to text, in the order a person reads it.

    Args:
        device: what computes, ``cpu`` or ``cuda:N``, as resolved.

    Keys: ``device``, for a GPU those of :func:`gpu`, ``cpu.vendor``, ``cpu.model``, ``cpu.isa``
    (instruction set of the kernels), ``cpu.cores``, ``system``, ``python``, ``repro-audit``, ``kernels``
    (digest of the kernel sources), and one ``package.NAME`` per library that takes part.
    """
    vendor, model = cpu()
    facts = {
        "device": device,
        **({} if device == "cpu" else gpu(device)),
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


def gpu(device: str) -> dict[str, str]:
    """Vendor, name, numerics class, memory, driver and CUDA version of a GPU, as the driver tells them, and
    the digest of its kernels' sources.

    The numerics class is the compute capability (``sm_90``): stock kernels are compiled and chosen by it.
    """
    import torch

    properties = torch.cuda.get_device_properties(device)
    return {
        "gpu.vendor": "NVIDIA",
        "gpu.name": properties.name,
        "gpu.capability": f"sm_{properties.major}{properties.minor}",
        "gpu.memory": f"{properties.total_memory / 2**30:.0f} GiB",
        "gpu.driver": _driver(),
        "gpu.cuda": str(torch.version.cuda),
        "gpu.kernels": gpu_sources(),
    }


def _driver() -> str:
    if not _DRIVER.is_file():
        return "unknown"
    found = re.search(r"\b\d+\.\d+(\.\d+)?\b", _DRIVER.read_text(errors="replace"))
    return found.group(0) if found else "unknown"


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


def gpu_sources() -> str:
    """SHA-256 (hex) over the GPU kernels' sources, by name; nothing is imported."""
    found = hashlib.sha256()
    for path in sorted(_GPU_SOURCES.glob("*.py")):
        source = path.read_bytes()
        found.update(f"{path.name} {len(source)}\n".encode() + source)
    return found.hexdigest()


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
