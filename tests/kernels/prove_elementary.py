"""Exhaustive check of the one-argument elementary functions over all 2^32 patterns (not part of pytest).

    python tests/kernels/prove_elementary.py [--jobs N] [--band BITS] [NAME ...]

For every pattern whose fast binary64 approximation lies within 2^-BITS (default 36) of a rounding boundary,
the result is compared with the 320-bit integer path; for every other pattern the result is the rounding of
that approximation, right if its error is below 2^-BITS, while the measured error is below 2^-48. Prints
for each function the arguments nearest to a midpoint (log2 of the relative distance, by MPFR) and
exits with 1 if any result differs. One function takes about a minute of one core.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import gmpy2
import numpy as np
from repro_kernels.cpu import elementary, native

SLICE = 1 << 24
HARD_BITS = 50
CAPACITY = 4096


def distance(name: str, pattern: int) -> float:
    """log2 of the relative distance from the function's value to the nearest midpoint of two numbers."""
    gmpy2.set_context(gmpy2.context(precision=300))
    x = gmpy2.mpfr(float(np.uint32(pattern).view(np.float32)))
    value = abs(gmpy2.rec_sqrt(x) if name == "rsqrt" else getattr(gmpy2, name)(x))
    exponent = max(int(gmpy2.floor(gmpy2.log2(value))), -126)
    scaled = value * gmpy2.exp2(23 - exponent)
    gap = abs(scaled - gmpy2.floor(scaled) - 0.5)
    return float(gmpy2.log2(gap / scaled)) if gap else -float("inf")


def prove(name: str, band: int, jobs: int) -> int:
    """Number of patterns whose result is wrong."""
    entry = native.fn("elementary_prove")
    number = elementary.ELEMENTARY.index(name)

    def one(first: int) -> tuple[list[int], list[int]]:
        counts, hard = (ctypes.c_int64 * 4)(), (ctypes.c_uint32 * CAPACITY)()
        entry(
            ctypes.c_int(number), ctypes.c_uint32(first), ctypes.c_int64(SLICE), ctypes.c_double(2.0**-band),
            ctypes.c_double(2.0**-HARD_BITS), counts, hard, ctypes.c_int64(CAPACITY),
        )  # fmt: skip
        return list(counts), list(hard)[: min(counts[3], CAPACITY)]

    began = time.perf_counter()
    with ThreadPoolExecutor(jobs) as pool:
        parts = list(pool.map(one, range(0, 1 << 32, SLICE)))
    wrong, compared = (sum(counts[i] for counts, _ in parts) for i in (0, 2))
    example = next((f", e.g. {counts[1]:#010x}" for counts, _ in parts if counts[0]), "")
    ranked = sorted((distance(name, pattern), pattern) for _, hard in parts for pattern in hard)
    hardest = ", ".join(f"{pattern:#010x} ({bits:.1f})" for bits, pattern in ranked[:8])
    seconds = time.perf_counter() - began
    print(
        f"{name}: {wrong} wrong of 2^32{example}; {compared} compared; {seconds:.0f} s; hardest {hardest}",
        flush=True,
    )
    return wrong


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--band", type=int, default=36)
    given = parser.parse_args()
    # sqrt and reciprocal are single hardware operations: they have no approximation to prove.
    names = given.names or [n for n in elementary.ELEMENTARY if n not in ("sqrt", "reciprocal")]
    print(f"instruction set {native.isa()}, band 2^-{given.band}", flush=True)
    return 1 if sum(prove(name, given.band, given.jobs) for name in names) else 0


if __name__ == "__main__":
    sys.exit(main())
