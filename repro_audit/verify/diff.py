"""Compare recorded runs from their traces: no model, no rerun, no torch.

IDENTICAL needs runs that answer the same question: the same model (names, shapes, configuration), profile,
prompts, decoding settings and level. Otherwise rows are compared as far as they can be, and what matches is
INCONCLUSIVE. Once two runs drew different tokens they compute different things, so rows are compared up to
the first token fed that differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from repro_audit.errors import UsageError
from repro_audit.manifest.keys import TrustedKey
from repro_audit.manifest.opening import Recorded, open_recorded
from repro_audit.manifest.types import Manifest, SequenceClaim
from repro_audit.trace.record import PointRows
from repro_audit.trace.tracefile import open_trace
from repro_audit.verdict import Finding, Result, Verdict, worst
from repro_audit.verify.check import require_known_profile
from repro_audit.verify.comparable import derived_differences, question_differences, weight_differences
from repro_audit.verify.compare import Comparison, match_points, whole_points
from repro_audit.verify.grade import device_of, grade
from repro_audit.verify.judge import heat_map, origin_findings, worst_first
from repro_audit.verify.machine_code import compare_machine_code
from repro_audit.verify.origins import Differences, Origins, find_origins

Rows = tuple[dict[int, PointRows], ...]


@dataclass(frozen=True)
class Side:
    """One of the compared runs; ``rows`` is None without a trace file."""

    recorded: Recorded
    rows: Rows | None

    @property
    def manifest(self) -> Manifest:
        """The parsed payload."""
        return self.recorded.manifest

    @property
    def name(self) -> str:
        """File name, for reports."""
        return self.recorded.path.name


def diff(
    paths: Sequence[Path], trusted: Sequence[TrustedKey] = (), *, allow_untrusted: bool | None = None
) -> Result:
    """Compare every run with the first.

    Args:
        paths: two or more manifests; the traces lie beside them.
        trusted: keys that may have signed. Without any, unsigned runs are compared too, and their trust is
            shown.
        allow_untrusted: whether to compare what nobody trusted signed; by default only if no key is given.

    Raises:
        UsageError: fewer than two manifests, or an unreadable file.
        UntrustedError: a malformed or contradictory side, an invalid signature, or none by a given key.
        InconclusiveError: a side with an unknown profile.
    """
    if len(paths) < 2:
        raise UsageError("diff compares two or more manifests", hint="name another one")
    waive = not trusted if allow_untrusted is None else allow_untrusted
    sides = [_open(path, trusted, waive) for path in paths]
    results = [_Pair(sides[0], side).compare() for side in sides[1:]]
    verdict = worst(result.verdict for result in results)
    chosen = next(result for result in results if result.verdict is verdict)
    counts: dict[str, int] = {}
    for result in results:
        for name, count in result.counts:
            counts[name] = counts.get(name, 0) + count
    facts = [fact for side in sides for fact in _facts(side)]
    facts += [fact for result in results for fact in result.facts]
    return Result(
        "diff",
        verdict,
        chosen.summary,
        worst_first(finding for result in results for finding in result.findings),
        tuple(facts),
        tuple(counts.items()),
        tuple(entry for result in results for entry in result.matrix),
        _next(verdict, paths),
    )


def _open(path: Path, trusted: Sequence[TrustedKey], waive: bool) -> Side:
    recorded = open_recorded(path, trusted, allow_untrusted=waive)
    require_known_profile(recorded.manifest)
    if recorded.trace is None:
        return Side(recorded, None)
    with open_trace(recorded.trace, recorded.manifest) as trace:
        return Side(recorded, tuple(trace.rows(n) for n in range(len(recorded.manifest.sequences))))


def _facts(side: Side) -> list[tuple[str, str]]:
    device = device_of(dict(side.manifest.environment))
    return [
        (f"{side.name}: trust", side.recorded.opened.describe()),
        (f"{side.name}: recorded on", f"{device.text} - claimed"),
        (f"{side.name}: run root", side.manifest.root),
    ]


def _next(verdict: Verdict, paths: Sequence[Path]) -> str:
    if verdict is Verdict.DIVERGED:
        return (
            f"repro-audit verify {paths[0]} --model MODEL, and the same for {paths[1]}: which one reproduces?"
        )
    if verdict is Verdict.IDENTICAL:
        return f"repro-audit verify {paths[0]} --model MODEL, to see it computed again"
    return ""


class _Pair:
    """The comparison of one run with the first."""

    def __init__(self, a: Side, b: Side) -> None:
        self.a, self.b = a, b
        self.findings: list[Finding] = []
        self.changed: set[str] = set()
        self.counts = {"rows identical": 0, "origins": 0, "inherited": 0, "after other tokens": 0}
        self.matrix: list[tuple[str, tuple[str, ...]]] = []
        self.first: tuple[int, int, int] | None = None
        self.by_token = a.rows is not None and b.rows is not None

    def compare(self) -> Result:
        """Everything that differs, and the verdict of this pair."""
        a, b = self.a.manifest, self.b.manifest
        fatal, partial = question_differences(a, b)
        if fatal:
            return self._result(Verdict.INCONCLUSIVE, fatal[0], fatal + partial)
        weights, self.changed = weight_differences(a, b)
        derived = derived_differences(a, b)
        self.findings += weights + derived
        same_level = a.settings.level == b.settings.level
        matched, structure = match_points(a.point_table(), b.points)
        if same_level:
            self.findings += structure
        if not self.by_token:
            self.findings.append(
                Finding("RA203", "not every run has its trace: points are named, tokens are not", "note")
            )
        for n in range(len(a.sequences)):
            self._sequence(n, matched)
        self._cache_faults()
        different = any(finding.kind != "note" for finding in self.findings)
        if different:
            return self._result(Verdict.DIVERGED, None, partial)
        if partial:
            return self._result(Verdict.INCONCLUSIVE, partial[0], partial)
        return self._result(Verdict.IDENTICAL, None, [])

    def _sequence(self, n: int, matched: Mapping[int, int]) -> None:
        a, b = self.a.manifest.sequences[n], self.b.manifest.sequences[n]
        cut = _first_other_token(a, b)
        table = self.a.manifest.point_table()
        if self.by_token:
            comparison = self._rows(n, matched, cut)
        else:
            table = whole_points(table)
            comparison = self._points(n, matched, cut)
        found = find_origins(table, comparison.differs)
        self.counts["rows identical"] += found.identical
        self.counts["origins"] += len(found.origins)
        self.counts["inherited"] += found.inherited
        self.findings += comparison.findings
        self.findings += origin_findings(
            n,
            table,
            found,
            frozenset(self.changed),
            by_token=self.by_token,
            token_text=lambda position: _token_text(a, position),
        )
        for origin in found.origins:
            place = (n, origin.position, origin.point)
            self.first = place if self.first is None else min(self.first, place)
        if found.origins and self.by_token:
            self.matrix.append(
                (f"{self.b.name}, sequence {n}", heat_map(table, comparison, found, a.positions))
            )
        self._tokens(n, a, b, found)

    def _cache_faults(self) -> None:
        for side in (self.a, self.b):
            for fault in side.manifest.cache_faults:
                self.findings.append(Finding("RA405", f"{side.name} recorded: {fault}", "cache"))

    def _rows(self, n: int, matched: Mapping[int, int], cut: int) -> Comparison:
        assert self.a.rows is not None and self.b.rows is not None
        differs: dict[int, Differences] = {}
        findings: list[Finding] = []
        for mine, theirs in matched.items():
            one, two = self.a.rows[n][mine], self.b.rows[n][theirs]
            name = self.a.manifest.points[mine].point.name
            if one.header != two.header or one.digests.shape[1:] != two.digests.shape[1:]:
                findings.append(
                    Finding("RA206", f"{name} of sequence {n} has rows of another type", "structure", name, n)
                )
                continue
            low = max(one.first, two.first)
            end = min(one.first + len(one.digests), two.first + len(two.digests))
            high = max(min(end, cut), low)
            rows = (
                one.digests[low - one.first : high - one.first]
                != two.digests[low - two.first : high - two.first]
            )
            differs[mine] = Differences(low, np.asarray(np.any(rows, axis=-1)))
            self.counts["after other tokens"] += max(end - high, 0)
        return Comparison(differs, tuple(findings), True)

    def _points(self, n: int, matched: Mapping[int, int], cut: int) -> Comparison:
        a, b = self.a.manifest.sequences[n], self.b.manifest.sequences[n]
        differs = {
            mine: Differences(0, np.array([a.digests[mine] != b.digests[theirs]]))
            for mine, theirs in matched.items()
            if a.spans[mine] == b.spans[theirs] and cut >= max(a.positions, b.positions)
        }
        return Comparison(differs, (), False)

    def _tokens(self, n: int, a: SequenceClaim, b: SequenceClaim, found: Origins) -> None:
        if a.generated is None or b.generated is None:
            return
        if a.generated == b.generated:
            return
        pairs = enumerate(zip(a.generated, b.generated, strict=False))
        step = next((i for i, (x, y) in pairs if x != y), min(len(a.generated), len(b.generated)))
        one, two = (str(g[step]) if step < len(g) else "no token" for g in (a.generated, b.generated))
        position = a.prompt_count + step
        why = "as their logits differ" if found.origins else "from rows that do not differ"
        self.findings.append(
            Finding(
                "RA409",
                f"token {position} of sequence {n} is {one} in {self.a.name} and {two} in {self.b.name}, "
                f"{why}",
                "tokens",
                sequence=n,
                position=position,
            )
        )

    def _result(self, verdict: Verdict, why: Finding | None, more: Sequence[Finding]) -> Result:
        names = f"{self.a.name} and {self.b.name}"
        if why is not None:
            summary = f"{names} cannot be compared fully: {why.message}"
        elif verdict is Verdict.IDENTICAL:
            summary = f"every recorded bit of {names} is the same"
        elif self.first is not None:
            n, position, point = self.first
            name = self.a.manifest.points[point].point.name
            token = f" at token {position}" if self.by_token else ""
            summary = f"bits of {names} first differ in {name}{token} of sequence {n}"
        else:
            summary = f"{names} differ: {worst_first(self.findings)[0].message}"
        devices = [device_of(dict(side.manifest.environment)) for side in (self.a, self.b)]
        keys = [{key.raw() for key in side.recorded.opened.signers} for side in (self.a, self.b)]
        apart = "" if keys[0] and keys[1] and not keys[0] & keys[1] else ", not by distinct trusted keys"
        reached = f"{grade(*devices).text} - claimed by both{apart}"
        facts = [(f"{names}: evidence grade", reached)]
        b = self.b.manifest
        _, code = compare_machine_code(self.a.manifest, b.compiled, dict(b.environment), "there")
        if code is not None and b.compiled:
            facts.append((f"{names}: compiled kernels", f"{code} - claimed by both"))
        return Result(
            "diff",
            verdict,
            summary,
            (*self.findings, *more),
            tuple(facts),
            tuple(self.counts.items()),
            tuple(self.matrix),
        )


def _first_other_token(a: SequenceClaim, b: SequenceClaim) -> int:
    """First position at which another token was fed; beyond both if none was, or if tokens are withheld."""
    if a.prompt is None or b.prompt is None or a.generated is None or b.generated is None:
        return max(a.positions, b.positions)
    one = (*a.prompt, *a.generated[:-1])
    two = (*b.prompt, *b.generated[:-1])
    return next(
        (i for i, (x, y) in enumerate(zip(one, two, strict=False)) if x != y), max(a.positions, b.positions)
    )


def _token_text(claim: SequenceClaim, position: int) -> str:
    if claim.prompt is None or claim.generated is None:
        return ""
    fed = (*claim.prompt, *claim.generated)
    return f" (id {fed[position]})" if position < len(fed) else ""
