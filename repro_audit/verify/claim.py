"""What a manifest claims, opened: everything that can be known before a model is touched. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from repro_audit.errors import UsageError
from repro_audit.manifest.dsse import Opened
from repro_audit.manifest.keys import TrustedKey
from repro_audit.manifest.opening import open_recorded
from repro_audit.manifest.private import read_inputs
from repro_audit.manifest.types import Manifest
from repro_audit.trace.record import Digests
from repro_audit.trace.tracefile import open_trace
from repro_audit.verify.check import check_sequence, require_known_profile


@dataclass(frozen=True)
class Options:
    """What the verifier was asked and allowed to do.

    Attributes:
        manifest: the envelope's file.
        model: MODEL as typed, or None: the packaged demo or a local hub-cache revision.
        trusted: keys that may vouch.
        allow_untrusted: compare bits although nobody trusted vouches.
        trace: the trace file, or None for the one beside the manifest, if there is one.
        inputs: the inputs of a private run.
        challenge: the nonce that the manifest must hold (lower-case hex).
        device: as asked, until the claim is trusted; then as resolved.
        online: may download the model that the command line names.
        batch_size, prefill_chunk: schedule of the rerun; 0 for the recorder's.
    """

    manifest: Path
    model: str | None = None
    trusted: tuple[TrustedKey, ...] = ()
    allow_untrusted: bool = False
    trace: Path | None = None
    inputs: Path | None = None
    challenge: str | None = None
    device: str = "cpu"
    online: bool = False
    batch_size: int = 0
    prefill_chunk: int = 0


@dataclass(frozen=True)
class Claim:
    """A manifest that was opened: what is claimed, who vouches, and the tokens if they were private.

    Attributes:
        opened: the envelope.
        manifest: the parsed payload.
        prompts, generated, texts: per sequence; from the inputs file where the manifest withholds them.
        prompt_texts: of the prompts that the manifest shows as text.
        salt: of a private run.
        trace: per sequence, recorded point index -> row digests; None without a trace file.
    """

    opened: Opened
    manifest: Manifest
    prompts: tuple[tuple[int, ...], ...]
    generated: tuple[tuple[int, ...], ...]
    texts: tuple[str | None, ...]
    prompt_texts: tuple[str | None, ...]
    salt: bytes | None
    trace: tuple[Mapping[int, Digests], ...] | None


def open_claim(options: Options) -> Claim:
    """Everything that can be said before a model is touched.

    Raises:
        UntrustedError: no trusted signature, malformed, contradictory, or the trace is another one.
        UsageError: unreadable files, or inputs that are missing or not asked for.
    """
    recorded = open_recorded(options.manifest, options.trusted, allow_untrusted=options.allow_untrusted)
    opened, manifest = recorded.opened, recorded.manifest
    require_known_profile(manifest)
    if manifest.privacy is None:
        if options.inputs is not None:
            raise UsageError("the inputs of this manifest are not private", hint="leave --inputs out")
        prompts = tuple(sequence.prompt or () for sequence in manifest.sequences)
        generated = tuple(sequence.generated or () for sequence in manifest.sequences)
        texts = tuple(sequence.text for sequence in manifest.sequences)
        prompt_texts = tuple(sequence.prompt_text for sequence in manifest.sequences)
        salt = None
    else:
        if options.inputs is None:
            raise UsageError("the inputs of this manifest are private", hint="pass --inputs NAME.inputs.json")
        private = read_inputs(options.inputs, manifest)
        prompts = tuple(sequence.prompt for sequence in private.sequences)
        generated = tuple(sequence.generated for sequence in private.sequences)
        texts = tuple(sequence.text for sequence in private.sequences)
        # What a chat template made of a private prompt is not kept, so it cannot be compared with the tokens.
        prompt_texts = (None,) * len(prompts)
        salt = private.salt
    trace = options.trace if options.trace is not None else recorded.trace
    return Claim(
        opened, manifest, prompts, generated, texts, prompt_texts, salt, _read_trace(trace, manifest)
    )


def _read_trace(path: Path | None, manifest: Manifest) -> tuple[Mapping[int, Digests], ...] | None:
    if path is None:
        return None
    found = []
    with open_trace(path, manifest) as trace:
        for index in range(len(manifest.sequences)):
            check_sequence(manifest, trace, index)
            found.append({point: rows.digests for point, rows in trace.rows(index).items()})
    return tuple(found)
