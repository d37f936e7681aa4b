"""The files of a model folder: which there are, what each hashes to, and JSON from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from repro_audit.errors import InconclusiveError
from repro_audit.manifest.omsroot import list_files
from repro_audit.models.loaded import FileDigest
from repro_audit.progress import Observer

_CHUNK = 1 << 22
_MAX_JSON = 64 << 20


def scan(folder: Path, allowed: Path | None = None) -> dict[str, Path]:
    """Every file of a folder that counts to its root, by name relative to it, in root order.

    Symbolic links are followed, but none may lead out of ``allowed``: a folder is what it holds, not a way to
    read other files of the machine. A snapshot of the hub cache is links into its repository's blobs.

    Args:
        folder: the model folder.
        allowed: links must end inside this folder; the model folder itself when not given.

    Raises:
        InconclusiveError: a link leads out of the folder.
        UsageError: a folder cannot be read, or holds what is no file.
    """
    bound = (allowed or folder).resolve()
    found = dict(list_files(folder))
    for name, path in found.items():
        if path.is_symlink() and not path.resolve().is_relative_to(bound):
            raise InconclusiveError(
                f"{name} is a link that leads out of the model folder",
                hint="copy the file in place of the link",
            )
    return found


def digest_files(
    files: Sequence[tuple[str, Path]], known: Sequence[FileDigest], observer: Observer
) -> tuple[FileDigest, ...]:
    """SHA-256 of every file, in the order given; ``known`` ones were hashed as they were read."""
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
    return tuple(done[name] for name, _ in files)


def _no_number(token: str) -> NoReturn:
    raise ValueError(f"it holds {token}")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"the number {digits[:24]} is too large")
    return number


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
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InconclusiveError(f"{name} is not valid JSON ({error})", hint=hint) from error
    if not isinstance(value, dict):
        raise InconclusiveError(f"{name} holds no object", hint=hint)
    return value
