"""Canonical JSON: one spelling, the one of RFC 8785, and a parser that survives anything."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_audit.errors import UntrustedError
from repro_audit.manifest.canonical import MAX_DEPTH, MAX_INT, dumps, loads, loads_canonical

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
KEYS = st.text(st.characters(max_codepoint=127), max_size=6)
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INT, MAX_INT) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_equals_rfc_8785(value: Any) -> None:
    assert dumps(value) == rfc8785.dumps(value)


@given(JSON)
def test_round_trip(value: Any) -> None:
    assert loads_canonical(dumps(value), "it") == value


@given(JSON, st.data())
def test_another_spelling_is_refused(value: Any, data: st.DataObject) -> None:
    other = json.dumps(
        value, indent=data.draw(st.sampled_from([None, 1])), ensure_ascii=data.draw(st.booleans())
    )
    if other.encode() != dumps(value):
        with pytest.raises(UntrustedError, match="canonical form"):
            loads_canonical(other.encode(), "it")


@settings(max_examples=300)
@given(st.binary(max_size=200) | st.text('{}[]",:\\0123456789.eE+-truefalsn u', max_size=60).map(str.encode))
def test_any_bytes_parse_or_are_refused(data: bytes) -> None:
    try:
        value = loads(data, "it")
    except UntrustedError:
        return
    assert json.loads(data) == value


@given(JSON, st.data())
def test_a_changed_byte_is_another_value_or_refused(value: Any, data: st.DataObject) -> None:
    good = bytearray(dumps(value))
    at = data.draw(st.integers(0, len(good) - 1))
    good[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(UntrustedError):
        # Compared as text: to Python, True equals 1.
        assert repr(loads_canonical(bytes(good), "it")) != repr(value)


@pytest.mark.parametrize(
    "value", [1.0, float("nan"), MAX_INT + 1, -MAX_INT - 1, {1: 2}, {"ü": 1}, {"a": [0.5]}, b"x", {"a"}]
)
def test_what_has_no_canonical_form_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError):
        dumps(value)


def test_lone_surrogates_are_not_written() -> None:
    with pytest.raises(ValueError):
        dumps("\ud800")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1.0", "floats"),
        ("1e3", "floats"),
        ("NaN", "floats"),
        ("Infinity", "floats"),
        ("-Infinity", "floats"),
        (str(MAX_INT + 1), "beyond"),
        ("-0", "-0"),
        ('{"a":1,"a":2}', "repeats the key"),
        ('{"a":{"b":1,"b":1}}', "repeats the key"),
        ('{"\\u00fc":1}', "not ASCII"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested deeper"),
        ('{"a":' * 50_000, "nested deeper"),
        ("[1]x", "not JSON"),
        ("", "not JSON"),
    ],
)
def test_refusals(text: str, words: str) -> None:
    with pytest.raises(UntrustedError, match=words):
        loads(text.encode(), "it")


def test_brackets_in_strings_are_not_nesting() -> None:
    value = ["[{" * 1000, '"[' * 100, "\\"]
    assert loads(dumps(value), "it") == value


def test_size_is_checked_first() -> None:
    with pytest.raises(UntrustedError, match="more than the 10 allowed"):
        loads(b"\xff" * 11, "it", limit=10)


@pytest.mark.parametrize("start", [b'"', b"[", b'["'], ids=["open string", "outside", "nested"])
@pytest.mark.parametrize("unit", [b'\\"', b"\\\\", b'"', b'""', b"a", b'"\\'])
def test_hostile_quotes_cost_no_more_than_their_length(start: bytes, unit: bytes) -> None:
    """This runs before any signature is looked at: the square of a megabyte would never end."""
    began = time.process_time()
    with pytest.raises(UntrustedError, match="it is not JSON"):
        loads(start + unit * 2**18, "it")
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("data", "deep"),
    [(b'["]]]][[[["]', 1), (b'["\\"[[[\\\\"]', 1), (b'[["\\\\\\"[[["]]', 2), (b'{"a[":[{"b]":[]}]}', 4)],
)
def test_only_brackets_outside_strings_nest(data: bytes, deep: int) -> None:
    assert loads(data, "it", depth=deep) == json.loads(data)
    with pytest.raises(UntrustedError, match="nested deeper"):
        loads(data, "it", depth=deep - 1)
