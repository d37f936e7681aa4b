"""Envelopes under random payloads, keys and damage."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

from manifests import synthetic
from repro_audit.errors import UntrustedError
from repro_audit.manifest.canonical import dumps
from repro_audit.manifest.dsse import open_envelope, pae, seal

KEYS = [synthetic.test_key(name) for name in ("a", "b", "c")]


@given(st.binary(max_size=200), st.sampled_from(KEYS), st.permutations(KEYS))
def test_any_payload_any_key_any_order(payload: bytes, key: object, trusted: list[object]) -> None:
    sealed = seal(payload, key)  # type: ignore[arg-type]
    opened = open_envelope(sealed, [k.public for k in trusted])  # type: ignore[attr-defined]
    assert opened.payload == payload
    assert [k.keyid for k in opened.signers] == [key.public.keyid]  # type: ignore[attr-defined]
    theirs = Envelope.from_dict(copy.deepcopy(json.loads(sealed)))
    theirs.verify([SSlibKey.from_crypto(key.public.key)], 1)  # type: ignore[attr-defined]


@settings(max_examples=300)
@given(st.binary(min_size=1, max_size=60), st.data())
def test_any_damage_is_refused(payload: bytes, data: st.DataObject) -> None:
    sealed = bytearray(seal(payload, KEYS[0]))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    at = data.draw(st.integers(0, len(sealed) - 1))
    if kind == "flip":
        sealed[at] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del sealed[at]
    else:
        sealed.insert(at, data.draw(st.integers(33, 255)))
    with pytest.raises(UntrustedError):
        open_envelope(bytes(sealed), [KEYS[0].public])


@given(st.binary(max_size=40), st.binary(max_size=40), st.text(max_size=10), st.text(max_size=10))
def test_the_encoding_that_is_signed_is_injective(a: bytes, b: bytes, kind: str, other: str) -> None:
    assert (pae(a, kind) == pae(b, other)) == ((a, kind) == (b, other))


@given(st.binary(max_size=40), st.sets(st.integers(0, 2)), st.sets(st.integers(0, 2)))
def test_signers_are_the_trusted_keys_that_signed(
    payload: bytes, signing: set[int], trusted: set[int]
) -> None:
    envelope = json.loads(seal(payload, None))
    for index in sorted(signing):
        envelope["signatures"] += json.loads(seal(payload, KEYS[index]))["signatures"]
    opened = open_envelope(dumps(envelope), [KEYS[i].public for i in trusted], allow_untrusted=True)
    assert {key.name for key in opened.signers} == {KEYS[i].public.name for i in signing & trusted}
    assert opened.unknown == len(signing - trusted)
    assert opened.signed == bool(signing)
