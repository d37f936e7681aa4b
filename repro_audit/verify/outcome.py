"""From what a rerun found to the result that a person reads, and whether it may be attested. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro_audit.errors import UntrustedError
from repro_audit.trace.record import CompiledKernel
from repro_audit.verdict import Finding, Result, Verdict
from repro_audit.verify import environment
from repro_audit.verify.claim import Claim, Options
from repro_audit.verify.grade import Grade, device_of, grade
from repro_audit.verify.judge import verdict_of, worst_first
from repro_audit.verify.machine_code import compare_machine_code

if TYPE_CHECKING:
    from repro_audit.models.loaded import LoadedModel


@dataclass(frozen=True)
class Verification:
    """The outcome, and what an attestation needs to know of it.

    Attributes:
        model_root: of the files that were given here; None if their weights are damaged.
    """

    result: Result
    claim: Claim
    grade: Grade
    model_root: str | None


def conclude(
    options: Options,
    claim: Claim,
    model: LoadedModel | None,
    findings: list[Finding],
    *,
    counts: Mapping[str, int],
    maps: Sequence[tuple[str, tuple[str, ...]]],
    changed: bool,
    machine_code: Sequence[CompiledKernel] | None = None,
) -> Verification:
    """The result of a verification.

    Args:
        options: what was asked.
        claim: what was claimed.
        model: the model that was given here; None if its weights are damaged.
        findings: in any order.
        counts: rows or points: identical, origins, inherited.
        maps: per sequence with differences, the rows of its heat map.
        changed: whether the model given here has tensors that differ.
        machine_code: what the rerun executed; None if there was none.
    """
    manifest = claim.manifest
    here = environment.collect(options.device)
    theirs, mine = device_of(dict(manifest.environment)), device_of(here)
    reached = grade(theirs, mine)
    code = None
    if machine_code is not None:
        differing, code = compare_machine_code(manifest, machine_code, here)
        findings = [*findings, *differing]
    verdict = verdict_of(findings, Verdict.REPRODUCED)
    settings = manifest.settings
    tokens = sum(len(prompt) for prompt in claim.prompts), sum(len(drawn) for drawn in claim.generated)
    given = model.name if model is not None else "damaged weights"
    facts = (
        ("model", f"{manifest.model.name} (given here: {given})"),
        ("recorded on", f"{theirs.text} - claimed"),
        ("rerun on", f"{mine.text} - measured"),
        ("grade", reached.text),
        ("trust", claim.opened.describe()),
        ("profile", f"{settings.profile} v{manifest.profile_version}, activations {settings.activations}, "
                    f"record {settings.level}" + (", weights cast" if settings.cast_weights else "")),
        ("tokens", f"{len(manifest.sequences)} sequence(s), {tokens[0]} prompt + {tokens[1]} generated"),
        ("run root", manifest.root),
        ("payload", manifest.payload_sha256),
        *(() if code is None else (("compiled kernels", code),)),
    )  # fmt: skip
    ordered = worst_first(findings)
    result = Result(
        "verify",
        verdict,
        _summary(verdict, ordered, changed),
        ordered,
        facts,
        tuple(counts.items()),
        tuple(maps),
        _next(options, verdict, ordered, settings.level),
    )
    return Verification(result, claim, reached, model.root if model is not None else None)


def _summary(verdict: Verdict, findings: tuple[Finding, ...], changed: bool) -> str:
    if verdict is Verdict.REPRODUCED:
        return "every recorded bit was computed again and is the same"
    if verdict is Verdict.DIVERGED:
        shown = next(
            (f for f in findings if f.code in ("RA401", "RA402", "RA405", "RA406") and f.point), None
        )
        if changed and shown is None and any(f.code == "RA504" for f in findings):
            return "the model given here has other weights, with which the run cannot be computed"
        if changed and shown is None:
            return "the model given here has other weights; no recorded row shows it"
        if shown is not None:
            token = f" at token {shown.position}" if shown.position is not None else ""
            why = (
                "the model given here has other weights; they show first in"
                if changed
                else "bits first differ in"
            )
            return f"{why} {shown.point}{token} of sequence {shown.sequence}"
    first = next((finding for finding in findings if finding.kind != "note"), None)
    return first.message if first is not None else verdict.value.lower()


def _next(options: Options, verdict: Verdict, findings: tuple[Finding, ...], level: str) -> str:
    codes = {finding.code for finding in findings}
    if verdict is Verdict.REPRODUCED:
        trusted = "" if options.trusted else " (with --trusted-key)"
        return f"repro-audit verify {options.manifest} --key KEY --attest OUT{trusted}"
    if "RA501" in codes:
        return "repro-audit doctor"
    if "RA301" in codes:
        return f"repro-audit show {options.manifest}, for the revision that was recorded"
    if verdict is Verdict.DIVERGED and level != "ops":
        return "repro-audit run MODEL --record ops on the recorder's machine, to name the operator"
    first = findings[0].code if findings else "RA000"
    return f"repro-audit explain {first}"


def require_attestable(verification: Verification) -> None:
    """Refuse to attest to a record for which nobody trusted vouches.

    Raises:
        UntrustedError: trust was waived.
    """
    if not verification.claim.opened.signers:
        raise UntrustedError(
            "an attestation needs a manifest that a trusted key signed", hint="pass --trusted-key PUB"
        )
