"""``repro-audit show``: what was run, by whom, on what, with which coverage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro_audit.cli.app import Common, command
from repro_audit.cli.options import TrustedKeys, trusted_keys
from repro_audit.verdict import Result


@command("show")
def show(
    common: Common,
    manifest: Annotated[str, typer.Argument(metavar="MANIFEST", show_default=False)],
    attestations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ATTESTATION]...", help="Verifiers' statements about it.", show_default=False
        ),
    ] = None,
    trusted_key: TrustedKeys = [],  # noqa: B006  (typer copies it)
) -> Result | None:
    """Show what was run, by whom, on what, with which coverage, and who attested to it."""
    from repro_audit.verify.show import show as run_show

    return run_show(Path(manifest), trusted_keys(trusted_key), [Path(path) for path in attestations or ()])
