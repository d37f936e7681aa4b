"""show: the facts of a recording and the chain of attestations."""

from __future__ import annotations

from pathlib import Path

import pytest

from manifests import regenerate, synthetic
from repro_audit.errors import UntrustedError
from repro_audit.manifest.attest import build_attestation
from repro_audit.manifest.dsse import InvalidSignatureError, seal
from repro_audit.manifest.parse import parse_manifest
from repro_audit.verify.show import show

VECTORS = Path(regenerate.__file__).parent / "vectors"
RUNNER, VERIFIER = regenerate.RUNNER, synthetic.test_key("verifier")


def test_facts() -> None:
    result = show(VECTORS / "valid" / "plain.manifest.json", [RUNNER.public])
    facts = dict(result.facts)
    assert facts["model"] == "synthetic/two-blocks (hf)"
    assert facts["trust"] == "signed by runner.pub"
    assert facts["modules"] == "9/9 Linear"
    assert facts["operators"] == "1 exact, 1 specified"
    assert facts["sequence 0"] == "3 prompt + 2 drawn tokens"
    assert facts["sequence 0, prompt"] == r"one two\nthree", "control characters are escaped"
    assert facts["claimed: cpu.model"] == "Synthetic 1"
    assert facts["challenge"] == "00112233445566778899aabbccddeeff"
    assert "claim until it is verified" in result.summary
    assert all(value.isprintable() or value == "" for _, value in result.facts)


def test_private_inputs_are_not_shown() -> None:
    facts = dict(show(VECTORS / "valid" / "private.manifest.json").facts)
    assert facts["inputs"].startswith("private; commitment ")
    assert not any("text" in name or "prompt" in name for name in facts)


def test_trust_is_shown_not_required() -> None:
    result = show(VECTORS / "untrusted" / "unsigned.manifest.json", [RUNNER.public])
    assert dict(result.facts)["trust"] == "none: unsigned"
    assert [finding.code for finding in result.findings] == ["RA103"]
    with pytest.raises(InvalidSignatureError):
        show(VECTORS / "untrusted" / "payload-swapped.manifest.json", [RUNNER.public])


def test_the_chain_is_joined_by_digest(tmp_path: Path) -> None:
    path = VECTORS / "valid" / "plain.manifest.json"
    payload, _ = synthetic.make().write()
    attest = tmp_path / "mine.json"
    attest.write_bytes(
        seal(build_attestation(parse_manifest(payload), "REPRODUCED", "other vendor or CPU"), VERIFIER)
    )
    result = show(path, [RUNNER.public, VERIFIER.public], [attest])
    assert dict(result.facts)["attestation 1"] == (
        "REPRODUCED, fp32 v1, other vendor or CPU; trust: signed by verifier.pub; mine.json"
    )
    assert "no trusted key" in dict(show(path, [RUNNER.public], [attest]).facts)["attestation 1"]
    other = VECTORS / "valid" / "sampled.manifest.json"
    with pytest.raises(UntrustedError, match="another manifest"):
        show(other, [RUNNER.public], [attest])


def test_long_texts_are_cut(tmp_path: Path) -> None:
    run = synthetic.make()
    run.record.sequences[0].text = "x" * 5000
    (tmp_path / "a.manifest.json").write_bytes(seal(run.write()[0], RUNNER))
    shown = dict(show(tmp_path / "a.manifest.json").facts)["sequence 0, text"]
    assert shown == "x" * 200 + " ..."
