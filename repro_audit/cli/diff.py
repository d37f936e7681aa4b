"""``repro-audit diff``: compare records with one another, without a rerun."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro_audit.cli.app import Common, command
from repro_audit.cli.options import TrustedKeys, Untrusted, trusted_keys
from repro_audit.verdict import Result


@command("diff")
def diff(
    common: Common,
    manifests: Annotated[list[str], typer.Argument(metavar="A B...", show_default=False)],
    trusted_key: TrustedKeys = [],  # noqa: B006  (typer copies it)
    insecure_allow_untrusted: Untrusted = False,
) -> Result | None:
    """Compare records from their traces: no model, no rerun, no torch."""
    from repro_audit.verify.diff import diff as run_diff

    paths = [Path(manifest) for manifest in manifests]
    return run_diff(paths, trusted_keys(trusted_key), allow_untrusted=insecure_allow_untrusted or None)
