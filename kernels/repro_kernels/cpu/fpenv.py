"""The floating-point environment of every thread of the OpenMP pool (``csrc/fpenv.c``).

Kernels of this package set their own; PyTorch's elementwise kernels run in whatever the pool's threads have.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from repro_kernels.cpu import native


@contextmanager
def default_fpenv() -> Iterator[None]:
    """Round to nearest even, subnormals kept, on all threads; what they had before is put back afterwards."""
    threads = native.fn("fpenv_threads")()
    saved = (ctypes.c_uint64 * threads)()
    native.fn("fpenv_default")(saved, ctypes.c_int(threads))
    try:
        yield
    finally:
        native.fn("fpenv_restore")(saved, ctypes.c_int(threads))
