"""A hub id, pinned to a commit: from the local hub cache, or downloaded when the user said ``--online``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.models.build import first_line
from repro_audit.models.hf import load_folder
from repro_audit.models.loaded import LoadedModel
from repro_audit.models.spec import ModelSpec
from repro_audit.progress import Observer

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: What is fetched, at the top of the repository: safetensors and small files. Never a pickle, never code.
_WANTED = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]
_UNWANTED = ["*/*"]


def load_hub(spec: ModelSpec, *, online: bool, cast_weights: bool, observer: Observer) -> LoadedModel:
    """Load ``org/name@revision``; the record states the commit that the revision resolved to.

    ``HF_ENDPOINT``, ``HF_HOME`` and ``HF_HUB_CACHE`` mean what they mean for huggingface_hub.

    Raises:
        UsageError: the revision is not in the local cache and ``online`` is off, or the hub does not have it.
        InconclusiveError: as :func:`repro_audit.models.hf.load_folder`, or a cached file is not what the hub
            said it is.
    """
    folder = _snapshot(spec, online, observer)
    if not _COMMIT.fullmatch(folder.name):
        raise InconclusiveError(
            f"the cache of {spec.name} names no commit", hint="fetch the model again with --online"
        )
    model = load_folder(
        folder,
        spec.name,
        observer=observer,
        cast_weights=cast_weights,
        revision=folder.name,
        allowed=folder.parent.parent,
    )
    _check_blobs(folder, model)
    return model


def _snapshot(spec: ModelSpec, online: bool, observer: Observer) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    called = spec.name + (f"@{spec.revision}" if spec.revision else "")
    if online:
        observer.stage(f"Fetching {called}")
    try:
        folder = snapshot_download(
            spec.name,
            revision=spec.revision,
            local_files_only=not online,
            allow_patterns=_WANTED,
            ignore_patterns=_UNWANTED,
            endpoint=os.environ.get("HF_ENDPOINT") or None,
            tqdm_class=_bars(observer),
        )
    except OfflineModeIsEnabled as error:
        raise UsageError(f"HF_HUB_OFFLINE forbids fetching {called}", hint="unset it") from error
    except GatedRepoError as error:
        raise UsageError(
            f"{called} is gated", hint="accept its terms on the hub, then hf auth login"
        ) from error
    except RevisionNotFoundError as error:
        raise UsageError(
            f"the hub has no revision {spec.revision} of {spec.name}", hint="check it"
        ) from error
    except RepositoryNotFoundError as error:
        raise UsageError(f"the hub has no model {spec.name}", hint="check its name, or log in") from error
    except LocalEntryNotFoundError as error:
        if online:
            raise UsageError(
                f"{called} could not be fetched", hint="check network and HF_ENDPOINT"
            ) from error
        raise UsageError(
            f"{called} is not in the local hub cache", hint="add --online to fetch it"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise UsageError(
            f"{called} could not be fetched ({first_line(error)})", hint="check network and HF_ENDPOINT"
        ) from error
    return Path(folder)


def _bars(observer: Observer) -> Any:
    """A class that huggingface_hub takes for its progress bar; it draws nothing and tells the observer."""
    from huggingface_hub.utils.tqdm import tqdm

    base: Any = tqdm

    class Bar(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._bytes = kwargs.get("unit") == "B"
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            if self._bytes and n:
                observer.advance(int(n))
            return None

    return Bar


def _check_blobs(folder: Path, model: LoadedModel) -> None:
    """The cache names a large file's blob after the SHA-256 that the hub states for it."""
    for file in model.files:
        blob = (folder / file.name).resolve().name
        if _SHA256.fullmatch(blob) and blob != file.sha256:
            raise InconclusiveError(
                f"{file.name} in the hub cache hashes to {file.sha256[:16]}…, not the hub's {blob[:16]}…",
                hint="delete it from the cache and fetch it again with --online",
            )
