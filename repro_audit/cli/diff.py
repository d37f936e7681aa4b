"""``repro-audit diff``: compare records with one another, without a rerun."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro_audit.cli.app import Common, command, option
from repro_audit.cli.options import TrustedKeys, trusted_keys
from repro_audit.verdict import Result


@command("diff")
def diff(
    common: Common,
    manifests: Annotated[list[str], typer.Argument(metavar="A B...", show_default=False)],
    trusted_key: TrustedKeys = [],  # noqa: B006  (typer copies it)
    element: Annotated[
        bool, option("--element", help="Compare saved values too, element by element.")
    ] = False,
) -> Result | None:
    """Compare records from their traces: no model, no rerun, no torch."""
    from repro_audit.verify.diff import diff as run_diff

    paths = [Path(manifest) for manifest in manifests]
    return run_diff(paths, trusted_keys(trusted_key), element=element)
