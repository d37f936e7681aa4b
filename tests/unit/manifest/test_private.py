"""Private inputs: what the manifest withholds, and what still binds it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manifests import synthetic
from repro_audit.errors import UntrustedError, UsageError
from repro_audit.manifest.canonical import dumps
from repro_audit.manifest.parse import parse_manifest
from repro_audit.manifest.private import new_salt, parse_challenge, parse_inputs, read_inputs


def test_nothing_of_the_inputs_is_in_manifest_or_trace() -> None:
    run = synthetic.make(private=True)
    run.texts = ("a very secret prompt", None)
    payload, trace = run.write()
    for data in (payload, trace):
        assert (
            b"secret" not in data
            and b"six seven" not in data
            and b"top2" not in data.replace(b'"top2":false', b"")
        )
    predicate = json.loads(payload)["predicate"]
    for sequence in predicate["sequences"]:
        assert not {"prompt", "generated", "promptText", "text"} & set(sequence)
    _, open_trace = synthetic.make().write()
    rows = {open_trace[i : i + 32] for i in range(len(open_trace) % 32, len(open_trace), 32)}
    hidden = {trace[i : i + 32] for i in range(len(trace) % 32, len(trace), 32)}
    assert not (rows & hidden) - {bytes(32)}, "a row of a private run must not equal the unkeyed row"


def test_the_inputs_file_opens_the_commitment(tmp_path: Path) -> None:
    run = synthetic.make(private=True)
    payload, _ = run.write()
    manifest = parse_manifest(payload)
    assert run.private is not None
    path = tmp_path / "x.inputs.json"
    path.write_bytes(run.private.to_bytes())
    assert read_inputs(path, manifest) == run.private
    value = json.loads(path.read_bytes())
    for change in (
        {"salt": "11" * 32},
        {"sequences": list(reversed(value["sequences"]))},
        {"sequences": [{**value["sequences"][0], "prompt": [1, 2, 4]}, value["sequences"][1]]},
        {"sequences": [{**value["sequences"][0], "text": "six eight"}, value["sequences"][1]]},
    ):
        path.write_bytes(dumps({**value, **change}))
        with pytest.raises(UntrustedError, match="not the one this manifest commits to"):
            read_inputs(path, manifest)
    with pytest.raises(UsageError, match="not private"):
        read_inputs(path, parse_manifest(synthetic.make().write()[0]))


def test_a_commitment_to_other_lengths_is_a_contradiction(tmp_path: Path) -> None:
    run = synthetic.make(private=True)
    payload, _ = run.write()
    assert run.private is not None
    statement = json.loads(payload)
    short = type(run.private)(run.private.salt, run.private.sequences[:1])
    claim = short.claim()
    statement["predicate"]["privacy"] = {"commitment": claim.commitment, "saltDigest": claim.salt_digest}
    path = tmp_path / "x.inputs.json"
    path.write_bytes(short.to_bytes())
    with pytest.raises(UntrustedError, match="opens to other sequences"):
        read_inputs(path, parse_manifest(dumps(statement)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"salt":"00","schema":"urn:repro-audit:inputs:v1","sequences":[]}',
        dumps({"salt": "00" * 32, "schema": "urn:repro-audit:inputs:v2", "sequences": []}),
        dumps({"salt": "00" * 32, "schema": "urn:repro-audit:inputs:v1", "sequences": []}),
        dumps(
            {
                "salt": "00" * 32,
                "schema": "urn:repro-audit:inputs:v1",
                "sequences": [{"generated": [-1], "id": "0", "prompt": []}],
            }
        ),
    ],
)
def test_malformed_inputs_files(data: bytes) -> None:
    with pytest.raises(UntrustedError):
        parse_inputs(data)


def test_salts_and_challenges() -> None:
    assert len(new_salt()) == 32 and new_salt() != new_salt()
    assert parse_challenge("AABBccdd00112233") == "aabbccdd00112233"
    for bad in ("", "zz" * 8, "00" * 7, "00" * 65, "0" * 17, "00 11 22 33 44 55 66 77"):
        with pytest.raises(UsageError, match="8 to 64 bytes"):
            parse_challenge(bad)


def test_the_challenge_is_signed() -> None:
    assert parse_manifest(synthetic.make().write()[0]).challenge == "00112233445566778899aabbccddeeff"
