"""Damaged and hostile weight files: refused in one sentence or read, never a crash, never an endless loop."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro_audit.errors import InconclusiveError, ReproAuditError
from repro_audit.models.gguf_arch import architecture, config_values
from repro_audit.models.gguf_file import read_gguf
from repro_audit.models.gguf_tokenizer import gguf_tokenizer
from repro_audit.models.safetensors_file import read_header, read_tensors
from repro_audit.progress import NullObserver
from tests.helpers.tiny_models import tiny_folder, tiny_gguf

FUZZ = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
EDIT = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return (tiny_folder(tmp_path_factory.mktemp("hf"), "llama") / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf").read_bytes()


def changed(data: bytes, header: int, edits: list[tuple[float, int]], cut: float) -> bytes:
    out = bytearray(data)
    for place, value in edits:
        out[int(place * header)] = value
    return bytes(out[: int(len(out) * cut)])


@FUZZ
@given(edits=EDIT, cut=st.sampled_from([1.0, 1.0, 0.5, 0.01]))
def test_safetensors_header(tmp_path: Path, weights: bytes, edits, cut):
    path = tmp_path / "w.safetensors"
    header = 8 + int.from_bytes(weights[:8], "little")
    path.write_bytes(changed(weights, header, edits, cut))
    try:
        checked = read_header(path, "w.safetensors")
    except InconclusiveError as error:
        assert error.message.startswith("w.safetensors") and error.hint
        return
    assert checked.entries[-1].end == checked.size == path.stat().st_size
    tensors, digest = read_tensors(path, "w.safetensors", NullObserver())
    assert sum(tensor.nbytes for tensor in tensors.values()) == checked.size - checked.data_start
    assert digest.size == checked.size


@FUZZ
@given(edits=EDIT, cut=st.sampled_from([1.0, 1.0, 0.5, 0.01]))
def test_gguf_header(tmp_path: Path, packed: bytes, edits, cut):
    path = tmp_path / "m.gguf"
    header = read_size(packed)
    path.write_bytes(changed(packed, header, edits, cut))
    try:
        gguf = read_gguf(path, "m.gguf")
        stated, _ = architecture(gguf, "m.gguf")
        config_values(gguf, stated, "m.gguf")
        gguf_tokenizer(path, gguf, "m.gguf")
    except ReproAuditError as error:
        assert "m.gguf" in error.message and error.hint and "\n" not in error.message
        return
    assert all(tensor.end <= gguf.size for tensor in gguf.tensors)


def read_size(data: bytes) -> int:
    """Offset of the first tensor byte of an intact file, near enough: the norms' ones begin there."""
    return data.rindex(b"output_norm.weight") + 64


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("llama.block_count", 1 << 30, "states 1073741824 blocks and holds 2"),
        ("llama.attention.head_count", 0, "are no sizes"),
        ("llama.embedding_length", 0, "are no sizes"),
    ],
)
def test_gguf_sizes(tmp_path: Path, packed: bytes, key: str, value: int, message: str):
    data = bytearray(packed)
    at = data.index(key.encode()) + len(key) + 4
    struct.pack_into("<I", data, at, value)
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(InconclusiveError, match=message):
        config_values(read_gguf(path, "m.gguf"), "llama", "m.gguf")
