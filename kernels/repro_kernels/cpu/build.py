"""Compiles ``csrc/*.c`` into one shared object: ``python -m repro_kernels.cpu.build``.

Every source is compiled once per instruction set of the machine's architecture (``portable.c`` once), with
GCC and nothing else: no Python.h, no torch headers. The environment's ``CC`` names the compiler. ``CFLAGS``
and ``LDFLAGS`` are not read, on purpose: the bits belong to the specification, ``-Ofast`` would change them,
and ``-march=native`` would put instructions into the baseline variant that other CPUs lack. Flags inside
``CC`` stand before ours, so ours win.

OpenMP calls stay undefined in the shared object: :mod:`repro_kernels.cpu.native` binds them to the libgomp
that PyTorch already uses.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from repro_kernels.errors import BuildMismatchError

SOURCE_DIR = Path(__file__).with_name("csrc")
LIBRARY = Path(__file__).with_name("librepro_kernels.so")
REBUILD = "run `python -m repro_kernels.cpu.build`, or install the package again"

FLAGS = (
    *("-std=gnu11", "-O3", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-fno-strict-aliasing", "-fno-lto"),
    *("-fno-fast-math", "-fno-unsafe-math-optimizations", "-fno-associative-math", "-fno-reciprocal-math"),
    *(
        "-fno-finite-math-only",
        "-fsigned-zeros",
        "-ffp-contract=off",
        "-fno-math-errno",
        "-fno-trapping-math",
    ),
    *("-Wall", "-Wextra"),
)
"""Flags of every compilation; appended after whatever ``CC`` holds."""

_X86 = ("-march=x86-64", "-mtune=generic")
_AVX2 = (*_X86, "-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512")

VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {"base": _X86, "avx2": _AVX2, "avx512": _AVX512},
    "aarch64": {"neon": ("-march=armv8-a",)},
}
"""Architecture -> instruction set -> its flags."""

PORTABLE = "portable.c"


def source_hash(folder: Path = SOURCE_DIR, architecture: str | None = None) -> str:
    """SHA-256 (hex) of what goes into a shared object: every source and header, the flags, the architecture.

    Args:
        folder: where the sources are.
        architecture: a key of :data:`VARIANTS`; default this machine's.

    Raises:
        BuildMismatchError: the package has no sources beside it.
    """
    files = sorted([*folder.glob("*.c"), *folder.glob("*.h")])
    if not files:
        raise BuildMismatchError("the C sources of repro_kernels are missing: install the package again")
    architecture = architecture or machine()
    digest = hashlib.sha256(repr((architecture, FLAGS, sorted(VARIANTS[architecture].items()))).encode())
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def is_current(library: Path = LIBRARY) -> bool:
    """Whether the shared object was compiled from these sources: their hash stands in it as text."""
    return library.is_file() and source_hash().encode() in library.read_bytes()


def machine() -> str:
    """The architecture of this machine, a key of :data:`VARIANTS`.

    Raises:
        BuildMismatchError: neither x86-64 nor aarch64 Linux.
    """
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine())
    if name not in VARIANTS or not sys.platform.startswith("linux"):
        raise BuildMismatchError(
            f"repro_kernels runs on Linux on x86-64 and aarch64, not on {sys.platform} on {name}"
        )
    return name


def compiler() -> list[str]:
    """The compiler's command: ``CC`` where it is set, else gcc, else cc.

    Raises:
        BuildMismatchError: there is none.
    """
    given = shlex.split(os.environ.get("CC", ""))
    for command in [given] if given else [["gcc"], ["cc"]]:
        if shutil.which(command[0]):
            return command
    named = given[0] if given else "gcc"
    raise BuildMismatchError(
        f"no C compiler: {named} is not on the PATH; install GCC "
        "(Debian, Ubuntu: `apt install gcc libc6-dev`) or name one in CC"
    )


def build(
    output: Path = LIBRARY, *, command: list[str] | None = None, architecture: str | None = None
) -> Path:
    """Compile the shared object, under a temporary name first, so that no reader sees half of it.

    Args:
        output: where the shared object goes.
        command: the compiler's command; default :func:`compiler`.
        architecture: a key of :data:`VARIANTS`, for a cross compiler; default this machine's.

    Returns:
        ``output``.

    Raises:
        BuildMismatchError: no compiler, or it failed; its output is in the message.
    """
    cc = command or compiler()
    architecture = architecture or machine()
    variants = VARIANTS[architecture]
    output.parent.mkdir(parents=True, exist_ok=True)
    with _locked(output.parent), tempfile.TemporaryDirectory(prefix="repro-kernels-") as scratch:
        # A copy: what is hashed is what is compiled, even while somebody edits.
        snapshot = Path(shutil.copytree(SOURCE_DIR, Path(scratch) / "csrc"))
        digest = source_hash(snapshot, architecture)
        jobs: list[list[str]] = []
        objects: list[str] = []
        for source in sorted(snapshot.glob("*.c")):
            portable = source.name == PORTABLE
            for isa, flags in [("base", ())] if portable else variants.items():
                objects.append(f"{scratch}/{source.stem}_{isa}.o")
                define = f"-DRK_SOURCE_HASH={digest}" if portable else f"-DRK_SUFFIX=_{isa}"
                jobs.append([*cc, *FLAGS, *flags, define, "-c", str(source), "-o", objects[-1]])
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            list(pool.map(_run, jobs))
        temporary = output.with_name(f"{output.name}.{os.getpid()}.tmp")
        try:
            # Not linked with -fopenmp: the loader supplies the process's only OpenMP runtime.
            _run([*cc, "-O3", "-fno-fast-math", "-fno-lto", "-shared", "-o", str(temporary), *objects, "-lm"])
            os.replace(temporary, output)
        finally:
            temporary.unlink(missing_ok=True)
    return output


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildMismatchError(
            f"compiling the kernels failed: {shlex.join(command)}\n{result.stderr.strip()}"
        )


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One build into ``directory`` at a time: the lock is on the directory and goes with the process."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


if __name__ == "__main__":
    try:
        print(build())
    except BuildMismatchError as error:
        sys.exit(str(error))
