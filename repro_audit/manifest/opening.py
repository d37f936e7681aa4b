"""From a file that a user named to a manifest: read with a bound, verify, then parse what was verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_audit.manifest.dsse import MAX_ENVELOPE, Opened, open_envelope
from repro_audit.manifest.files import MANIFEST_SUFFIX, read_bounded, trace_path
from repro_audit.manifest.keys import TrustedKey
from repro_audit.manifest.parse import parse_manifest
from repro_audit.manifest.types import Manifest


@dataclass(frozen=True)
class Recorded:
    """A manifest on disk.

    Attributes:
        path: its file.
        opened: the envelope: payload and who signed.
        manifest: the payload, parsed.
        trace: the trace beside it, or None if there is none.
    """

    path: Path
    opened: Opened
    manifest: Manifest
    trace: Path | None


def open_recorded(path: Path, keys: Sequence[TrustedKey], *, allow_untrusted: bool = False) -> Recorded:
    """Open a manifest; no model, no trace is read yet.

    Raises:
        UsageError: missing or unreadable.
        UntrustedError: oversized, malformed, contradictory, or not signed as asked.
        InconclusiveError: written in another version of the format.
    """
    data = read_bounded(path, MAX_ENVELOPE, "manifest")
    opened = open_envelope(data, keys, allow_untrusted=allow_untrusted)
    manifest = parse_manifest(opened.payload)
    beside = trace_path(path) if path.name.endswith(MANIFEST_SUFFIX) else None
    return Recorded(path, opened, manifest, beside if beside is not None and beside.exists() else None)
