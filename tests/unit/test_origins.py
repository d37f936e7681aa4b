"""Origins against a brute-force definition, and by hand on small tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_audit.trace.record import Edge, Point
from repro_audit.verify.origins import Differences, Origin, find_origins

CHAIN = (
    Point("embed", "tok"),
    Point("attn", "tok", (Edge(0, "causal"),)),
    Point("mlp", "tok", (Edge(0, "row"), Edge(1, "row"))),
    Point("logits", "tok", (Edge(2, "row"),)),
)


def rows(text: str, first: int = 0) -> Differences:
    return Differences(first, np.array([c == "x" for c in text]))


def test_one_origin_and_its_heirs():
    found = find_origins(CHAIN, {0: rows("...."), 1: rows(".x.x"), 2: rows(".x.x"), 3: rows(".x.x")})
    assert found.origins == (Origin(1, 1), Origin(1, 3))
    assert found.inherited == 4
    assert found.identical == 10


def test_causal_taints_later_rows_only():
    found = find_origins(CHAIN, {0: rows(".x.."), 1: rows("x.xx")})
    assert found.origins == (Origin(0, 1), Origin(1, 0))
    assert found.inherited == 2


def test_window_reaches_back_exactly_its_width():
    points = (Point("k", "tok"), Point("attn", "tok", (Edge(0, "window", 2),)))
    found = find_origins(points, {0: rows("x..."), 1: rows("xxxx")})
    assert found.origins == (Origin(0, 0), Origin(1, 2), Origin(1, 3))


def test_all_reaches_forward():
    points = (Point("tokens", "tok"), Point("mixer", "tok", (Edge(0, "all"),)))
    found = find_origins(points, {0: rows("...x"), 1: rows("x...")})
    assert found.origins == (Origin(0, 3),)


def test_rows_outside_the_recorded_range_count_as_matching():
    points = (Point("early", "tok"), Point("late", "tok", (Edge(0, "row"),)))
    found = find_origins(points, {0: rows("xx"), 1: rows("xx", first=1)})
    assert found.origins == (Origin(0, 0), Origin(0, 1), Origin(1, 2))


def test_kv_rows_compare_per_token_with_any_head():
    points = (Point("k_cache", "kv"), Point("attn", "tok", (Edge(0, "causal"),)))
    heads = np.array([[False, False], [False, True], [False, False]])
    found = find_origins(points, {0: Differences(0, heads), 1: rows(".xx")})
    assert found.origins == (Origin(0, 1, (1,)),)
    assert found.inherited == 2


def test_a_point_that_was_not_compared_counts_as_matching():
    found = find_origins(CHAIN, {2: rows("...x")})
    assert found.origins == (Origin(2, 3),)


def test_unknown_dependency_is_refused():
    points = (Point("a", "tok"), Point("b", "tok", (Edge(0, "sideways"),)))
    with pytest.raises(ValueError, match="sideways"):
        find_origins(points, {0: rows("x"), 1: rows("x")})


KINDS = st.sampled_from(["row", "causal", "window", "all"])


@st.composite
def tables(draw):
    count = draw(st.integers(1, 6))
    points, differs = [], {}
    for index in range(count):
        edges = tuple(
            Edge(draw(st.integers(0, index - 1)), draw(KINDS), draw(st.integers(1, 4)))
            for _ in range(draw(st.integers(0, 2)) if index else 0)
        )
        heads = draw(st.integers(0, 2))
        points.append(Point(f"p{index}", "kv" if heads else "tok", edges))
        length = draw(st.integers(0, 6))
        shape = (length, heads) if heads else (length,)
        flat = draw(st.lists(st.booleans(), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        differs[index] = Differences(draw(st.integers(0, 3)), np.array(flat, dtype=bool).reshape(shape))
    return tuple(points), differs


@settings(max_examples=300, deadline=None)
@given(tables())
def test_equals_the_definition(table):
    points, differs = table

    def differ(point: int, position: int) -> bool:
        entry = differs[point]
        row = position - entry.first
        return 0 <= row < entry.rows.shape[0] and bool(np.any(entry.rows[row]))

    def consumed(edge: Edge, position: int) -> list[int]:
        span = range(0, 12)
        if edge.kind == "row":
            return [position]
        if edge.kind == "causal":
            return [p for p in span if p <= position]
        if edge.kind == "window":
            return [p for p in span if position - edge.window < p <= position]
        return list(span)

    expected, heirs = [], 0
    for index, point in enumerate(points):
        for position in range(12):
            if not differ(index, position):
                continue
            if any(differ(edge.point, p) for edge in point.inputs for p in consumed(edge, position)):
                heirs += 1
            else:
                expected.append((index, position))
    found = find_origins(points, differs)
    assert [(origin.point, origin.position) for origin in found.origins] == expected
    assert found.inherited == heirs
