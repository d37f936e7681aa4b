"""What was run, by whom, on what, with which coverage, and who attested to it. No model, no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from repro_audit.manifest.attest import open_attestation
from repro_audit.manifest.dsse import MAX_ENVELOPE
from repro_audit.manifest.files import read_bounded
from repro_audit.manifest.keys import TrustedKey
from repro_audit.manifest.opening import Recorded, open_recorded
from repro_audit.manifest.types import Manifest
from repro_audit.verdict import Finding, Result, Verdict

#: Characters of a text that a fact shows.
SHOWN = 200

Facts = list[tuple[str, str]]


def show(path: Path, trusted: Sequence[TrustedKey] = (), attestations: Sequence[Path] = ()) -> Result:
    """Describe a manifest and the attestations about it. Nothing is checked against a trace or a model.

    Args:
        path: the manifest.
        trusted: keys under whose names signatures are shown; without them trust is shown as none.
        attestations: envelopes of verifiers, joined to the manifest by the digest of its payload.

    Raises:
        UsageError: a file is missing or unreadable.
        UntrustedError: malformed, contradictory, an invalid signature, or an attestation about another
            manifest.
        InconclusiveError: written in another version of the format.
    """
    recorded = open_recorded(path, trusted, allow_untrusted=True)
    manifest = recorded.manifest
    facts = [*_model(manifest), *_question(manifest), *_outcome(manifest), *_coverage(manifest)]
    facts += _occasion(recorded)
    findings: list[Finding] = []
    if not recorded.opened.signers:
        findings.append(Finding("RA103", f"trust: {recorded.opened.describe()}", "note"))
    for number, other in enumerate(attestations, start=1):
        data = read_bounded(other, MAX_ENVELOPE, "attestation")
        attestation, opened = open_attestation(
            data, recorded.opened.payload, manifest, trusted, allow_untrusted=True
        )
        facts.append(
            (
                f"attestation {number}",
                f"{attestation.verdict.value}, {attestation.profile}, {attestation.grade}; "
                f"trust: {opened.describe()}; {other.name}",
            )
        )
    return Result(
        "show",
        Verdict.VALID,
        f"a recording of {manifest.model.name}; what it says is a claim until it is verified",
        tuple(findings),
        tuple(facts),
        (
            ("points", len(manifest.points)),
            ("sequences", len(manifest.sequences)),
            ("attestations", len(attestations)),
        ),
        next_command=f"repro-audit verify {path} --model MODEL",
    )


def _model(manifest: Manifest) -> Facts:
    model = manifest.model
    facts = [("model", f"{model.name} ({model.kind})")]
    if model.revision is not None:
        facts.append(("revision", model.revision))
    if model.package is not None:
        facts.append(("package", model.package))
    facts += [
        ("model root", f"{model.root} ({model.root_method})"),
        (
            "files",
            ", ".join(file.name for file in model.files[:8]) + (", ..." if len(model.files) > 8 else ""),
        ),
        (
            "tensors",
            f"{len(model.tensors)}, tied groups {len(model.tied)}, ignored keys {len(model.ignored_keys)}",
        ),
    ]
    return [(name, value) for name, value in facts if value]


def _question(manifest: Manifest) -> Facts:
    settings, decoding = manifest.settings, manifest.settings.decoding
    how = "greedy"
    if decoding.temperature:
        how = (
            f"temperature {decoding.temperature}, top-k {decoding.top_k or 'all'}, top-p {decoding.top_p}, "
            f"seed {decoding.seed}"
        )
    facts = [
        (
            "profile",
            f"{settings.profile} v{manifest.profile_version}, activations {settings.activations}"
            + (", weights cast" if settings.cast_weights else ""),
        ),
        ("recorded", f"level {settings.level}, {len(manifest.points)} points"),
        ("decoding", f"at most {decoding.max_new_tokens} new tokens, {how} (by {decoding.source})"),
    ]
    if manifest.chat is not None:
        facts.append(("chat template", f"used; date {manifest.chat.date or 'none'}"))
    if manifest.privacy is not None:
        facts.append(("inputs", f"private; commitment {manifest.privacy.commitment}"))
    return facts


def _outcome(manifest: Manifest) -> Facts:
    facts: Facts = []
    for n, sequence in enumerate(manifest.sequences[:8]):
        facts.append(
            (f"sequence {n}", f"{sequence.prompt_count} prompt + {sequence.generated_count} drawn tokens")
        )
        if sequence.prompt_text is not None:
            facts.append((f"sequence {n}, prompt", _quoted(sequence.prompt_text)))
        if sequence.text is not None:
            facts.append((f"sequence {n}, text", _quoted(sequence.text)))
    if len(manifest.sequences) > 8:
        facts.append(("further sequences", str(len(manifest.sequences) - 8)))
    return facts


def _quoted(text: str) -> str:
    """Text as it may be printed: control characters escaped, long ones cut."""
    cut = text[:SHOWN]
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut) + (
        " ..." if len(text) > SHOWN else ""
    )


def _coverage(manifest: Manifest) -> Facts:
    classes = Counter(operator.classed for operator in manifest.operators)
    facts = [
        ("operators", ", ".join(f"{count} {name}" for name, count in sorted(classes.items()))),
        ("modules", ", ".join(f"{m.covered}/{m.total} {m.kind}" for m in manifest.modules)),
        ("attention", manifest.attention),
    ]
    if manifest.cache_faults:
        facts.append(("cache faults", "; ".join(manifest.cache_faults[:8])))
    return [(name, value) for name, value in facts if value]


def _occasion(recorded: Recorded) -> Facts:
    manifest = recorded.manifest
    facts = [(f"claimed: {name}", value) for name, value in manifest.environment]
    if manifest.compiled:
        targets = sorted({kernel.target for kernel in manifest.compiled})
        count = f"{len(manifest.compiled)} for {', '.join(targets)}"
        facts.append(("claimed: compiled kernels", f"{count}, SHA-256 of each in the manifest"))
    facts += [
        ("claimed: time", f"{manifest.started_at} to {manifest.finished_at}"),
        ("recorded by", f"repro-audit {manifest.tool_version} on {manifest.settings.device}"),
        ("run", manifest.run_id),
    ]
    if manifest.challenge is not None:
        facts.append(("challenge", manifest.challenge))
    facts += [
        ("trust", recorded.opened.describe()),
        ("trace", f"{manifest.trace.size} bytes, SHA-256 {manifest.trace.sha256}"),
        ("run root", manifest.root),
        ("manifest payload", manifest.payload_sha256),
    ]
    return facts
