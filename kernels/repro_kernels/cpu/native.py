"""Loads the shared object and chooses the instruction set, once per process. No torch needed.

``native.fn("gemm")`` is the ctypes function ``rk_gemm_avx512`` (or ``_avx2``, ``_base``, ``_neon``); its
caller sets argtypes and restype. The best instruction set of the CPU is taken; the environment's
``REPRO_KERNELS_ISA`` forces one. All give the same bits.

There must be one OpenMP runtime in the process: two, each with its own spinning threads, slow small
operations tenfold. So the shared object is not linked to a libgomp. Before it is loaded, the runtime that is
in the process (or else the one that PyTorch will bring, or else the system's) is made global. One pool, and
``torch.set_num_threads`` holds.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
from pathlib import Path
from typing import Any

from repro_kernels.cpu import build, known_answer
from repro_kernels.errors import BuildMismatchError

DTYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
"""Name of a floating dtype -> its number in the C sources (``RK_F32`` ...)."""

ISA_BITS = {"base": 1, "avx2": 2, "avx512": 4, "neon": 8}
"""Instruction set -> its bit in ``rk_supported``, from the slowest to the fastest of an architecture."""

ISA_VARIABLE = "REPRO_KERNELS_ISA"

_MAPS = Path("/proc/self/maps")


@functools.cache
def library() -> ctypes.CDLL:
    """The shared object, its sources' hash checked.

    Raises:
        BuildMismatchError: it is missing, stale or cannot be loaded.
    """
    path = build.LIBRARY
    if not path.is_file():
        raise BuildMismatchError(f"the compiled kernels are missing ({path.name}): {build.REBUILD}")
    _share_openmp()
    try:
        loaded = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        loaded.rk_source_hash.restype = ctypes.c_char_p
        found = loaded.rk_source_hash().decode()
    except (OSError, AttributeError) as error:
        raise BuildMismatchError(
            f"the compiled kernels cannot be loaded ({error}): {build.REBUILD}"
        ) from error
    if found != build.source_hash():
        raise BuildMismatchError(f"the compiled kernels are not those of the C sources: {build.REBUILD}")
    return loaded


@functools.cache
def digest() -> str:
    """SHA-256 (hex) of the shared object: which build of the sources runs.

    Raises:
        BuildMismatchError: as :func:`library`.
    """
    library()
    return hashlib.sha256(build.LIBRARY.read_bytes()).hexdigest()


@functools.cache
def isa() -> str:
    """The instruction set of this process: ``avx512``, ``avx2``, ``base`` or ``neon``.

    Raises:
        BuildMismatchError: ``REPRO_KERNELS_ISA`` names one that does not exist or that this CPU lacks, or the
            kernels give wrong bits on this machine.
    """
    supported = available()
    chosen = os.environ.get(ISA_VARIABLE, "") or supported[-1]
    if chosen not in supported:
        raise BuildMismatchError(
            f"{ISA_VARIABLE}={chosen}: this machine runs {', '.join(supported)}; unset it or name one of them"
        )
    known_answer.check(library(), chosen)
    return chosen


def available() -> list[str]:
    """Instruction sets that this CPU runs and the shared object holds, slowest first."""
    mask = library().rk_supported()
    return [name for name, bit in ISA_BITS.items() if mask & bit]


@functools.cache
def fn(name: str) -> Any:
    """The exported function ``rk_<name>_<isa>`` as ctypes gives it: the caller sets argtypes and restype."""
    return getattr(library(), f"rk_{name}_{isa()}")


def openmp_runtimes() -> list[str]:
    """Paths of the OpenMP runtimes in this process (libgomp, libomp, libiomp5); there must be one."""
    found: dict[str, None] = {}
    for line in _MAPS.read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if Path(path).name.startswith(("libgomp", "libomp", "libiomp")):
            found[path] = None
    return list(found)


def _share_openmp() -> None:
    """Make one OpenMP runtime's symbols global: the one loaded, else PyTorch's, else the system's."""
    candidates = [path for path in openmp_runtimes() if Path(path).name.startswith("libgomp")]
    if not candidates:
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.origin is not None:
            beside = Path(spec.origin).parent
            for folder in (beside / "lib", beside.parent / "torch.libs"):
                candidates += [str(path) for path in sorted(folder.glob("libgomp*.so*"))]
    for path in [*candidates, "libgomp.so.1"]:
        try:
            ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        except OSError:
            continue
        return
    raise BuildMismatchError(
        "no OpenMP runtime (libgomp.so.1): install it (Debian, Ubuntu: `apt install libgomp1`)"
    )
