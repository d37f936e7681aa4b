"""Digests: equal exactly when name, type, place and values are."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from repro_audit.errors import UntrustedError
from repro_audit.trace.container import CODES, TensorSpec, parse_header, write_container
from repro_audit.trace.digest import leaf_hash, merkle_root, node_hash, row_bytes, row_digest

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
WORDS = st.one_of(
    st.integers(0, 2**32 - 1), st.sampled_from([0x7FC00000, 0xFFC00001, 0x7F800000, 0x80000000, 1])
)


def _rfc6962(leaves: list[bytes]) -> bytes:
    """RFC 6962 2.1 as it is written: split at the largest power of two smaller than the count."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaf_hash(leaves[0])
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    return node_hash(_rfc6962(leaves[:split]), _rfc6962(leaves[split:]))


@given(st.lists(st.binary(max_size=4), max_size=40))
def test_merkle_root_is_the_recursive_definition(leaves: list[bytes]) -> None:
    assert merkle_root(leaves) == _rfc6962(leaves)


@given(
    st.lists(st.binary(min_size=1, max_size=2), max_size=6),
    st.lists(st.binary(min_size=1, max_size=2), max_size=6),
)
def test_roots_differ_when_leaves_do(a: list[bytes], b: list[bytes]) -> None:
    assert (merkle_root(a) == merkle_root(b)) == (a == b)


@given(hnp.arrays(np.uint32, SHAPES, elements=WORDS), hnp.arrays(np.uint32, SHAPES, elements=WORDS))
def test_equal_digests_mean_equal_values(a: Any, b: Any) -> None:
    def canonical(bits: Any) -> tuple[tuple[int, ...], list[int]]:
        flat = [0x7FC00000 if (w & 0x7FFFFFFF) > 0x7F800000 else w for w in bits.reshape(-1).tolist()]
        return bits.shape, flat

    same = canonical(a) == canonical(b)
    assert (row_digest(a.view(np.float32), "float32") == row_digest(b.view(np.float32), "float32")) == same


@given(hnp.arrays(np.uint32, hnp.array_shapes(min_dims=2, max_dims=3, max_side=5), elements=WORDS), st.data())
def test_strides_do_not_count(array: Any, data: st.DataObject) -> None:
    axes = data.draw(st.permutations(range(array.ndim)))
    step = data.draw(st.sampled_from([-1, 1, 2]))
    view = array.transpose(axes)[::step]
    assert row_bytes(view, "uint32") == np.ascontiguousarray(view).tobytes()
    assert row_digest(view, "uint32") == row_digest(view.copy(), "uint32")


SPECS = st.lists(
    st.tuples(st.sampled_from(sorted(CODES)), st.lists(st.integers(0, 3), max_size=3)), max_size=5
).map(lambda items: [TensorSpec(f"t{i}", dtype, tuple(shape)) for i, (dtype, shape) in enumerate(items)])


@given(SPECS, st.randoms())
def test_containers_come_back(specs: list[TensorSpec], random: Any) -> None:
    contents = [random.randbytes(spec.nbytes) for spec in specs]
    out = bytearray()
    size, sha256 = write_container(out.extend, specs, {"a": "b"}, contents)
    assert (size, sha256) == (len(out), hashlib.sha256(out).hexdigest())
    found = parse_header(bytes(out), size, {"a": "b"})
    for spec, data in zip(specs, contents, strict=True):
        assert found[spec.name][0] == spec
        assert bytes(out[found[spec.name][1] :][: spec.nbytes]) == data


@given(SPECS.filter(bool), st.data())
def test_damaged_headers_never_crash(specs: list[TensorSpec], data: st.DataObject) -> None:
    out = bytearray()
    size, _ = write_container(out.extend, specs, {}, [bytes(spec.nbytes) for spec in specs])
    header = 8 + int.from_bytes(out[:8], "little")
    at = data.draw(st.integers(0, header - 1))
    out[at] ^= data.draw(st.integers(1, 255))
    try:
        found = parse_header(bytes(out), size, {})
    except UntrustedError:
        return
    assert all(offset >= 0 and offset + spec.nbytes <= size for spec, offset in found.values())


def test_a_truncated_file_is_refused_at_every_length() -> None:
    out = bytearray()
    size, _ = write_container(out.extend, [TensorSpec("a", "uint8", (5,))], {}, [b"12345"])
    for length in range(size):
        with pytest.raises(UntrustedError):
            parse_header(bytes(out[:length]), length, {})
