"""A verifier's statement: its own envelope, joined to the manifest by digest."""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from manifests import synthetic
from repro_audit.errors import UntrustedError
from repro_audit.manifest.attest import VERIFICATION, build_attestation, open_attestation, parse_attestation
from repro_audit.manifest.canonical import dumps
from repro_audit.manifest.dsse import NoTrustError, seal
from repro_audit.manifest.parse import parse_manifest
from repro_audit.verdict import Verdict

VERIFIER = synthetic.test_key("verifier")
PAYLOAD, _ = synthetic.make().write()
MANIFEST = parse_manifest(PAYLOAD)
GRADE = "other vendor or CPU"


@pytest.mark.parametrize(
    ("verdict", "result"),
    [("REPRODUCED", "PASSED"), ("DIVERGED", "FAILED"), ("INCONCLUSIVE", "WARNED"), ("POLICY", "WARNED")],
)
def test_what_is_stated(verdict: str, result: str) -> None:
    payload = build_attestation(MANIFEST, verdict, GRADE)
    statement = json.loads(payload)
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert statement["subject"][0]["digest"]["sha256"] == hashlib.sha256(PAYLOAD).hexdigest()
    assert statement["predicate"]["result"] == result
    schema = json.loads((resources.files("repro_audit.schemas") / "attestation.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(statement)
    attestation, opened = open_attestation(seal(payload, VERIFIER), PAYLOAD, MANIFEST, [VERIFIER.public])
    assert attestation.verdict is Verdict[verdict]
    assert (attestation.run_root, attestation.grade, attestation.profile) == (MANIFEST.root, GRADE, "fp32 v1")
    assert [key.name for key in opened.signers] == ["verifier.pub"]


def test_the_model_root_is_the_verifier_s_or_none() -> None:
    def configuration(*root: str) -> list[Any]:
        payload = build_attestation(MANIFEST, "REPRODUCED", GRADE, *root)
        parse_attestation(payload)
        return json.loads(payload)["predicate"]["configuration"]

    assert MANIFEST.model.root not in json.dumps(configuration())
    assert configuration("ab" * 32)[0]["digest"]["sha256"] == "ab" * 32


@pytest.mark.parametrize("verdict", ["VALID", "IDENTICAL", "RECORDED", "UNTRUSTED", "CRASH"])
def test_only_a_rerun_can_be_attested(verdict: str) -> None:
    with pytest.raises(UntrustedError, match="cannot be attested"):
        build_attestation(MANIFEST, verdict, GRADE)


def test_it_speaks_of_one_manifest() -> None:
    sealed = seal(build_attestation(MANIFEST, "REPRODUCED", GRADE), VERIFIER)
    other, _ = synthetic.make(temperature=0.5).write()
    with pytest.raises(UntrustedError, match="another manifest"):
        open_attestation(sealed, other, parse_manifest(other), [VERIFIER.public])
    with pytest.raises(NoTrustError):
        open_attestation(sealed, PAYLOAD, MANIFEST, [synthetic.test_key("runner").public])


@pytest.mark.parametrize(
    "change",
    [
        {"result": "FAILED"},
        {"passedTests": []},
        {"failedTests": ["bits:fp32"]},
        {"result": "OK"},
        {VERIFICATION: {}},
        {"extra": 1},
    ],
)
def test_contradictory_or_malformed_statements(change: dict[str, Any]) -> None:
    statement = json.loads(build_attestation(MANIFEST, "REPRODUCED", GRADE))
    statement["predicate"].update(change)
    with pytest.raises(UntrustedError):
        parse_attestation(dumps(statement))


def test_another_run_root_is_refused() -> None:
    statement = json.loads(build_attestation(MANIFEST, "REPRODUCED", GRADE))
    statement["predicate"][VERIFICATION]["runRoot"] = "00" * 32
    with pytest.raises(UntrustedError, match="another run root"):
        open_attestation(seal(dumps(statement), VERIFIER), PAYLOAD, MANIFEST, [VERIFIER.public])
