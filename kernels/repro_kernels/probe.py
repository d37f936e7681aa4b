"""The seven-shape probe: seven matrix products whose whole output is the same on every machine.

The shapes are those of ReproFuse (arXiv 2609.25624): decode and prefill of an 8B model, and one odd shape.
The inputs are integers of the project's own Philox generator, read as bfloat16 bit patterns, so that they are
exact and need no library's random numbers. An output is ``linear(x, w)`` in float32; digests are SHA-256.

Two digests of an output are committed in ``repro_kernels.probe_digests``: of all rows, and of eight rows
spread over M (:func:`sampled_rows`), which a slow machine can compute alone; the inputs' digests, too.

``python -m repro_kernels.probe [--device cuda] [--sampled] [--print] [SHAPE ...]`` compares this machine.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from typing import NamedTuple

import torch

from repro_kernels.errors import UnsupportedError
from repro_kernels.probe_digests import DIGESTS
from repro_kernels.spec.philox import MASK, MULTIPLIERS, ROUNDS, WEYL

SHAPES: tuple[tuple[int, int, int], ...] = (
    (32, 6144, 4096),
    (32, 4096, 14336),
    (32, 128256, 4096),
    (1, 4096, 4096),
    (2048, 6144, 4096),
    (2048, 28672, 4096),
    (100, 1000, 1000),
)
"""M x N x K of x [M, K], w [N, K]."""

QUICK = (SHAPES[3], SHAPES[6])
"""What ``doctor`` runs without being asked: a second or two on two CPU cores."""

_KEY = (0x5250524F, 0x42453031)  # "RPRO", "BE01"
_SAMPLES = 8
_CHUNK = 1 << 22


class Digests(NamedTuple):
    """SHA-256, hex, of little-endian bytes in C order."""

    x: str
    w: str
    sampled: str
    whole: str


def name(shape: tuple[int, int, int]) -> str:
    """``MxNxK``."""
    return "x".join(map(str, shape))


def sampled_rows(m: int) -> list[int]:
    """Eight rows from first to last, ``i * (M - 1) // 7``, without repetition."""
    return sorted({i * (m - 1) // (_SAMPLES - 1) for i in range(_SAMPLES)})


def operand(rows: int, columns: int, number: int, device: torch.device) -> torch.Tensor:
    """Operand `number` of a shape: bfloat16 [rows, columns], the same bits on every device.

    Element e of the flattened matrix is half e % 8 of the four words of Philox4x32-10 with counter
    (e // 8 as two words, `number`, 0), low halves first. Of the 16 bits the highest is the sign, the next
    four choose an exponent from -8 to 7 and the last seven are the fraction; the bits between are not used.

    Args:
        rows: rows.
        columns: columns.
        number: 2 * (index of the shape) + 0 for x, 1 for w.
        device: where it is computed.
    """
    count = rows * columns
    out = torch.empty(-(-count // 8) * 8, dtype=torch.int16, device=device)
    for first in range(0, out.numel() // 8, _CHUNK):
        index = torch.arange(first, min(first + _CHUNK, out.numel() // 8), device=device)
        words = _philox(index & MASK, index >> 32, number)
        halves = torch.stack([half for word in words for half in (word & 0xFFFF, word >> 16)], dim=1)
        bits = (halves & 0x807F) | (119 + ((halves >> 11) & 15)) << 7
        signed = torch.where(bits >= 1 << 15, bits - (1 << 16), bits)
        out[8 * first : 8 * (first + index.numel())] = signed.to(torch.int16).view(-1)
    return out[:count].view(torch.bfloat16).view(rows, columns)


def _philox(low: torch.Tensor, high: torch.Tensor, number: int) -> tuple[torch.Tensor, ...]:
    """The four output words of counters (low, high, number, 0), as int64 tensors (spec/philox.py)."""
    c0, c1, c2, c3 = low, high, torch.full_like(low, number), torch.zeros_like(low)
    k0, k1 = _KEY
    for _ in range(ROUNDS):
        first, second = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]  # modulo 2^64: shifts below are unsigned
        c0, c1, c2, c3 = (
            ((second >> 32) & MASK) ^ c1 ^ k0,
            second & MASK,
            ((first >> 32) & MASK) ^ c3 ^ k1,
            first & MASK,
        )
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return c0, c1, c2, c3


def digest(t: torch.Tensor) -> str:
    """SHA-256, hex, of a tensor's bytes in C order, little-endian."""
    words = t.detach().contiguous().cpu().view(torch.int32 if t.element_size() == 4 else torch.int16)
    array = words.numpy()
    return hashlib.sha256(array.astype(array.dtype.newbyteorder("<"), copy=False).data).hexdigest()


def run(shape: tuple[int, int, int], device: torch.device, *, sampled: bool = False) -> Digests:
    """Compute one shape.

    Args:
        shape: one of :data:`SHAPES`.
        device: a CPU or CUDA device.
        sampled: only the sampled rows; ``whole`` is then empty.

    Raises:
        UnsupportedError: a shape that is not of the probe, or a device without kernels.
    """
    if shape not in SHAPES:
        raise UnsupportedError(f"a probe of {name(shape)}")
    if device.type == "cuda":
        from repro_kernels.gpu.gemm import linear
    else:
        from repro_kernels.cpu.gemm import linear
    m, n, k = shape
    place = 2 * SHAPES.index(shape)
    x, w = operand(m, k, place, device), operand(n, k, place + 1, device)
    rows = torch.tensor(sampled_rows(m), device=device)
    if sampled:
        part = linear(x[rows], w, out_dtype=torch.float32)
        return Digests(digest(x), digest(w), digest(part), "")
    y = linear(x, w, out_dtype=torch.float32)
    return Digests(digest(x), digest(w), digest(y[rows]), digest(y))


def problems(found: Digests, shape: tuple[int, int, int]) -> list[str]:
    """Which of a shape's digests are not the committed ones, by name."""
    committed = DIGESTS[name(shape)]
    pairs = zip(Digests._fields, found, committed, strict=True)
    return [field for field, ours, theirs in pairs if ours and ours != theirs]


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 if every digest is the committed one."""
    parser = argparse.ArgumentParser(prog="python -m repro_kernels.probe", description=__doc__)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help="MxNxK; all seven without any")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sampled", action="store_true", help="only the sampled rows")
    parser.add_argument("--print", action="store_true", help="print a table of digests, do not compare")
    chosen = parser.parse_args(arguments)
    wrong = 0
    for shape in SHAPES:
        if chosen.shapes and name(shape) not in chosen.shapes:
            continue
        started = time.perf_counter()
        found = run(shape, torch.device(chosen.device), sampled=chosen.sampled)
        took = time.perf_counter() - started
        if chosen.print:
            print(f'    "{name(shape)}": (')
            print("".join(f'        "{value}",\n' for value in found), end="    ),\n", flush=True)
            continue
        bad = problems(found, shape)
        wrong += bool(bad)
        print(
            f"{name(shape)}: {'other ' + ', '.join(bad) if bad else 'same bits'} ({took:.1f} s)", flush=True
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
