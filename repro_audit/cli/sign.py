"""``repro-audit sign``: put a signature on a manifest that was recorded unsigned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro_audit.cli.app import Common, command
from repro_audit.cli.options import Passphrase, signing_key
from repro_audit.errors import UsageError
from repro_audit.verdict import Result, Verdict


@command("sign")
def sign(
    common: Common,
    manifest: Annotated[
        str, typer.Argument(metavar="MANIFEST", help="A manifest written by run --unsigned.")
    ],
    key: Annotated[str, typer.Option("--key", metavar="FILE|env:VAR", help="Private key (PEM).")],
    passphrase_file: Passphrase = None,
) -> Result | None:
    """Sign a manifest that was recorded with --unsigned, in its place; what it says does not change."""
    from repro_audit.manifest.dsse import MAX_ENVELOPE, open_envelope, seal
    from repro_audit.manifest.files import read_bounded, write_file
    from repro_audit.manifest.parse import parse_manifest

    path = Path(manifest)
    opened = open_envelope(read_bounded(path, MAX_ENVELOPE, "manifest"), (), allow_untrusted=True)
    parsed = parse_manifest(opened.payload)
    if opened.signed:
        raise UsageError(
            f"{manifest} is signed already",
            hint="to vouch for another's record, rerun it: repro-audit verify --key K --attest OUT",
        )
    signer = signing_key(key, passphrase_file, common)
    write_file(path, seal(opened.payload, signer), overwrite=True)
    return Result(
        "sign",
        Verdict.RECORDED,
        f"{manifest} is signed",
        facts=(("key", signer.public.name), ("key id", signer.public.keyid), ("run root", parsed.root)),
        next_command=f"repro-audit check {manifest} --trusted-key PUB",
    )
