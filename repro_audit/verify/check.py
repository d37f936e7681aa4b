"""Is a recording well-formed, signed and in agreement with itself? No model, no rerun, no torch.

VALID says nothing about the computation: only a rerun does. Order per manifest: envelope and signatures,
format, contradictions and roots, JSON Schema, then the trace: hash of the whole file, header, rows against
the point digests, largest logits against greedy tokens, saved values against their rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator

from repro_audit.errors import InconclusiveError, ReproAuditError, UntrustedError
from repro_audit.manifest.canonical import loads_canonical
from repro_audit.manifest.dsse import InvalidSignatureError, NoTrustError
from repro_audit.manifest.keys import TrustedKey
from repro_audit.manifest.opening import Recorded, open_recorded
from repro_audit.manifest.types import Manifest
from repro_audit.settings import PROFILE_VERSION, PROFILES
from repro_audit.trace.digest import row_digests
from repro_audit.trace.record import PointRows
from repro_audit.trace.tracefile import TraceFile, open_trace
from repro_audit.verdict import Finding, Result, Verdict, worst
from repro_audit.verify.schema import Check, compiled


@dataclass(frozen=True)
class Checked:
    """What was found about one manifest; ``recorded`` is None if it could not be opened."""

    path: Path
    verdict: Verdict
    findings: tuple[Finding, ...]
    recorded: Recorded | None = None


def check(
    paths: Sequence[Path], trusted: Sequence[TrustedKey] = (), *, allow_untrusted: bool = False
) -> Result:
    """Check every manifest; the verdict is the worst of them.

    Args:
        paths: the manifests; a trace is looked for beside each.
        trusted: keys that may have signed.
        allow_untrusted: accept what nobody trusted signed (``--insecure-allow-untrusted``).

    Raises:
        UsageError: a file is missing or unreadable.
    """
    results = [check_one(path, trusted, allow_untrusted=allow_untrusted) for path in paths]
    verdict = worst(result.verdict for result in results)
    facts: list[tuple[str, str]] = []
    for result in results:
        if result.recorded is not None:
            facts += _facts(result.recorded, several=len(results) > 1)
    findings = tuple(finding for result in results for finding in result.findings)
    return Result(
        "check",
        verdict,
        _summary(verdict, results),
        tuple(sorted(findings, key=lambda finding: finding.kind == "note")),
        tuple(facts),
        (("manifests", len(results)), ("valid", sum(r.verdict is Verdict.VALID for r in results))),
        next_command=f"repro-audit verify {paths[0]} --model MODEL" if verdict is Verdict.VALID else "",
    )


def _summary(verdict: Verdict, results: Sequence[Checked]) -> str:
    if verdict is Verdict.VALID:
        if any(not r.recorded.opened.signers for r in results if r.recorded is not None):
            return "well-formed and in agreement with itself, but nobody trusted vouches for it"
        return "signed, well-formed and in agreement with itself; nothing was computed again"
    first = next(result for result in results if result.verdict is verdict)
    worst_finding = next(finding for finding in first.findings if finding.kind != "note")
    return f"{first.path.name}: {worst_finding.message}"


def _facts(recorded: Recorded, *, several: bool) -> list[tuple[str, str]]:
    manifest = recorded.manifest
    prefix = f"{recorded.path.name}: " if several else ""
    return [
        (prefix + "model", manifest.model.name),
        (prefix + "trust", recorded.opened.describe()),
        (prefix + "run root", manifest.root),
        (prefix + "manifest payload", manifest.payload_sha256),
    ]


def check_one(path: Path, trusted: Sequence[TrustedKey], *, allow_untrusted: bool = False) -> Checked:
    """Check one manifest; what is wrong with it becomes a finding.

    Raises:
        UsageError: the file is missing or unreadable.
    """
    try:
        recorded = open_recorded(path, trusted, allow_untrusted=allow_untrusted)
        _require_schema(recorded.opened.payload)
    except (UntrustedError, InconclusiveError) as error:
        return Checked(path, error.verdict, (_finding(error_code(error), error, "trust"),))
    findings: list[Finding] = []
    if not recorded.opened.signers:
        findings.append(Finding("RA103", f"{path.name}: trust: {recorded.opened.describe()}", "note"))
    if recorded.trace is None:
        findings.append(
            Finding("RA203", f"{path.name} has no trace beside it; its rows were not checked", "note")
        )
    else:
        try:
            with open_trace(recorded.trace, recorded.manifest) as trace:
                for index in range(len(recorded.manifest.sequences)):
                    check_sequence(recorded.manifest, trace, index)
        except UntrustedError as error:
            findings.insert(0, _finding("RA202", error, "trust"))
            return Checked(path, error.verdict, tuple(findings), recorded)
    try:
        require_known_profile(recorded.manifest)
    except InconclusiveError as error:
        findings.insert(0, _finding("RA000", error, "structure"))
        return Checked(path, error.verdict, tuple(findings), recorded)
    return Checked(path, Verdict.VALID, tuple(findings), recorded)


def _finding(code: str, error: ReproAuditError, kind: str) -> Finding:
    return Finding(code, error.message, kind, details=(("remedy", error.hint),) if error.hint else ())


def error_code(error: ReproAuditError) -> str:
    """The finding code under which a refusal is reported."""
    if isinstance(error, InvalidSignatureError):
        return "RA102"
    if isinstance(error, NoTrustError):
        return "RA101"
    return "RA000" if isinstance(error, InconclusiveError) else "RA201"


def require_known_profile(manifest: Manifest) -> None:
    """Whether this version can say anything about the profile.

    Raises:
        InconclusiveError: an unknown profile, or another version of a known one.
    """
    settings = manifest.settings
    if settings.profile not in PROFILES or manifest.profile_version != PROFILE_VERSION:
        known = ", ".join(f"{name} v{PROFILE_VERSION}" for name in PROFILES)
        raise InconclusiveError(
            f"the profile {settings.profile} v{manifest.profile_version} is not known here, {known} is",
            hint="install the version of repro-audit that wrote it",
        )


@cache
def manifest_schema() -> Any:
    """The published JSON Schema of the manifest's statement."""
    text = (resources.files("repro_audit.schemas") / "manifest.schema.json").read_text(encoding="utf-8")
    return json.loads(text)


