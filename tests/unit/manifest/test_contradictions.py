"""A manifest that names another model than its files make, or an answer that nothing ended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from manifests import synthetic
from repro_audit.errors import UntrustedError
from repro_audit.manifest.canonical import dumps
from repro_audit.manifest.parse import parse_manifest
from repro_audit.manifest.private import INPUTS_DOMAIN


def _edited(edit: Callable[[dict[str, Any]], object], **options: Any) -> bytes:
    statement = json.loads(synthetic.make(**options).write()[0])
    edit(statement)
    return dumps(statement)


@pytest.mark.parametrize("kind", ["hf", "python"])
def test_the_root_is_that_of_the_files_or_tensors(kind: str) -> None:
    def forge(statement: dict[str, Any]) -> None:
        statement["subject"][0]["digest"]["sha256"] = "ab" * 32

    with pytest.raises(UntrustedError, match=r"root is not the root of the (files|tensors)"):
        parse_manifest(_edited(forge, kind=kind))


def test_files_in_the_roots_order_count() -> None:
    def swap(statement: dict[str, Any]) -> None:
        first, second = (subject["digest"] for subject in statement["subject"][1:3])
        first["sha256"], second["sha256"] = second["sha256"], first["sha256"]

    with pytest.raises(UntrustedError, match="root"):
        parse_manifest(_edited(swap))


def test_an_answer_ends_where_it_was_cut_or_at_a_stop_token() -> None:
    def more_was_asked_for(statement: dict[str, Any]) -> None:
        statement["predicate"]["decoding"]["maxNewTokens"] = 3

    with pytest.raises(UntrustedError, match="stopped after 2 of 3 tokens at no stop token"):
        parse_manifest(_edited(more_was_asked_for))


def test_the_commitment_is_salted() -> None:
    private = synthetic.make(private=True).private
    assert private is not None
    body = dumps(json.loads(private.to_bytes())["sequences"])
    claim = private.claim()
    assert claim.commitment == hashlib.sha256(INPUTS_DOMAIN + private.salt + body).hexdigest()
    assert claim.commitment != replace(private, salt=bytes(32)).claim().commitment
