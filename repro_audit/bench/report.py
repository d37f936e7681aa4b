"""The rows as a table for a person and as a JSON document (schema ``bench.schema.json``)."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from repro_audit.bench.roofline import MARGIN, Roofline
from repro_audit.bench.rows import OURS, Row

FORMAT = "repro-audit-bench/1"
WIDTH = 132
"""Least columns of the table."""


def document(
    rows: Sequence[Row],
    environment: Mapping[str, str],
    roofline: Roofline | None,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Plain JSON types; every key is always present."""
    peaks = None
    if roofline is not None:
        peaks = {
            "bytesPerSecond": roofline.bandwidth,
            "fmasPerSecond": dict(roofline.fmas),
            "margin": MARGIN,
            "source": roofline.source,
        }
    return {
        "format": FORMAT,
        "date": datetime.now(UTC).date().isoformat(),
        "environment": dict(environment),
        "settings": dict(settings),
        "roofline": peaks,
        "rows": [row.to_dict() for row in rows],
    }


def dumps(tree: Mapping[str, Any]) -> str:
    """Indented, with a final newline."""
    return json.dumps(tree, indent=1, ensure_ascii=True) + "\n"


def write(
    rows: Sequence[Row], environment: Mapping[str, str], roofline: Roofline | None, console: Console
) -> None:
    """Print facts, the table and how to read it."""
    for name, value in environment.items():
        console.print(f"  {name:<22}  {value}", markup=False, soft_wrap=True)
    console.print()
    # A narrow terminal wraps the lines; a table squeezed into it could not be read at all.
    console.width = max(WIDTH, console.width)
    console.print(_table(rows))
    console.print()
    console.print(
        f"ratio: the stack's time over that of {OURS}; above 1 the latter is the faster one. "
        "Read ratios, not times. Kernels are timed inside a CUDA graph, so launches do not count; bits were "
        "checked first.",
        markup=False,
    )
    if roofline is not None:
        console.print(
            f"bound: least bytes at {roofline.bandwidth / 1e12:.2f} TB/s, multiply-adds at "
            f"{roofline.fmas['fp32'] / 1e12:.1f}e12/s in fp32 and {roofline.fmas['bf16'] / 1e12:.0f}e12/s in "
            f"bf16 ({roofline.source}); a figure more than {100 * (MARGIN - 1):.0f} % above is refused.",
            markup=False,
        )


def _table(rows: Sequence[Row]) -> Table:
    """One section per case."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for name in ("median", "p10 - p90", "ratio", "rate", "of its bound", "peak"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    before = ("", "")
    for row in rows:
        here = (row.area, row.case)
        if here != before:
            table.add_row(f"{row.area}: {row.case}", style="bold")
        table.add_row(f"  {row.stack}", *cells(row), row.note)
        before = here
    return table


def render(rows: Sequence[Row], environment: Mapping[str, str], roofline: Roofline | None) -> str:
    """The same as plain text."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=WIDTH, no_color=True, highlight=False, force_terminal=False)
    write(rows, environment, roofline, console)
    return buffer.getvalue()


def line(row: Row) -> str:
    """A row on one line, for talk while the benchmark runs."""
    found = [text for text in (*cells(row), row.note) if text]
    return f"{row.area}: {row.case}: {row.stack}: {', '.join(found)}"


def cells(row: Row) -> tuple[str, str, str, str, str, str]:
    """Median, spread, ratio, rate, fraction of the bound, peak memory; empty where there is none."""
    peak = "" if row.peak_bytes is None else f"{row.peak_bytes / 2**30:.2f} GiB"
    if row.measured is None:
        return "", "", "", "", row.bound, peak
    low, high = row.measured.spread
    return (
        duration(row.measured.median),
        f"{duration(low)} - {duration(high)}",
        "" if row.ratio is None else f"{row.ratio:.2f}",
        _rate(row),
        "" if row.fraction is None else f"{100 * row.fraction:.0f} % {row.bound}",
        peak,
    )


def duration(seconds: float) -> str:
    """Three digits and a unit, as ``12.3 us``."""
    for unit, size in (("us", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def _rate(row: Row) -> str:
    """What moves, or what is computed, per second: whichever bounds the row."""
    if row.measured is None or row.work is None:
        return ""
    if row.bound in ("FMA issue", "tensor units"):
        return f"{2e-12 * row.work.fmas / row.measured.median:.3g} TFLOP/s"
    return f"{1e-9 * row.work.bytes / row.measured.median:.4g} GB/s"
