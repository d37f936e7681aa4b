"""Attention, fused steps and digests give the same bits on aarch64, run by qemu, as on this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from repro_kernels.cpu import build

HARNESS = Path(__file__).with_name("attention_digest_harness.c")
SOURCES = [build.SOURCE_DIR / f"{name}.c" for name in ("attention", "fused", "blake3", "elementary_slow")]
CROSS, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"


def run(folder: Path, compiler: str, flags: tuple[str, ...], isa: str, *emulator: str) -> list[str]:
    program = folder / isa
    command = [
        compiler,
        *build.FLAGS,
        *flags,
        f"-DRK_SUFFIX=_{isa}",
        f"-I{build.SOURCE_DIR}",
        "-w",
        "-static",
    ]
    files = [str(path) for path in (HARNESS, *SOURCES)]
    subprocess.run([*command, *files, "-o", str(program), "-lm"], check=True, capture_output=True)
    result = subprocess.run([*emulator, str(program)], check=True, capture_output=True, text=True)
    return result.stdout.splitlines()


@pytest.mark.skipif(
    not (shutil.which(CROSS) and shutil.which(EMULATOR)), reason=f"needs {CROSS} and {EMULATOR}"
)
def test_the_bits_of_aarch64(tmp_path: Path) -> None:
    isa, flags = next(iter(build.VARIANTS[build.machine()].items()))
    here = run(tmp_path, build.compiler()[0], flags, isa)
    there = run(tmp_path, CROSS, build.VARIANTS["aarch64"]["neon"], "neon", EMULATOR)
    assert len(here) > 80
    assert there == here
