"""Envelopes: what is signed, who is believed, and that nothing is parsed before it is verified."""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from manifests import synthetic
from repro_audit.errors import UntrustedError
from repro_audit.manifest import opening, parse
from repro_audit.manifest.canonical import dumps
from repro_audit.manifest.dsse import InvalidSignatureError, NoTrustError, open_envelope, pae, seal
from repro_audit.verify.verify import Options, open_claim

RUNNER, STRANGER = synthetic.test_key("runner"), synthetic.test_key("stranger")
PAYLOAD = b'{"a":1}'


def test_pre_authentication_encoding_of_the_dsse_specification() -> None:
    """The test vector of https://github.com/secure-systems-lab/dsse/blob/master/protocol.md."""
    assert pae(b"hello world", "http://example.com/HelloWorld") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    assert pae("ü".encode(), "ü") == "DSSEv1 2 ü 2 ü".encode()


def test_securesystemslib_verifies_what_we_seal() -> None:
    envelope = Envelope.from_dict(copy.deepcopy(json.loads(seal(PAYLOAD, RUNNER))))
    key = SSlibKey.from_crypto(RUNNER.public.key)
    assert list(envelope.verify([key], 1)) == [key.keyid] == [RUNNER.public.keyid]
    envelope.payload += b" "
    with pytest.raises(VerificationError):
        envelope.verify([key], 1)


def test_the_payload_handed_out_is_the_payload_verified() -> None:
    opened = open_envelope(seal(PAYLOAD, RUNNER), [RUNNER.public])
    assert opened.payload == PAYLOAD
    assert [key.name for key in opened.signers] == ["runner.pub"]
    assert (opened.trust, opened.unknown, opened.signed) == ("trusted", 0, True)


def test_sealing_is_deterministic() -> None:
    assert seal(PAYLOAD, RUNNER) == seal(PAYLOAD, RUNNER)


@pytest.mark.parametrize("keyid", ["", None])
def test_every_trusted_key_is_tried_whatever_the_key_id(keyid: str | None) -> None:
    envelope = json.loads(seal(PAYLOAD, RUNNER))
    del envelope["signatures"][0]["keyid"]
    if keyid is not None:
        envelope["signatures"][0]["keyid"] = keyid
    opened = open_envelope(dumps(envelope), [STRANGER.public, RUNNER.public])
    assert [key.name for key in opened.signers] == ["runner.pub"]


def test_a_key_that_signs_twice_counts_once() -> None:
    envelope = json.loads(seal(PAYLOAD, RUNNER))
    envelope["signatures"] *= 2
    assert len(open_envelope(dumps(envelope), [RUNNER.public]).signers) == 1


def test_unsigned_and_unknown_are_refused_unless_waived() -> None:
    for data, keys, words in (
        (seal(PAYLOAD, None), [RUNNER.public], "not signed"),
        (seal(PAYLOAD, STRANGER), [RUNNER.public], "no trusted key"),
        (seal(PAYLOAD, RUNNER), [], "no key is trusted"),
    ):
        with pytest.raises(NoTrustError, match=words):
            open_envelope(data, keys)
        opened = open_envelope(data, keys, allow_untrusted=True)
        assert opened.trust == "none"
        assert opened.describe().startswith("none")


def test_an_invalid_signature_is_refused_even_if_trust_is_waived() -> None:
    envelope = json.loads(seal(PAYLOAD, RUNNER))
    envelope["payload"] = base64.b64encode(b'{"a":2}').decode()
    with pytest.raises(InvalidSignatureError):
        open_envelope(dumps(envelope), [RUNNER.public], allow_untrusted=True)


def test_an_invalid_signature_beside_a_valid_one_is_refused() -> None:
    envelope = json.loads(seal(PAYLOAD, RUNNER))
    bad = json.loads(seal(b"{}", STRANGER))["signatures"]
    envelope["signatures"] += bad
    assert open_envelope(dumps(envelope), [RUNNER.public]).unknown == 1
    with pytest.raises(InvalidSignatureError):
        open_envelope(dumps(envelope), [RUNNER.public, STRANGER.public])


@pytest.mark.parametrize("kind", ["unsigned", "forged"])
def test_nothing_is_parsed_before_it_is_verified(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    """A hostile payload must not reach the parser: neither through check and diff, nor through verify."""

    def parsed(payload: bytes, what: str) -> None:
        raise AssertionError("parsed before verified")

    monkeypatch.setattr(parse, "loads_canonical", parsed)
    envelope = json.loads(seal(PAYLOAD, RUNNER))
    if kind == "unsigned":
        envelope["signatures"] = []
    else:
        envelope["payload"] = base64.b64encode(b"[]").decode()
    path = tmp_path / "a.manifest.json"
    path.write_bytes(dumps(envelope))
    with pytest.raises(UntrustedError):
        opening.open_recorded(path, [RUNNER.public])
    with pytest.raises(UntrustedError):
        open_claim(Options(path, trusted=(RUNNER.public,)))