@cache
def _conforms() -> Check:
    return compiled(manifest_schema())


def _require_schema(payload: bytes) -> None:
    value = loads_canonical(payload, "the manifest")
    if _conforms()(value):
        return
    error = next(Draft202012Validator(manifest_schema()).iter_errors(value), None)
    if error is not None:
        raise UntrustedError(
            f"the manifest does not conform to its schema at {error.json_path}: {error.message[:200]}",
            hint="ask its author for an intact copy",
        )


def check_sequence(manifest: Manifest, trace: TraceFile, index: int) -> None:
    """Require that the trace of one sequence agrees with its manifest and with itself.

    Raises:
        UntrustedError: naming what contradicts what.
    """
    rows = trace.rows(index)
    top2 = trace.top2(index)
    claim = manifest.sequences[index]
    if top2 is not None:
        _check_top2(manifest, index, top2)
    if manifest.has_values:
        for point, recorded in rows.items():
            _check_values(manifest, trace, index, point, recorded)
    if manifest.settings.decoding.temperature == 0 and top2 is not None and claim.generated:
        for step, token in enumerate(claim.generated):
            if int(top2[step, 0, 0]) != token:
                raise _disagree(
                    f"sequence {index} drew token {token} greedily where the largest logit is that of "
                    f"{int(top2[step, 0, 0])}"
                )


def _check_top2(manifest: Manifest, index: int, top2: Any) -> None:
    logits = np.ascontiguousarray(top2[:, :, 1]).view("<f4")
    first, second = top2[:, 0, 0], top2[:, 1, 0]
    shape = manifest.points[-1].header.shape
    vocabulary = shape[-1] if shape else 0
    ordered = (logits[:, 0] > logits[:, 1]) | ((logits[:, 0] == logits[:, 1]) & (first < second))
    if not ordered.all() or (first >= vocabulary).any() or (second >= vocabulary).any():
        raise _disagree(f"the two largest logits of sequence {index} are not two logits in descending order")


def _check_values(manifest: Manifest, trace: TraceFile, index: int, point: int, recorded: PointRows) -> None:
    values = trace.values(index, point)
    spec = manifest.points[point]
    if values is None:
        return
    flat = values.reshape(-1, *spec.header.shape)
    found = row_digests(flat, spec.header.dtype).reshape(recorded.digests.shape)
    if not np.array_equal(found, recorded.digests):
        raise _disagree(
            f"sequence {index}, point {spec.point.name}: the saved values do not give the recorded rows"
        )


def _disagree(why: str) -> UntrustedError:
    return UntrustedError(
        f"the trace contradicts itself: {why}", hint="do not rely on it; ask for a new recording"
    )
