"""``repro-audit keygen``: an Ed25519 key pair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro_audit.cli.app import Common, command
from repro_audit.cli.options import Passphrase
from repro_audit.verdict import Result, Verdict


@command("keygen")
def keygen(
    common: Common,
    name: Annotated[
        str, typer.Argument(metavar="PATH", help="The private key; PATH.pub is the public one.")
    ] = "key.pem",
    passphrase_file: Passphrase = None,
) -> Result | None:
    """Make a key pair to sign with: PATH (keep it, mode 0600) and PATH.pub (give it away)."""
    from repro_audit.manifest import keys

    passphrase = keys.read_passphrase(Path(passphrase_file)) if passphrase_file else None
    public = keys.generate(Path(name), passphrase)
    return Result(
        "keygen",
        Verdict.RECORDED,
        f"key pair {name} and {name}.pub",
        facts=(
            ("private key", f"{name} (mode 0600; keep it)"),
            ("public key", f"{name}.pub"),
            ("key id", public.keyid),
        ),
        next_command=f"repro-audit run MODEL --prompt TEXT --key {name}",
    )
