"""The compiled schema says what ``jsonschema`` says, of everything that a manifest could be turned into."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from manifests import synthetic
from repro_audit.verify.check import manifest_schema
from repro_audit.verify.schema import compiled

SCHEMA = manifest_schema()
REFERENCE = Draft202012Validator(SCHEMA)
CHECK = compiled(SCHEMA)
STATEMENT = json.loads(synthetic.make().write()[0])
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**53, "", "a", "x\n", "0" * 64, "window", "kv", [], {}, [1], ["a"],
    {"a": 1}, "../x", "nan", "0x1.8p+1", "18446744073709551616",
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [path, *(found for key in keys for found in places(value[key], (*path, key)))]


PLACES = places(STATEMENT)[1:]


def parent(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        tree = tree[key]
    return tree


def test_the_statement_itself():
    assert CHECK(STATEMENT) and REFERENCE.is_valid(STATEMENT)
    for odd in ODD:
        assert CHECK(odd) == REFERENCE.is_valid(odd)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(PLACES), st.sampled_from(["set", "drop", "add"]), st.sampled_from(ODD))
def test_changed_anywhere(path, how, odd):
    tree = copy.deepcopy(STATEMENT)
    holder = parent(tree, path)
    if how == "set":
        holder[path[-1]] = odd
    elif how == "drop":
        del holder[path[-1]]
    elif isinstance(holder, dict):
        holder["window" if odd == 1 else "heads" if odd == 0 else "privacy" if odd is True else "x"] = odd
    else:
        holder.append(odd)
    assert CHECK(tree) == REFERENCE.is_valid(tree), (path, how, odd)


def test_an_unknown_keyword_is_no_silent_yes():
    with pytest.raises(ValueError, match="uniqueItems"):
        compiled({"items": {"uniqueItems": True}})


def test_a_hundred_thousand_digests_take_a_moment():
    tree = copy.deepcopy(STATEMENT)
    tree["predicate"]["sequences"][0]["digests"] = ["ab" * 32] * 100_000
    began = time.process_time()
    CHECK(tree)
    assert time.process_time() - began < 2
