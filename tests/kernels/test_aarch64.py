"""The aarch64 kernels, cross-compiled and run under qemu-user, give the bits that this machine gives.

Needs ``aarch64-linux-gnu-gcc`` and ``qemu-aarch64`` (Debian: gcc-aarch64-linux-gnu, qemu-user), else skipped.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
import torch
from kernel_support import DTYPES, raw_bits, tensor
from repro_kernels.cpu import build, elementary, gemm, native

CC = "aarch64-linux-gnu-gcc"
QEMU = "qemu-aarch64"
ROOT = "/usr/aarch64-linux-gnu"

pytestmark = pytest.mark.skipif(
    not (shutil.which(CC) and shutil.which(QEMU)), reason=f"needs {CC} and {QEMU}"
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The cross-compiled shared object and the driver that calls into it."""
    folder = tmp_path_factory.mktemp("aarch64")
    library = build.build(folder / "kernels.so", command=[CC], architecture="aarch64")
    driver = folder / "driver"
    source = Path(__file__).with_name("aarch64_driver.c")
    # The driver brings the OpenMP runtime, as PyTorch does.
    link = ["-Wl,--no-as-needed", "-lgomp", "-ldl"]
    subprocess.run([CC, "-O1", str(source), "-o", str(driver), *link], check=True)
    return driver, library


def written(name: str, arguments: list[bytes | int | None], floats: list[float]) -> bytes:
    """One call as the driver reads it: bytes are a buffer, None a null pointer."""
    record = [name.encode().ljust(64, b"\0"), struct.pack("<q", len(arguments))]
    for argument in arguments:
        if isinstance(argument, bytes):
            record.append(struct.pack("<2q", 2, len(argument)) + argument)
        else:
            record.append(struct.pack("<2q", 1 if argument is None else 0, argument or 0))
    record.append(struct.pack("<q", len(floats)))
    record += [struct.pack("<f4x", value) for value in floats]
    return b"".join(record)


def run(machine: tuple[Path, Path], folder: Path, calls: list[bytes]) -> bytearray:
    """The buffers of every call after it, one after the other."""
    (folder / "calls").write_bytes(struct.pack("<q", len(calls)) + b"".join(calls))
    driver, library = machine
    arguments = [str(path) for path in (driver, library, folder / "calls", folder / "results")]
    subprocess.run([QEMU, "-L", ROOT, *arguments], check=True)
    return bytearray((folder / "results").read_bytes())


def memory(t: torch.Tensor) -> bytes:
    """The bytes of a contiguous tensor."""
    return t.reshape(-1).view(torch.uint8).numpy().tobytes()


def test_matrix_products(machine: tuple[Path, Path], tmp_path: Path) -> None:
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
    content, at = run(machine, tmp_path, records), 0
    for inputs, wanted in expected:
        start, at = at + inputs, at + inputs + wanted.nbytes
        got = torch.frombuffer(content[start:at], dtype=wanted.dtype)
        assert raw_bits(got) == raw_bits(wanted)
    assert at == len(content)


def test_elementary_functions(machine: tuple[Path, Path], tmp_path: Path) -> None:
    function = native.fn("unary")
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [size, pointer, pointer, size, pointer]
    x = torch.cat([tensor((1000,), seed=1, flavour=f, specials=0.02) for f in ("normal", "wide", "any bits")])
    records, expected = [], []
    for code in range(len(elementary.ELEMENTARY) + len(elementary.COMPOSITE)):
        y = torch.empty_like(x)
        function(code, x.data_ptr(), y.data_ptr(), x.numel(), None)
        expected.append(y)
        records.append(written("rk_unary_neon", [code, memory(x), bytes(y.nbytes), x.numel(), None], []))
    content = run(machine, tmp_path, records)
    for code, wanted in enumerate(expected):
        start = (2 * code + 1) * x.nbytes
        got = torch.frombuffer(content[start : start + x.nbytes], dtype=torch.float32)
        assert raw_bits(got) == raw_bits(wanted), f"function {code}"
