"""Digest formats, byte for byte, and that every part of a type or a name counts."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from blake3 import blake3

from repro_audit.trace.digest import (
    header_bytes,
    merkle_root,
    point_digest,
    row_bytes,
    row_digest,
    row_digests,
    row_key,
    tensor_digest,
)
from repro_audit.trace.record import RowHeader

#: Leaves and roots of the reference test of Certificate Transparency (RFC 6962 2.1), trees of 0 to 8 leaves.
LEAVES = [
    bytes.fromhex(leaf)
    for leaf in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


@pytest.mark.parametrize("count", range(9))
def test_merkle_roots_of_rfc_6962(count: int) -> None:
    assert merkle_root(LEAVES[:count]).hex() == ROOTS[count]


def test_leaves_and_nodes_are_kept_apart() -> None:
    one, two = merkle_root([b"a"]), merkle_root([b"b"])
    assert merkle_root([b"a", b"b"]) != merkle_root([one + two])


def test_row_digest_by_hand() -> None:
    row = np.array([1.0, -0.0, 2.5], dtype=np.float32)
    header = b'{"dtype":"float32","shape":[3]}'
    assert header_bytes(RowHeader("float32", (3,))) == header
    key = blake3(b"repro-audit row v1" + header).digest()
    data = struct.pack("<3f", 1.0, -0.0, 2.5)
    assert row_digest(row, "float32") == blake3(data, key=key).digest()
    salt = bytes(range(32))
    salted = blake3(b"repro-audit row v1" + header, key=salt).digest()
    assert row_key(RowHeader("float32", (3,)), salt) == salted
    assert row_digest(row, "float32", salt=salt) == blake3(data, key=salted).digest()


def test_point_digest_by_hand() -> None:
    digests = np.arange(64, dtype=np.uint8).reshape(2, 32)
    described = b'{"count":2,"dtype":"float32","first":7,"name":"logits","shape":[3]}'
    data = b"repro-audit point v1" + struct.pack("<I", len(described)) + described + bytes(range(64))
    assert point_digest("logits", RowHeader("float32", (3,)), 7, digests) == blake3(data).digest()


def test_cache_rows_are_token_major_then_head() -> None:
    digests = np.arange(2 * 3 * 32, dtype=np.uint64).astype(np.uint8).reshape(2, 3, 32)
    header = RowHeader("float32", (4,))
    described = b'{"count":2,"dtype":"float32","first":0,"name":"k","shape":[4]}'
    rows = b"".join(digests[token, head].tobytes() for token in range(2) for head in range(3))
    data = b"repro-audit point v1" + struct.pack("<I", len(described)) + described + rows
    assert point_digest("k", header, 0, digests) == blake3(data).digest()
    assert point_digest("k", header, 0, np.asfortranarray(digests)) == blake3(data).digest()


def test_every_part_of_a_point_counts() -> None:
    digests = np.zeros((2, 32), dtype=np.uint8)
    header = RowHeader("float32", (3,))
    seen = {
        point_digest("a", header, 0, digests),
        point_digest("b", header, 0, digests),
        point_digest("a", RowHeader("int32", (3,)), 0, digests),
        point_digest("a", RowHeader("float32", (3, 1)), 0, digests),
        point_digest("a", header, 1, digests),
        point_digest("a", header, 0, digests[:1]),
        point_digest("a", header, 0, np.stack([digests[0], digests[1] + 1])),
        point_digest("a", header, 0, np.stack([digests[1] + 1, digests[0]])),
    }
    assert len(seen) == 8


def test_dtype_and_shape_are_part_of_a_row() -> None:
    zeros = np.zeros(4, dtype=np.uint16)
    seen = {
        row_digest(zeros, "bfloat16"),
        row_digest(zeros, "float16"),
        row_digest(zeros, "int16"),
        row_digest(zeros.reshape(2, 2), "bfloat16"),
        row_digest(zeros.reshape(4, 1), "bfloat16"),
        row_digest(zeros[:3], "bfloat16"),
        row_digest(np.zeros(2, dtype=np.float32), "float32"),
        row_digest(np.zeros(8, dtype=np.bool_), "bool"),
        row_digest(np.zeros(8, dtype=np.uint8), "float8_e4m3fn"),
        row_digest(np.zeros(8, dtype=np.uint8), "float8_e5m2"),
    }
    assert len(seen) == 10


def test_scalars_and_empty_tensors_have_digests() -> None:
    seen = {
        tensor_digest(np.array(0.0, dtype=np.float32), "float32"),
        tensor_digest(np.zeros(1, dtype=np.float32), "float32"),
        tensor_digest(np.zeros(0, dtype=np.float32), "float32"),
        tensor_digest(np.zeros((0, 5), dtype=np.float32), "float32"),
    }
    assert len(seen) == 4


def test_logical_order_not_storage() -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert tensor_digest(matrix.T, "float32") == tensor_digest(matrix.T.copy(), "float32")
    assert tensor_digest(matrix.T, "float32") != tensor_digest(matrix.reshape(3, 2), "float32")
    assert row_bytes(matrix[:, ::2], "float32") == matrix[:, ::2].copy().tobytes()
    assert row_bytes(matrix.astype(">f4"), "float32") == matrix.tobytes()


@pytest.mark.parametrize(
    ("dtype", "unsigned", "nans", "canonical", "numbers"),
    [
        (
            "float32",
            np.uint32,
            [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF],
            0x7FC00000,
            [0x7F800000, 0xFF800000],
        ),
        ("float16", np.uint16, [0x7E00, 0xFE00, 0x7C01, 0xFFFF], 0x7E00, [0x7C00, 0xFC00]),
        ("bfloat16", np.uint16, [0x7FC0, 0xFFC0, 0x7F81, 0xFFFF], 0x7FC0, [0x7F80, 0xFF80]),
        (
            "float64",
            np.uint64,
            [0x7FF0000000000001, 0xFFF8000000000000],
            0x7FF8000000000000,
            [0xFFF0000000000000],
        ),
        ("float8_e5m2", np.uint8, [0x7D, 0x7E, 0x7F, 0xFF], 0x7E, [0x7C, 0xFC]),
        ("float8_e4m3fn", np.uint8, [0x7F, 0xFF], 0x7F, [0x7E, 0xFE]),
    ],
)
def test_nan_is_one_value_and_nothing_else_is(
    dtype: str, unsigned: type, nans: list[int], canonical: int, numbers: list[int]
) -> None:
    kept = np.array([*numbers, 0, 1], dtype=unsigned)
    assert row_bytes(kept, dtype) == kept.tobytes(), "infinities, zeros and subnormals keep their bits"
    sign = np.array([1 << (8 * kept.itemsize - 1)], dtype=unsigned)
    assert row_bytes(sign, dtype) == sign.tobytes(), "the sign of zero counts"
    bits = np.array(nans, dtype=unsigned)
    assert row_bytes(bits, dtype) == np.full(len(nans), canonical, dtype=unsigned).tobytes()


def test_integers_are_never_canonicalised() -> None:
    bits = np.array([0x7FC00001, 0xFFFFFFFF], dtype=np.uint32)
    assert row_bytes(bits, "uint32") == bits.tobytes()


def test_hashing_leaves_its_input_alone() -> None:
    bits = np.array([0xFFFFFFFF], dtype=np.uint32)
    row_bytes(bits.view(np.float32), "float32")
    assert bits[0] == 0xFFFFFFFF


def test_rows_are_hashed_one_by_one() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    digests = row_digests(rows, "float32")
    assert digests.shape == (3, 32) and digests.dtype == np.uint8
    assert [digests[i].tobytes() for i in range(3)] == [row_digest(row, "float32") for row in rows]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="no digest is defined"):
        row_digest(np.zeros(2, dtype=np.complex64), "complex64")
    with pytest.raises(ValueError, match="takes 2 bytes"):
        row_digest(np.zeros(2, dtype=np.float32), "bfloat16")
    with pytest.raises(ValueError, match="32 bytes"):
        row_key(RowHeader("float32", ()), b"short")
    with pytest.raises(ValueError, match="row digests are uint8"):
        point_digest("a", RowHeader("float32", ()), 0, np.zeros((2, 31), dtype=np.uint8))
