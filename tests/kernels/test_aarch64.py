"""The aarch64 kernels, cross-compiled and run under qemu-user, give the bits that this machine gives.

Needs ``aarch64-linux-gnu-gcc`` and ``qemu-aarch64`` (Debian: gcc-aarch64-linux-gnu, qemu-user), else skipped.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
import torch
from kernel_support import DTYPES, raw_bits, tensor
from repro_kernels.cpu import build, gemm

CC = "aarch64-linux-gnu-gcc"
QEMU = "qemu-aarch64"
ROOT = "/usr/aarch64-linux-gnu"
SOURCES = ("gemm.c", "gemm_simd.h", "common.h", "portable.c")

pytestmark = pytest.mark.skipif(
    not (shutil.which(CC) and shutil.which(QEMU)), reason=f"needs {CC} and {QEMU}"
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The cross-compiled shared object and the driver that calls into it."""
    folder = tmp_path_factory.mktemp("aarch64")
    sources = folder / "csrc"
    sources.mkdir()
    for name in SOURCES:
        shutil.copy(build.SOURCE_DIR / name, sources)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "SOURCE_DIR", sources)
        library = build.build(folder / "kernels.so", command=[CC], architecture="aarch64")
    driver = folder / "driver"
    source = Path(__file__).with_name("aarch64_driver.c")
    # The driver brings the OpenMP runtime, as PyTorch does.
    link = ["-Wl,--no-as-needed", "-lgomp", "-ldl"]
    subprocess.run([CC, "-O1", str(source), "-o", str(driver), *link], check=True)
    return driver, library


def written(name: str, buffers: list[bytes | None], floats: list[float]) -> bytes:
    """One call as the driver reads it; None is a null pointer."""
    record = [name.encode().ljust(64, b"\0"), struct.pack("<q", len(buffers))]
    for buffer in buffers:
        record.append(
            struct.pack("<2q", 1, 0) if buffer is None else struct.pack("<2q", 2, len(buffer)) + buffer
        )
    record.append(struct.pack("<q", len(floats)))
    record += [struct.pack("<f4x", value) for value in floats]
    return b"".join(record)


def memory(t: torch.Tensor) -> bytes:
    """The bytes of a contiguous tensor."""
    return t.reshape(-1).view(torch.uint8).numpy().tobytes()


def test_matrix_products(machine: tuple[Path, Path], tmp_path: Path) -> None:
    driver, library = machine
    records, expected = [], []
    for seed, flavour in enumerate(("normal", "cancelling", "subnormal", "wide", "any bits")):
        for m, n, k in ((1, 40, 300), (2, 33, 129), (9, 50, 200), (20, 17, 64)):
            for xt, wt, out in ((0, 0, 0), (0, 1, 0), (1, 2, 1), (2, 0, 2)):
                x = tensor((m, k), seed=seed, flavour=flavour, dtype=DTYPES[xt], specials=0.001)
                w = tensor((n, k), seed=seed + 9, flavour=flavour, dtype=DTYPES[wt], specials=0.001)
                start = 40 if m == 9 else 0
                found = gemm.matmul(x, w.t(), out_dtype=DTYPES[out], k_start=start)
                numbers = struct.pack("<15q", 1, m, n, k, start, k, 1, k, 1, 0, 0, xt, wt, out, 0)
                buffers = [numbers, memory(x), memory(w), bytes(found.nbytes)]
                records.append(written("rk_gemm_neon", [*buffers, None, None, None, None], [1.0, 1.0]))
                expected.append((sum(len(buffer) for buffer in buffers[:3]), found))
    calls, results = tmp_path / "calls", tmp_path / "results"
    calls.write_bytes(struct.pack("<q", len(records)) + b"".join(records))
    subprocess.run([QEMU, "-L", ROOT, str(driver), str(library), str(calls), str(results)], check=True)
    content, at = bytearray(results.read_bytes()), 0
    for inputs, wanted in expected:
        start, at = at + inputs, at + inputs + wanted.nbytes
        got = torch.frombuffer(content[start:at], dtype=wanted.dtype)
        assert raw_bits(got) == raw_bits(wanted)
    assert at == len(content)
