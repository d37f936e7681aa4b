"""The evidence grade of GPUs, and the facts about one that it rests on; no GPU is needed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from repro_audit.verify import environment
from repro_audit.verify.grade import Grade, device_of, grade


def gpu(name: str, capability: str, vendor: str = "NVIDIA") -> dict[str, str]:
    return {
        "device": "cuda:0",
        "gpu.vendor": vendor,
        "gpu.name": name,
        "gpu.capability": capability,
        "cpu.vendor": "GenuineIntel",
        "cpu.model": "Xeon",
        "cpu.isa": "avx512",
    }


H200, H100, A100 = gpu("H200", "sm_90"), gpu("H100", "sm_90"), gpu("A100-SXM4-40GB", "sm_80")
CPU = {**H200, "device": "cpu"}


@pytest.mark.parametrize(
    ("recorder", "verifier", "expected"),
    [
        (H200, H200, Grade.SAME_DEVICE),
        (H200, {**H200, "device": "cuda:3", "cpu.vendor": "AuthenticAMD"}, Grade.SAME_DEVICE),
        (H200, H100, Grade.SAME_CLASS),
        (A100, gpu("A100-PCIE-40GB", "sm_80"), Grade.SAME_CLASS),
        (A100, gpu("A10", "sm_86"), Grade.OTHER_CLASS),
        (A100, H100, Grade.OTHER_CLASS),
        (H100, gpu("B200", "sm_100"), Grade.OTHER_CLASS),
        (H100, gpu("MI300X", "gfx942", "AMD"), Grade.OTHER_VENDOR),
        (H200, CPU, Grade.OTHER_VENDOR),
        (CPU, H200, Grade.OTHER_VENDOR),
        ({}, H200, Grade.SAME_DEVICE),
        ({"device": "abacus"}, CPU, Grade.SAME_DEVICE),
        ({"device": "cuda:0"}, H200, Grade.SAME_DEVICE),
        ({**H100, "gpu.capability": "unknown"}, H200, Grade.SAME_CLASS),
    ],
)
def test_grades(recorder: dict[str, str], verifier: dict[str, str], expected: Grade) -> None:
    assert grade(device_of(recorder), device_of(verifier)) is expected


@pytest.mark.parametrize(
    ("version", "driver"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue May 1 00:00:00 UTC 2026",
            "580.159.04",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build", "570.86.15"),
        ("gibberish", "unknown"),
        (None, "unknown"),
    ],
)
def test_the_facts_of_a_gpu(version, driver, tmp_path, monkeypatch):
    found = SimpleNamespace(name="NVIDIA L4", major=8, minor=9, total_memory=23 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(environment, "_DRIVER", tmp_path / "version")
    if version is not None:
        (tmp_path / "version").write_text(version)
    facts = environment.collect("cuda:0")
    told = {
        name: facts[name] for name in ("device", "gpu.vendor", "gpu.name", "gpu.capability", "gpu.driver")
    }
    assert told == {
        "device": "cuda:0",
        "gpu.vendor": "NVIDIA",
        "gpu.name": "NVIDIA L4",
        "gpu.capability": "sm_89",
        "gpu.driver": driver,
    }
    assert facts["gpu.memory"] == "23 GiB" and len(facts["gpu.kernels"]) == 64
    assert device_of(facts).text == "NVIDIA L4 (cuda, sm_89)"


def test_a_changed_gpu_kernel_is_another_digest(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_GPU_SOURCES", tmp_path)
    digests = set()
    for name, text in (("a.py", "x"), ("a.py", "y"), ("b.py", "x")):
        (tmp_path / name).write_text(text)
        digests.add(environment.gpu_sources())
    assert len(digests) == 3


def test_a_cpu_tells_nothing_of_gpus():
    assert not [name for name in environment.collect("cpu") if name.startswith("gpu.")]
