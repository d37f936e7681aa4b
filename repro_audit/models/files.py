"""The files of a model folder: which there are, what each hashes to, and the root over all of them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.models.loaded import FileDigest
from repro_audit.progress import Observer

_CHUNK = 1 << 22
_MAX_JSON = 64 << 20
#: Left out of the root, as OpenSSF Model Signing leaves out git's files, and we our own.
GIT_NAMES = frozenset({".git", ".gitattributes", ".github", ".gitignore"})
OWN_SUFFIXES = (".manifest.json", ".trace.safetensors", ".inputs.json")


def scan(folder: Path, allowed: Path | None = None) -> dict[str, Path]:
    """Every file of a folder, by name relative to it (``/`` between parts), in name order.

    Symbolic links are followed, but none may lead out of ``allowed``: a folder is what it holds, not a way to
    read other files of the machine. A snapshot of the hub cache is links into its repository's blobs.

    Args:
        folder: the model folder.
        allowed: links must end inside this folder; the model folder itself when not given.

    Raises:
        InconclusiveError: a link leads out, is broken, or the entry is not a regular file.
        UsageError: a folder cannot be read.
    """
    bound = (allowed or folder).resolve()
    found: dict[str, Path] = {}

    def fail(error: OSError) -> None:
        raise UsageError(f"cannot read {error.filename}", hint="check its permissions") from error

    for parent, directories, names in os.walk(folder, onerror=fail):
        directories[:] = sorted(name for name in directories if name not in GIT_NAMES)
        for name in [*names, *(d for d in directories if os.path.islink(os.path.join(parent, d)))]:
            path = Path(parent, name)
            relative = path.relative_to(folder).as_posix()
            if name in GIT_NAMES or name.endswith(OWN_SUFFIXES):
                continue
            if path.is_symlink():
                _check_link(path, relative, bound)
            if path.is_dir():
                raise InconclusiveError(
                    f"{relative} is a link to a folder", hint="copy the files in place of the link"
                )
            if not path.is_file():
                raise InconclusiveError(
                    f"{relative} is not a regular file", hint="remove it from the model folder"
                )
            found[relative] = path
    return dict(sorted(found.items()))


def _check_link(path: Path, relative: str, bound: Path) -> None:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InconclusiveError(f"{relative} is a broken link", hint="fetch the file again") from error
    if not target.is_relative_to(bound):
        raise InconclusiveError(
            f"{relative} is a link that leads out of the model folder",
            hint="copy the file in place of the link",
        )


def digest_files(
    files: Iterable[tuple[str, Path]], known: Sequence[FileDigest], observer: Observer
) -> tuple[FileDigest, ...]:
    """SHA-256 of every file, in name order; those of ``known`` are taken over (hashed as they were read)."""
    done = {digest.name: digest for digest in known}
    for name, path in files:
        if name not in done:
            sha = hashlib.sha256()
            size = 0
            with path.open("rb") as file:
                while piece := file.read(_CHUNK):
                    sha.update(piece)
                    size += len(piece)
                    observer.advance(len(piece))
            done[name] = FileDigest(name, sha.hexdigest(), size)
    return tuple(done[name] for name in sorted(done))


def root_of(files: Sequence[FileDigest]) -> str:
    """Hex of the OpenSSF Model Signing root: SHA-256 over the raw file digests in name order."""
    ordered = sorted(files, key=lambda item: item.name)
    return hashlib.sha256(b"".join(bytes.fromhex(item.sha256) for item in ordered)).hexdigest()


def read_json(path: Path, name: str) -> dict[str, Any]:
    """A JSON object from a model's file.

    Raises:
        InconclusiveError: the file is missing, too large or not an object.
    """
    hint = "the model folder is incomplete or damaged: fetch it again"
    if not path.is_file():
        raise InconclusiveError(f"the model has no {name}", hint=hint)
    if path.stat().st_size > _MAX_JSON:
        raise InconclusiveError(f"{name} has more than {_MAX_JSON >> 20} MiB", hint=hint)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InconclusiveError(f"{name} is not valid JSON ({error})", hint=hint) from error
    if not isinstance(value, dict):
        raise InconclusiveError(f"{name} holds no object", hint=hint)
    return value
