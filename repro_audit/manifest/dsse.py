"""DSSE envelopes: sign, and open with nothing trusted that was not verified.

Signing goes through securesystemslib, so its verifier accepts what we write. Opening does not: its
verifier looks at key ids only, skips a signature whose id it does not know, and its ``from_dict`` changes
its argument. Here every trusted key is tried on every signature, and the bytes returned are the bytes that
were verified.

An envelope has one spelling of its base64 (standard alphabet, padded, no stray bits) and a key id that is
empty or belongs to the key that made the signature, so that no byte of a file can change unnoticed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]  # public API, no __all__

from repro_audit.errors import UntrustedError
from repro_audit.manifest.canonical import MAX_PAYLOAD, dumps, loads
from repro_audit.manifest.keys import SigningKey, TrustedKey
from repro_audit.manifest.reader import Node
from repro_audit.manifest.types import PAYLOAD_TYPE

MAX_SIGNATURES = 16
#: A payload in base64, and room for the signatures.
MAX_ENVELOPE = MAX_PAYLOAD * 4 // 3 + 64 * 1024


@dataclass(frozen=True)
class Opened:
    """An envelope that was opened.

    Attributes:
        payload: exactly the bytes that the signatures cover.
        signers: trusted keys that signed, each public key once; empty means trust ``none``.
        unknown: number of signatures by keys that are not trusted here.
        signed: whether there was any signature.
    """

    payload: bytes
    signers: tuple[TrustedKey, ...]
    unknown: int
    signed: bool

    @property
    def trust(self) -> str:
        """``trusted`` if a trusted key signed, else ``none``."""
        return "trusted" if self.signers else "none"

    def describe(self) -> str:
        """One phrase for people, as "signed by alice.pub"."""
        if self.signers:
            return "signed by " + ", ".join(key.name for key in self.signers)
        return "none: signed, but by no trusted key" if self.signed else "none: unsigned"


class InvalidSignatureError(UntrustedError):
    """A signature claims a trusted key and does not fit: always refused."""


class NoTrustError(UntrustedError):
    """Unsigned, or signed by no trusted key: refused unless the user waives trust."""


def pae(payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """DSSE v1 pre-authentication encoding: the bytes that a signature covers."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def seal(payload: bytes, key: SigningKey | None) -> bytes:
    """Envelope bytes around a payload, signed by ``key``, or unsigned if there is none."""
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    if key is not None:
        envelope.sign(CryptoSigner(key.private))
    return dumps(envelope.to_dict())


def open_envelope(
    data: bytes, keys: Sequence[TrustedKey], *, allow_untrusted: bool = False, what: str = "the manifest"
) -> Opened:
    """Check the signatures and hand out the payload.

    Args:
        data: the file's bytes.
        keys: the trusted keys.
        allow_untrusted: go on without a trusted signature (``--insecure-allow-untrusted``). A signature
            that claims a trusted key and is not by it is refused all the same.
        what: how to name the file in an error.

    Raises:
        UntrustedError: malformed; :class:`InvalidSignatureError`; :class:`NoTrustError`.
    """
    node = Node(loads(data, what, limit=MAX_ENVELOPE, depth=4), what)
    parts = node.object(("payload", "payloadType", "signatures"))
    parts["payloadType"].choice((PAYLOAD_TYPE,))
    payload = _base64(parts["payload"], MAX_PAYLOAD)
    covered = pae(payload)
    signers: list[TrustedKey] = []
    unknown = 0
    signatures = list(parts["signatures"].items(MAX_SIGNATURES))
    for item in signatures:
        fields = item.object(("sig",), ("keyid",))
        signature = _base64(fields["sig"], 4096)
        keyid = fields["keyid"].text(1024) if "keyid" in fields else ""
        made_by = [key for key in keys if key.verifies(signature, covered)]
        if not made_by:
            for key in keys:
                if keyid in key.known_ids:
                    raise InvalidSignatureError(
                        f"{what} has an invalid signature: it claims {key.name}, which signed other bytes",
                        hint="do not rely on it; ask for an intact copy",
                    )
            unknown += 1
            continue
        if keyid and keyid not in made_by[0].known_ids:
            raise InvalidSignatureError(
                f"{what} has a signature by {made_by[0].name} under another key's id",
                hint="do not rely on it; ask for an intact copy",
            )
        if all(key.raw() != made_by[0].raw() for key in signers):
            signers.append(made_by[0])
    if not signers and not allow_untrusted:
        if not signatures:
            raise NoTrustError(f"{what} is not signed", hint="ask for a signed one")
        if not keys:
            raise NoTrustError(f"{what} is signed, but no key is trusted", hint="pass --trusted-key PUB")
        raise NoTrustError(
            f"{what} is signed by no trusted key", hint="name its signer's key with --trusted-key PUB"
        )
    return Opened(payload, tuple(signers), unknown, bool(signatures))


def _base64(node: Node, most: int) -> bytes:
    text = node.text(most * 4 // 3 + 4)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise node.fail("is not base64") from None
    if base64.b64encode(data).decode() != text:
        raise node.fail("is not base64 in its one canonical spelling")
    return data
