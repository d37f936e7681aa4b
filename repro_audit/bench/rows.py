"""What is measured, as rows: an area, a case, a stack and its figure, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from repro_audit.bench.roofline import Roofline, Work
from repro_audit.bench.timing import Measurement

OURS = "repro-audit"
REFUSED = "refused"
ABOVE = f"{REFUSED}: above the roofline"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        area: one of :data:`repro_audit.bench.plan.AREAS`.
        case: what is computed.
        stack: by whom.
        measured: seconds per call; None where there is no figure.
        work: the least that the case must do, where that is known.
        bound: what bounds this stack: ``bytes``, ``FMA issue``, ``tensor units`` or ``latency``.
        fraction: of that bound, achieved.
        ratio: the stack's median over that of ours in the same case; above 1, ours is the faster one.
        peak_bytes: most device memory in use.
        note: why there is no figure, or what to know about it.
    """

    area: str
    case: str
    stack: str
    measured: Measurement | None = None
    work: Work | None = None
    bound: str = ""
    fraction: float | None = None
    ratio: float | None = None
    peak_bytes: int | None = None
    note: str = ""

    @property
    def refused(self) -> bool:
        """Whether there is no figure because it would have been wrong."""
        return self.note.startswith(REFUSED)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; seconds, bytes and multiply-adds are plain numbers."""
        measured = self.measured
        low, high = measured.spread if measured else (None, None)
        return {
            "area": self.area,
            "case": self.case,
            "stack": self.stack,
            "seconds": measured.median if measured else None,
            "p10": low,
            "p90": high,
            "rounds": len(measured.seconds) if measured else 0,
            "graph": bool(measured and measured.graph),
            "ratio": self.ratio,
            "bytes": self.work.bytes if self.work else None,
            "fmas": self.work.fmas if self.work else None,
            "unit": self.work.unit if self.work else None,
            "bound": self.bound or None,
            "fraction": self.fraction,
            "peakBytes": self.peak_bytes,
            "note": self.note,
        }


def judged(row: Row, roofline: Roofline | None) -> Row:
    """The row with bound and fraction, or without its figure if no such device can have reached it."""
    if row.measured is None or row.work is None or roofline is None:
        return row
    bound, least = roofline.least(row.work)
    if roofline.impossible(row.work, row.measured.median):
        return replace(row, measured=None, bound=bound, note=ABOVE)
    return replace(row, bound=bound, fraction=least / row.measured.median)


def compared(rows: list[Row]) -> list[Row]:
    """The rows with the ratios of each case to ours."""
    ours = {(row.area, row.case): row.measured.median for row in rows if row.stack == OURS and row.measured}
    found = []
    for row in rows:
        base = ours.get((row.area, row.case))
        if base is None or row.measured is None or row.stack == OURS:
            found.append(row)
        else:
            found.append(replace(row, ratio=row.measured.median / base))
    return found


def of_race(
    area: str,
    case: str,
    times: Mapping[str, Measurement],
    works: Mapping[str, Work],
    roofline: Roofline | None,
) -> list[Row]:
    """The rows of one race, judged and compared."""
    rows = [Row(area, case, name, measured, works.get(name)) for name, measured in times.items()]
    return compared([judged(row, roofline) for row in rows])
