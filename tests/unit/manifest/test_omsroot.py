"""The model's root equals what OpenSSF Model Signing computes for the same folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from repro_audit.errors import UsageError
from repro_audit.manifest.omsroot import model_root, tensor_list_root
from repro_audit.trace.record import TensorDigest

hashing = pytest.importorskip("model_signing.hashing", reason="model-signing is not installed")


def theirs(path: Path, *ignored: str, symlinks: bool = False) -> str:
    config = hashing.Config().set_ignored_paths(paths=ignored)
    config.set_allow_symlinks(symlinks)
    manifest = config.hash(path)
    return hashlib.sha256(
        b"".join(d.digest.digest_value for d in manifest.resource_descriptors())
    ).hexdigest()


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 3)


def test_a_folder(tmp_path: Path) -> None:
    # "a-b" sorts before "a/b" as text and after it by parts: the order must be by parts.
    fill(tmp_path, "model.safetensors", "a/b", "a-b", "a.json", "Z", "z", "ü.txt", "a/b.c/d", "empty/x")
    (tmp_path / "nothing").write_bytes(b"")
    root, files = model_root(tmp_path)
    assert root == theirs(tmp_path)
    assert len(files) == 10
    assert {name: size for name, _, size in files}["nothing"] == 0


def test_git_and_our_own_files_are_left_out(tmp_path: Path) -> None:
    fill(tmp_path, "config.json", "model.safetensors")
    before = model_root(tmp_path)
    own = ("run.manifest.json", "run.trace.safetensors", "run.inputs.json")
    fill(tmp_path, ".git/HEAD", ".gitattributes", ".gitignore", ".github/x", *own)
    assert model_root(tmp_path) == before
    assert before[0] == theirs(tmp_path, *own)


def test_only_the_top_of_the_folder_leaves_files_out(tmp_path: Path) -> None:
    fill(tmp_path, "config.json", "part/x.trace.safetensors", "part/.gitignore")
    root, files = model_root(tmp_path)
    assert root == theirs(tmp_path)
    assert len(files) == 3


def test_file_symlinks_are_followed(tmp_path: Path) -> None:
    fill(tmp_path, "blobs/1", "snapshot/config.json")
    (tmp_path / "snapshot" / "model.safetensors").symlink_to(tmp_path / "blobs" / "1")
    assert model_root(tmp_path / "snapshot")[0] == theirs(tmp_path / "snapshot", symlinks=True)


def test_what_cannot_be_hashed_is_named(tmp_path: Path) -> None:
    fill(tmp_path, "model/config.json", "other/x")
    (tmp_path / "model" / "shards").symlink_to(tmp_path / "other")
    with pytest.raises(UsageError, match="shards is a symlink to a folder"):
        model_root(tmp_path / "model")
    (tmp_path / "model" / "shards").unlink()
    (tmp_path / "model" / "gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="gone is not a file"):
        model_root(tmp_path / "model")
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match="holds no model files"):
        model_root(tmp_path / "none")
    with pytest.raises(UsageError, match="does not exist"):
        model_root(tmp_path / "missing")


def test_a_single_file(tmp_path: Path) -> None:
    fill(tmp_path, "model.gguf")
    root, files = model_root(tmp_path / "model.gguf")
    assert root == theirs(tmp_path / "model.gguf")
    assert [name for name, _, _ in files] == ["model.gguf"]


def test_the_tensor_list_root_binds_every_field_and_no_order() -> None:
    a = TensorDigest("a", "float32", (2, 3), "00" * 32)
    b = TensorDigest("b", "float32", (2, 3), "11" * 32)
    roots = {
        tensor_list_root(tensors)
        for tensors in (
            (a, b),
            (TensorDigest("c", "float32", (2, 3), "00" * 32), b),
            (TensorDigest("a", "bfloat16", (2, 3), "00" * 32), b),
            (TensorDigest("a", "float32", (3, 2), "00" * 32), b),
            (TensorDigest("a", "float32", (2, 3), "22" * 32), b),
            (a,),
        )
    }
    assert len(roots) == 6
    assert tensor_list_root((b, a)) == tensor_list_root((a, b))
