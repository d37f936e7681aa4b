"""A hub id, pinned to a commit: from the local hub cache, or downloaded when the user said ``--online``."""

from __future__ import annotations

import os
import re
from pathlib import Path

from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.models.build import first_line
from repro_audit.models.hf import load_folder
from repro_audit.models.loaded import LoadedModel
from repro_audit.models.spec import ModelSpec
from repro_audit.progress import Observer

_COMMIT = re.compile(r"[0-9a-f]{40}")
#: What is fetched: weights as safetensors, and small files. Never a pickle, never code.
_WANTED = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]
_UNWANTED = ["*/*", "*.py", "*.bin"]


def load_hub(spec: ModelSpec, *, online: bool, cast_weights: bool, observer: Observer) -> LoadedModel:
    """Load ``org/name@revision``.

    Raises:
        UsageError: the revision is not in the local cache and ``online`` is off, or the hub does not have it.
        InconclusiveError: as :func:`repro_audit.models.hf.load_folder`, or a cached file is not what the hub
            named it.
    """
    folder = _snapshot(spec, online, observer)
    commit = folder.name
    model = load_folder(
        folder,
        spec.name,
        observer=observer,
        cast_weights=cast_weights,
        revision=commit if _COMMIT.fullmatch(commit) else None,
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
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    called = spec.name + (f"@{spec.revision}" if spec.revision else "")
    if online:
        observer.stage(f"Fetching {called}")
    disable_progress_bars()
    try:
        return Path(
            snapshot_download(
                spec.name,
                revision=spec.revision,
                local_files_only=not online,
                allow_patterns=_WANTED,
                ignore_patterns=_UNWANTED,
                endpoint=os.environ.get("HF_ENDPOINT") or None,
            )
        )
    except OfflineModeIsEnabled as error:
        raise UsageError(
            f"{called}: the hub is switched off by HF_HUB_OFFLINE", hint="unset it, or load a folder"
        ) from error
    except GatedRepoError as error:
        raise UsageError(
            f"{called} is gated", hint="accept its terms on the hub and log in (hf auth login)"
        ) from error
    except RevisionNotFoundError as error:
        raise UsageError(
            f"the hub has no revision {spec.revision} of {spec.name}", hint="check the revision"
        ) from error
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"the hub has no model {spec.name}", hint="check its name, or log in if it is private"
        ) from error
    except LocalEntryNotFoundError as error:
        if online:
            raise UsageError(
                f"{called} could not be fetched (the hub cannot be reached)", hint="check the network"
            ) from error
        raise UsageError(
            f"{called} is not in the local hub cache", hint="add --online to download it"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        reason = first_line(error)
        raise UsageError(
            f"{called} could not be fetched ({reason})", hint="check the network and HF_ENDPOINT"
        ) from error
    finally:
        enable_progress_bars()


def _check_blobs(folder: Path, model: LoadedModel) -> None:
    """The cache names a large file's blob after the SHA-256 that the hub states for it."""
    for file in model.files:
        blob = (folder / file.name).resolve().name
        if re.fullmatch(r"[0-9a-f]{64}", blob) and blob != file.sha256:
            raise InconclusiveError(
                f"{file.name} in the hub cache hashes to {file.sha256[:16]}…, not the hub's {blob[:16]}…",
                hint="delete the file from the cache and fetch it again with --online",
            )
