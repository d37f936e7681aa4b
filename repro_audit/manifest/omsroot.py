"""A model's root as OpenSSF Model Signing computes it, and our own root for models without files.

SHA-256 over the concatenated raw SHA-256 digests of the files, in the order of their paths' parts. File
symlinks are followed; git's files and our own are left out. The root does not bind the files' names, so the
manifest lists the files one by one as well. A test compares with model-signing's own hashing API.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from repro_audit.errors import UsageError
from repro_audit.manifest.canonical import dumps
from repro_audit.manifest.files import OWN_SUFFIXES, open_regular
from repro_audit.trace.record import TensorDigest

#: What model-signing leaves out by default, at the top of the folder.
GIT_NAMES = frozenset({".git", ".gitattributes", ".github", ".gitignore"})
CHUNK = 1 << 20


def list_files(folder: Path) -> list[tuple[str, Path]]:
    """The files of a model's folder as (relative POSIX name, path), in root order.

    Raises:
        UsageError: a folder reached through a symlink, or something that is neither file nor folder.
    """
    found: list[tuple[str, Path]] = []
    for here, folders, names in os.walk(folder, onerror=_unreadable):
        base = Path(here)
        top = base == folder
        if top:
            folders[:] = [name for name in folders if name not in GIT_NAMES]
        for name in folders:
            if (base / name).is_symlink():
                raise UsageError(f"{base / name} is a symlink to a folder", hint="copy the files into place")
        for name in names:
            if top and (name in GIT_NAMES or name.endswith(OWN_SUFFIXES)):
                continue
            path = base / name
            if not path.is_file():
                raise UsageError(
                    f"{path} is not a file", hint="remove it from the model's folder, or restore it"
                )
            found.append((path.relative_to(folder).as_posix(), path))
    return sorted(found, key=lambda item: PurePosixPath(item[0]).parts)


def _unreadable(error: OSError) -> None:
    raise UsageError(f"cannot read {error.filename}: {error.strerror}", hint="check its permissions")


def file_sha256(path: Path) -> tuple[str, int]:
    """SHA-256 (hex) and size of a file, in one pass."""
    hasher = hashlib.sha256()
    size = 0
    with open_regular(path, "model file") as stream:
        while chunk := stream.read(CHUNK):
            hasher.update(chunk)
            size += len(chunk)
    return hasher.hexdigest(), size


def root_of_digests(digests: Iterable[str]) -> str:
    """Root (hex) over hex file digests that are already in root order."""
    return hashlib.sha256(b"".join(bytes.fromhex(digest) for digest in digests)).hexdigest()


def model_root(path: Path) -> tuple[str, tuple[tuple[str, str, int], ...]]:
    """Root and files, (name, SHA-256, size) in root order, of a model's folder or single file.

    Raises:
        UsageError: missing, unreadable, without any file, or holding what is no file.
    """
    if path.is_file():
        named = [(path.name, path)]
    elif path.is_dir():
        named = list_files(path)
    else:
        raise UsageError(f"the model {path} does not exist", hint="check the path")
    if not named:
        raise UsageError(f"the folder {path} holds no model files", hint="check the path")
    files = tuple((name, *file_sha256(file)) for name, file in named)
    return root_of_digests(digest for _, digest, _ in files), files


def tensor_list_root(tensors: Iterable[TensorDigest]) -> str:
    """Root (hex) of a ``python:`` model: SHA-256 of the canonical JSON of its tensor digests by name."""
    listed = [
        {"digest": tensor.digest, "dtype": tensor.dtype, "name": tensor.name, "shape": list(tensor.shape)}
        for tensor in sorted(tensors, key=lambda tensor: tensor.name)
    ]
    return hashlib.sha256(dumps(listed)).hexdigest()
