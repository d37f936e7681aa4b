"""Recorded rows against rerun rows: which points are required, which rows differ. numpy only, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from repro_audit.manifest.types import PointSpec, SequenceClaim
from repro_audit.trace.digest import point_digest
from repro_audit.trace.record import Digests, Edge, Point, PointRows, SequenceRecord
from repro_audit.verdict import Finding
from repro_audit.verify.origins import Differences


@dataclass(frozen=True)
class Comparison:
    """What differs in one sequence.

    Attributes:
        differs: required point index -> its compared rows. Without a trace every point has one row that
            stands for all of its positions.
        findings: points whose rows are of another number, place or type than required.
        by_token: False where only whole points could be compared.
    """

    differs: Mapping[int, Differences]
    findings: tuple[Finding, ...]
    by_token: bool


def match_points(
    required: Sequence[Point], recorded: Sequence[PointSpec]
) -> tuple[dict[int, int], list[Finding]]:
    """Which recorded point is which required one.

    Args:
        required: the verifier's own point table.
        recorded: the manifest's.

    Returns:
        Required index -> recorded index, and a finding for everything that does not fit.
    """
    places: dict[str, int] = {}
    for index, spec in enumerate(recorded):
        places.setdefault(spec.point.name, index)
    known = {point.name for point in required}
    findings = [
        Finding("RA204", f"the record lacks the point {point.name}", "structure", point=point.name)
        for point in required
        if point.name not in places
    ]
    findings += [
        Finding("RA205", f"the record holds {spec.point.name}, which this model at this level does not have",
                "structure", point=spec.point.name)
        for index, spec in enumerate(recorded)
        if spec.point.name not in known or places[spec.point.name] != index
    ]  # fmt: skip
    matched = {i: places[point.name] for i, point in enumerate(required) if point.name in places}
    for mine, theirs in matched.items():
        if required[mine].domain != recorded[theirs].point.domain:
            findings.append(_other_rows(required[mine].name, None, "the kind of rows is another one"))
    if not findings and list(matched.values()) != sorted(matched.values()):
        findings.append(
            Finding("RA206", "the recorded points are in another order than the canonical one", "structure")
        )
    return matched, findings


def compare_sequence(
    index: int,
    *,
    required: Sequence[Point],
    matched: Mapping[int, int],
    recorded: Sequence[PointSpec],
    claim: SequenceClaim,
    trace: Mapping[int, Digests] | None,
    rerun: SequenceRecord,
) -> Comparison:
    """Compare every point of one sequence.

    Args:
        index: of the sequence, in request order.
        required: the verifier's own point table.
        matched: as :func:`match_points` returned it.
        recorded: the manifest's point table.
        claim: the manifest's sequence.
        trace: recorded point index -> uint8 [count, 32] or [count, kv_heads, 32], or None without a trace.
        rerun: the rows that this machine computed.
    """
    differs: dict[int, Differences] = {}
    findings: list[Finding] = []
    for mine, theirs in matched.items():
        own, spec, span = rerun.rows[mine], recorded[theirs], claim.spans[theirs]
        why = _misfit(own, spec, span.first, span.count)
        if why:
            findings.append(_other_rows(spec.point.name, index, why))
        elif trace is None:
            digest = point_digest(spec.point.name, own.header, own.first, own.digests).hex()
            differs[mine] = Differences(0, np.array([digest != claim.digests[theirs]]))
        else:
            differs[mine] = Differences(own.first, np.any(own.digests != trace[theirs], axis=-1))
    return Comparison(differs, tuple(findings), trace is not None)


def whole_points(points: Sequence[Point]) -> tuple[Point, ...]:
    """The table for comparisons without a trace: one row a point, every dependency on all of it."""
    return tuple(
        Point(point.name, "tok", tuple(Edge(edge.point, "all") for edge in point.inputs), point.weights)
        for point in points
    )


def _misfit(own: PointRows, spec: PointSpec, first: int, count: int) -> str:
    """Why the recorded rows cannot be those of the required point; empty if they can."""
    if own.header != spec.header:
        return (
            f"its rows are {spec.header.dtype} {list(spec.header.shape)}, "
            f"required are {own.header.dtype} {list(own.header.shape)}"
        )
    heads = own.digests.shape[1] if own.digests.ndim == 3 else 0
    if heads != spec.heads:
        return f"it has {spec.heads} heads, required are {heads}"
    if (first, count) != (own.first, own.digests.shape[0]):
        return (
            f"it holds {count} positions from {first}, required are {own.digests.shape[0]} from {own.first}"
        )
    return ""


def _other_rows(name: str, sequence: int | None, why: str) -> Finding:
    return Finding("RA206", f"{name}: {why}", "structure", point=name, sequence=sequence)
