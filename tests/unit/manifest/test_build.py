"""From a run to a payload and back: nothing lost, nothing that the reader would refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from manifests import synthetic
from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.manifest import build
from repro_audit.manifest.build import Occasion, build_manifest, describe_points, new_run_id, utc_now
from repro_audit.manifest.parse import parse_manifest
from repro_audit.manifest.types import ChatClaim, TraceRef
from repro_audit.trace.record import PointRows, RowHeader


def test_what_was_recorded_is_what_is_read() -> None:
    run = synthetic.make(temperature=0.7)
    manifest = parse_manifest(run.write()[0])
    assert manifest.settings == run.settings
    assert manifest.point_table() == run.record.points
    assert manifest.model.tensors == run.model.tensors
    assert manifest.model.tied == run.model.tied
    assert manifest.model.scalars == run.record.scalars
    assert manifest.model.buffers == run.record.buffers
    assert manifest.operators == run.record.operators
    assert manifest.modules == run.record.modules
    assert dict(manifest.environment) == run.environment
    assert dict(manifest.schedule) == run.record.schedule
    assert (manifest.model.root, manifest.model.name) == (run.model.root, run.model.name)
    for claim, sequence in zip(manifest.sequences, run.record.sequences, strict=True):
        assert (claim.id, claim.prompt, claim.generated) == (sequence.id, sequence.prompt, sequence.generated)
        assert claim.text == sequence.text
        assert len(claim.digests) == len(run.record.points)
    logits = manifest.sequences[0].spans[-1]
    assert (logits.first, logits.count) == (2, 2), "logits rows P-1 .. P+N-2"
    assert manifest.sequences[0].positions == 4, "the last drawn token is never fed"


def test_no_floats_and_64_bit_integers_as_text() -> None:
    def walk(value: Any) -> None:
        assert not isinstance(value, float)
        if isinstance(value, dict):
            assert all(key.isascii() for key in value)
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(item)

    predicate = json.loads(synthetic.make(temperature=0.7).write()[0])["predicate"]
    walk(predicate)
    assert predicate["decoding"]["seed"] == str(2**64 - 1)
    assert float.fromhex(predicate["decoding"]["temperature"]) == 0.7


def test_environment_claims_are_made_printable() -> None:
    run = synthetic.make()
    run.environment = {"gpu": "A\x1b[2J\nB", "empty": "\n", "long": "x" * 9000}
    manifest = parse_manifest(run.write()[0])
    assert dict(manifest.environment) == {"gpu": "A [2J B", "long": "x" * 4096}


def test_rendered_prompts_are_recorded_and_withheld_when_private() -> None:
    for private in (False, True):
        run = synthetic.make(private=private)
        chat = ChatClaim(("<user>one</user>", "<user>two</user>"), "01 Jan 2026")
        payload = build_manifest(
            run.record,
            run.model,
            run.settings,
            TraceRef(1, "00" * 32),
            Occasion(new_run_id(), utc_now(), utc_now(), None, {}),
            top2=False,
            chat=chat,
            private=run.private,
        )
        manifest = parse_manifest(payload)
        assert manifest.chat == (replace(chat, rendered=()) if private else chat)
        assert manifest.challenge is None


def test_private_inputs_and_saved_values_exclude_each_other() -> None:
    run = synthetic.make(private=True, values=True)
    with pytest.raises(UsageError, match="would show the private inputs; leave --save-values out"):
        run.write()


def test_a_contradictory_record_is_a_fault_of_ours() -> None:
    run = synthetic.make()
    run.record.sequences[0].generated = (0, 7)
    with pytest.raises(RuntimeError, match="after a stop token"):
        run.write()
    run = synthetic.make()
    del run.record.sequences[1].rows[3]
    with pytest.raises(ValueError, match="point 3 has no rows in sequence 11"):
        run.write()


def test_rows_of_changing_type_are_named() -> None:
    run = synthetic.make()
    old = run.record.sequences[1].rows[0]
    run.record.sequences[1].rows[0] = PointRows(RowHeader("bfloat16", (4,)), old.first, old.digests)
    with pytest.raises(InconclusiveError, match=r"model\.embed_tokens have another type"):
        describe_points(run.record)


def test_a_manifest_beyond_the_limit_is_refused_with_its_size(monkeypatch: Any) -> None:
    monkeypatch.setattr(build, "MAX_PAYLOAD", 1000)
    with pytest.raises(UsageError, match=r"MB, more than .*; record fewer prompts"):
        synthetic.make().write()
