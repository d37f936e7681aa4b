"""What a user can name, loaded: the module with the file's weights, and its identity."""

from __future__ import annotations

from repro_audit.models.loaded import FileDigest, GenerationDefaults, LoadedModel, Prompt, Source
from repro_audit.models.spec import parse_spec
from repro_audit.progress import NullObserver, Observer

__all__ = ["FileDigest", "GenerationDefaults", "LoadedModel", "Prompt", "Source", "load", "parse_spec"]


def load(
    spec: str,
    *,
    revision: str | None = None,
    online: bool = False,
    cast_weights: bool = False,
    observer: Observer | None = None,
) -> LoadedModel:
    """Load the model that ``spec`` names (see :mod:`repro_audit.models.spec`).

    Args:
        spec: MODEL as typed on the command line; never anything from a manifest.
        revision: hub revision, when not written in ``spec``.
        online: allow a download for a hub id; without it only the local hub cache is used.
        cast_weights: keep the casts that transformers makes while loading, and list them.
        observer: told about stages and bytes.

    Returns:
        The model in evaluation mode, on the CPU, its parameters holding the file's bits and dtype.

    Raises:
        UsageError: the model does not exist, cannot be read, or is not named properly.
        InconclusiveError: something about the model lies outside the contract; the message names it.
    """
    from repro_audit.models.loader import load_spec

    return load_spec(
        parse_spec(spec, revision),
        online=online,
        cast_weights=cast_weights,
        observer=observer or NullObserver(),
    )
