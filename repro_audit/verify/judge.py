"""From findings to a verdict: precedence, grouping of origins, the heat map. No torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from repro_audit.trace.record import Point
from repro_audit.verdict import Finding, Verdict, worst
from repro_audit.verify.compare import Comparison
from repro_audit.verify.explain import CODES
from repro_audit.verify.origins import Origins

_NUMBER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")
#: A point that reads more parameters than this (a whole block) is not described by them.
_FEW = 3
_ORDER = (
    "trust", "weights", "origin", "inputs", "scalar", "cache", "tokens", "structure", "inherited",
    "environment", "note",
)  # fmt: skip


def verdict_of(findings: Iterable[Finding], best: Verdict) -> Verdict:
    """The verdict that the findings ask for; ``best`` if none asks for any."""
    asked = [CODES[finding.code].verdict for finding in findings]
    return worst([*(verdict for verdict in asked if verdict is not None), best])


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings in the order a person should read them; within a kind as found."""
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.kind)))


def origin_findings(
    sequence: int,
    points: Sequence[Point],
    found: Origins,
    changed: frozenset[str],
    *,
    by_token: bool,
    token_text: Callable[[int], str],
    weight_text: Callable[[str], str] = str,
) -> list[Finding]:
    """One finding per point that holds origins, its positions in the details.

    Args:
        sequence: index in request order.
        points: the point table.
        found: what :func:`repro_audit.verify.origins.find_origins` found.
        changed: tensors and buffers known to differ: a point that reads one shows it, and is no origin.
        by_token: False where only whole points were compared.
        token_text: position -> the token fed there, as people read it.
        weight_text: name of a parameter -> the name and what reads it, as people read it.
    """
    findings = []
    by_point: dict[int, list[int]] = {}
    heads: dict[int, set[int]] = {}
    for origin in found.origins:
        by_point.setdefault(origin.point, []).append(origin.position)
        heads.setdefault(origin.point, set()).update(origin.heads)
    for index, positions in by_point.items():
        point = points[index]
        causes = sorted(changed.intersection(point.weights))
        if not by_token:
            code = "RA402" if causes else "RA406"
            where = f"{point.name} of sequence {sequence}"
        else:
            code = "RA402" if causes else "RA401"
            where = f"{point.name} at token {positions[0]}{token_text(positions[0])} of sequence {sequence}"
        details = []
        if by_token and len(positions) > 1:
            details.append(("tokens", f"{spans(positions)} ({len(positions)} positions)"))
        if heads[index]:
            details.append(("kv heads", spans(sorted(heads[index]))))
        if causes:
            message = f"{where} shows it first"
        elif by_token:
            message = f"{where}: everything it consumed matches, its own bits do not"
        else:
            message = f"{where}: every point it consumed matches, some row of it does not"
        reads = causes or (list(point.weights) if len(point.weights) <= _FEW else [])
        if reads:
            details.append(("reads", ", ".join(map(weight_text, reads))))
        kind = "cache" if point.domain == "kv" and not causes else "origin"
        position = positions[0] if by_token else None
        findings.append(Finding(code, message, kind, point.name, sequence, position, tuple(details)))
    return findings


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers as ranges: ``3, 7-9``; the first 6 ranges."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges[:6])
    return shown + (", ..." if len(ranges) > 6 else "")


def heat_map(
    points: Sequence[Point], comparison: Comparison, found: Origins, positions: int
) -> tuple[str, ...]:
    """Layers x tokens: ``.`` identical, ``O`` origin, ``x`` inherited, ``_`` not recorded.

    Empty without a trace. Each row is a label, a space, and one character a token.
    """
    if not comparison.by_token:
        return ()
    grid: dict[str, npt.NDArray[np.uint8]] = {}
    for index, entry in comparison.differs.items():
        row = grid.setdefault(layer_label(points[index].name), np.zeros(positions, dtype=np.uint8))
        flags = entry.by_position()
        cells = np.where(flags, 2, 1).astype(np.uint8)
        if index in found.origin_rows:
            cells[found.origin_rows[index]] = 3
        view = row[entry.first : entry.first + flags.size]
        np.maximum(view, cells, out=view)
    return tuple(f"{label} " + "".join("_.xO"[cell] for cell in row) for label, row in grid.items())


def layer_label(name: str) -> str:
    """``layer 3`` for a name with a number among its parts, else the last part."""
    match = _NUMBER.search(name)
    return f"layer {match.group(1)}" if match else name.rsplit(".", 1)[-1]
