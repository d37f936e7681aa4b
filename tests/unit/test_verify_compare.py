"""Recorded rows of another type, number or place than required are findings, whatever their digests say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from repro_audit.manifest.types import PointSpec, SequenceClaim, Span
from repro_audit.trace.digest import point_digest
from repro_audit.trace.record import Point, PointRows, RowHeader, SequenceRecord
from repro_audit.verify.compare import Comparison, compare_sequence, match_points

HEADER = RowHeader("float32", (4,))
POINTS = (Point("model.norm", "tok"), Point("model.layers.0.k_cache", "kv"))
ROWS = {
    0: PointRows(HEADER, 0, np.full((3, 32), 7, dtype=np.uint8)),
    1: PointRows(HEADER, 0, np.full((3, 2, 32), 9, dtype=np.uint8)),
}


def compare(specs: list[PointSpec], spans: list[Span]) -> Comparison:
    """The comparison of rows that all have the recorded digests."""
    digests = tuple(
        point_digest(POINTS[i].name, rows.header, rows.first, rows.digests).hex() for i, rows in ROWS.items()
    )
    claim = SequenceClaim(0, 3, 3, 0, (1, 2, 3), (), None, None, "00" * 32, digests, tuple(spans))
    matched, findings = match_points(POINTS, specs)
    assert findings == []
    return compare_sequence(
        0,
        required=POINTS,
        matched=matched,
        recorded=specs,
        claim=claim,
        trace={i: rows.digests for i, rows in ROWS.items()},
        rerun=SequenceRecord(0, (1, 2, 3), (), ROWS, None),
    )


SPECS = [PointSpec(POINTS[0], HEADER), PointSpec(POINTS[1], HEADER, 2)]
SPANS = [Span(0, 3), Span(0, 3)]


def test_the_same_rows() -> None:
    same = compare(SPECS, SPANS)
    assert same.findings == ()
    assert not any(entry.rows.any() for entry in same.differs.values())


@pytest.mark.parametrize(
    ("specs", "spans", "says"),
    [
        ([replace(SPECS[0], header=RowHeader("bfloat16", (4,))), SPECS[1]], SPANS, "bfloat16"),
        ([replace(SPECS[0], header=RowHeader("float32", (2, 2))), SPECS[1]], SPANS, "[2, 2]"),
        ([SPECS[0], replace(SPECS[1], heads=3)], SPANS, "3 heads"),
        (SPECS, [Span(0, 2), SPANS[1]], "2 positions from 0"),
        (SPECS, [Span(1, 3), SPANS[1]], "3 positions from 1"),
    ],
    ids=["dtype", "shape", "heads", "count", "first"],
)
def test_rows_of_another_kind(specs: list[PointSpec], spans: list[Span], says: str) -> None:
    found = compare(specs, spans)
    assert [finding.code for finding in found.findings] == ["RA206"]
    assert says in found.findings[0].message
