"""Philox4x32-10 (numerics.md, "Ground rules": sampling).

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

Words = tuple[int, int, int, int]

MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """The four output words of ten rounds; every word is 32 bits."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = divmod(MULTIPLIERS[0] * c0, 1 << 32)
        high1, low1 = divmod(MULTIPLIERS[1] * c2, 1 << 32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return c0, c1, c2, c3


def philox(seed: int, position: int, sequence_id: int) -> Words:
    """The words of one draw: key (seed_lo, seed_hi), counter (position, 0, id_lo, id_hi).

    Args:
        seed: 64 bits, unsigned.
        position: 0-based index of the token being drawn, from the sequence's first real token; 32 bits.
        sequence_id: the sequence's recorded id, never its index in a batch; 64 bits, unsigned.

    Raises:
        ValueError: an argument does not fit its width.
    """
    for name, number, width in (("seed", seed, 64), ("position", position, 32), ("id", sequence_id, 64)):
        if not 0 <= number < 1 << width:
            raise ValueError(f"{name} {number} does not fit {width} unsigned bits")
    return philox4x32((position, 0, sequence_id & MASK, sequence_id >> 32), (seed & MASK, seed >> 32))


def uniform(seed: int, position: int, sequence_id: int) -> float:
    """u = (x0 >> 8) * 2**-24, exact in binary32, in [0, 1); x0 is the first output word."""
    return (philox(seed, position, sequence_id)[0] >> 8) * 2.0**-24
