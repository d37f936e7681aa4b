"""``repro-audit verify``: rerun a record here and compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro_audit.cli.app import Common, command, option
from repro_audit.cli.options import (
    LARGEST,
    Challenge,
    Device,
    Inputs,
    Key,
    Online,
    Passphrase,
    Threads,
    Trace,
    TrustedKeys,
    Untrusted,
    known_device,
    set_threads,
    signing_key,
    trusted_keys,
)
from repro_audit.errors import UsageError
from repro_audit.verdict import Result, Verdict


@command("verify", dry_run=True)
def verify(  # noqa: PLR0917  (the command line's own flags)
    common: Common,
    manifest: Annotated[
        str, typer.Argument(metavar="MANIFEST", help="NAME.manifest.json.", show_default=False)
    ],
    model: Annotated[
        str | None,
        option("--model", metavar="MODEL", help="Where you have the model: folder, hub id, GGUF, ..."),
    ] = None,
    trusted_key: TrustedKeys = [],  # noqa: B006  (typer copies it)
    insecure_allow_untrusted: Untrusted = False,
    inputs: Inputs = None,
    trace: Trace = None,
    challenge: Challenge = None,
    device: Device = "auto",
    batch_size: Annotated[
        int, option("--batch-size", help="Sequences at once; never changes a bit.", min=0, max=LARGEST)
    ] = 0,
    prefill_chunk: Annotated[
        int, option("--prefill-chunk", help="Tokens at once; never changes a bit.", min=0, max=LARGEST)
    ] = 0,
    online: Online = False,
    key: Key = None,
    passphrase_file: Passphrase = None,
    attest: Annotated[
        str | None,
        option("--attest", metavar="OUT", help="Write a signed statement of the outcome (needs --key)."),
    ] = None,
    threads: Threads = None,
) -> Result | None:
    """Rerun a record here, compare every recorded bit, and name where the bits first part."""
    from repro_audit.manifest.files import require_writable
    from repro_audit.manifest.private import parse_challenge
    from repro_audit.verify.claim import Options, open_claim
    from repro_audit.verify.outcome import require_attestable
    from repro_audit.verify.verify import verify as run_verification

    options = Options(
        manifest=Path(manifest),
        model=model,
        trusted=trusted_keys(trusted_key),
        allow_untrusted=insecure_allow_untrusted,
        trace=Path(trace) if trace else None,
        inputs=Path(inputs) if inputs else None,
        challenge=parse_challenge(challenge) if challenge else None,
        device=known_device(device),
        online=online,
        batch_size=batch_size,
        prefill_chunk=prefill_chunk,
    )
    signer = None
    if attest is not None:
        if key is None:
            raise UsageError("--attest signs a statement", hint="pass --key with your private key")
        if not options.trusted:
            raise UsageError("--attest needs to know whose record it is", hint="pass --trusted-key PUB")
        require_writable(Path(attest), overwrite=common.outputs.force)
        signer = signing_key(key, passphrase_file, common)
    elif key is not None:
        raise UsageError(
            "--key without --attest has nothing to sign", hint="pass --attest OUT or leave --key out"
        )
    if common.dry_run:
        claim = open_claim(options)
        return Result(
            "verify",
            Verdict.VALID,
            "the manifest can be verified; nothing was rerun",
            facts=(("model", claim.manifest.model.name), ("trust", claim.opened.describe())),
            next_command="the same command without --dry-run",
        )
    set_threads(threads)
    with common.observer() as observer:
        done = run_verification(options, observer)
    if attest is not None and signer is not None:
        from repro_audit.manifest.attest import build_attestation
        from repro_audit.manifest.dsse import seal
        from repro_audit.manifest.files import write_file

        require_attestable(done)
        payload = build_attestation(
            done.claim.manifest, done.result.verdict.value, done.grade.text, done.model_root
        )
        write_file(Path(attest), seal(payload, signer), overwrite=common.outputs.force)
        common.say(f"attestation written: {attest}")
    return done.result
