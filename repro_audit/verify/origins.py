"""Where did it begin? Origins and heirs among the differing rows of a trace. numpy only, no torch.

An **origin** is a (point, position) whose consumed rows all match while its own does not; every other
differing row is inherited (manifest.md, "Origin, not just difference").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from repro_audit.trace.record import Edge, Point

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Differences:
    """Which rows of one point differ in one sequence.

    Attributes:
        first: position of the first compared row.
        rows: bool [count] (domains tok and sample) or [count, kv_heads] (kv): True where the digests differ.
    """

    first: int
    rows: Flags

    def by_position(self) -> Flags:
        """bool [count]: True where any head of that position differs."""
        rows = self.rows
        if rows.ndim == 1:
            return rows
        return np.asarray(rows.any(axis=tuple(range(1, rows.ndim))), dtype=np.bool_)


@dataclass(frozen=True, order=True)
class Origin:
    """A differing row that inherited nothing: point index, position, and the heads that differ (kv only)."""

    point: int
    position: int
    heads: tuple[int, ...] = ()


@dataclass(frozen=True)
class Origins:
    """The origins of one sequence and what came of them.

    Attributes:
        origins: by point in canonical order, then by position.
        inherited: number of (point, position) that differ without being an origin.
        identical: number of compared (point, position) that match.
        origin_rows: per differing point index, bool [count]: True where the row is an origin.
    """

    origins: tuple[Origin, ...]
    inherited: int
    identical: int
    origin_rows: Mapping[int, Flags]


def find_origins(points: Sequence[Point], differs: Mapping[int, Differences]) -> Origins:
    """Split the differing rows of one sequence into origins and heirs.

    Args:
        points: the point table; every edge points backwards.
        differs: point index -> its compared rows. A point that is absent was not compared, and a position
            outside a point's compared range was not recorded: both count as matching.
    """
    flags = {index: (entry.first, entry.by_position()) for index, entry in differs.items()}
    running = {index: _prefix_counts(rows) for index, (_, rows) in flags.items()}
    origins: list[Origin] = []
    origin_rows: dict[int, Flags] = {}
    inherited = identical = 0
    for index in sorted(flags):
        first, own = flags[index]
        identical += int((~own).sum())
        if not own.any():
            continue
        positions = np.arange(first, first + own.size, dtype=np.int64)
        tainted = np.zeros(own.size, dtype=np.bool_)
        for edge in points[index].inputs:
            if edge.point in flags:
                tainted |= _consumed_differs(edge, positions, flags[edge.point][0], running[edge.point])
        mine = own & ~tainted
        inherited += int((own & tainted).sum())
        origin_rows[index] = mine
        rows = differs[index].rows
        for row in np.flatnonzero(mine):
            heads = tuple(int(head) for head in np.flatnonzero(rows[row])) if rows.ndim > 1 else ()
            origins.append(Origin(index, int(positions[row]), heads))
    return Origins(tuple(origins), inherited, identical, origin_rows)


def _prefix_counts(rows: Flags) -> npt.NDArray[np.int64]:
    """int64 [count + 1]: how many of the first i rows differ."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(rows, dtype=np.int64)])


def _consumed_differs(
    edge: Edge, positions: npt.NDArray[np.int64], first: int, counts: npt.NDArray[np.int64]
) -> Flags:
    """bool [positions]: does any row that ``edge`` consumes at each position differ?

    Args:
        edge: the dependency.
        positions: positions of the consuming rows.
        first: first recorded position of the consumed point.
        counts: its :func:`_prefix_counts`.

    Raises:
        ValueError: for a kind of dependency that does not exist.
    """
    size = counts.size - 1
    if edge.kind == "row":
        low, high = positions, positions + 1
    elif edge.kind == "causal":
        low, high = np.full_like(positions, first), positions + 1
    elif edge.kind == "window":
        low, high = positions - edge.window + 1, positions + 1
    elif edge.kind == "all":
        low, high = np.full_like(positions, first), np.full_like(positions, first + size)
    else:
        raise ValueError(f"no dependency kind {edge.kind!r}")
    start = np.clip(low - first, 0, size)
    stop = np.clip(high - first, 0, size)
    return np.asarray(counts[np.maximum(stop, start)] - counts[start] > 0, dtype=np.bool_)
