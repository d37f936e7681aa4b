"""``repro-audit check``: is a record well-formed, signed and consistent?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro_audit.cli.app import Common, command
from repro_audit.cli.options import TrustedKeys, Untrusted, trusted_keys
from repro_audit.verdict import Result


@command("check")
def check(
    common: Common,
    manifests: Annotated[list[str], typer.Argument(metavar="MANIFEST...", show_default=False)],
    trusted_key: TrustedKeys = [],  # noqa: B006  (typer copies it)
    insecure_allow_untrusted: Untrusted = False,
) -> Result | None:
    """Check signatures, format, roots and traces of records: no model, no rerun, no torch."""
    from repro_audit.verify.check import check as run_check

    paths = [Path(manifest) for manifest in manifests]
    return run_check(paths, trusted_keys(trusted_key), allow_untrusted=insecure_allow_untrusted)
