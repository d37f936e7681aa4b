"""Philox4x32-10 against the known answers published with Random123, and the layout of key and counter."""

from __future__ import annotations

import pytest
from repro_kernels.spec.philox import philox, philox4x32, uniform

KNOWN = [  # counter, key, output: Random123, kat_vectors, "philox4x32 10"
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split())


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN)
def test_known_answers(counter: str, key: str, output: str) -> None:
    assert philox4x32(words(counter), words(key)) == words(output)


def test_key_and_counter() -> None:
    seed, identity = 0x299F31D0A4093822, 0x0370734413198A2E
    assert philox(seed, 0x243F6A88, identity) == philox4x32(
        (0x243F6A88, 0, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    )


def test_uniform_is_the_top_24_bits_of_the_first_word() -> None:
    assert uniform(0, 0, 0) == 0x6627E8 * 2.0**-24
    assert all(0 <= uniform(7, position, 3) < 1 for position in range(100))
    assert len({uniform(7, position, 3) for position in range(100)}) == 100


@pytest.mark.parametrize(
    "arguments", [(-1, 0, 0), (1 << 64, 0, 0), (0, 1 << 32, 0), (0, 0, 1 << 64), (0, 0, -1)]
)
def test_what_does_not_fit_is_refused(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="unsigned bits"):
        philox(*arguments)
