"""Private inputs: tokens and text stay in a file of their own, the manifest holds a commitment.

Rows are hashed under keys derived from a 32-byte salt, since an unkeyed embedding row is a function of its
token and the vocabulary is public. ``NAME.inputs.json`` (0600) keeps the salt, the tokens and the text::

    commitment  = SHA-256("repro-audit inputs v1" || salt || canonical JSON of the sequences)
    salt digest = SHA-256("repro-audit salt v1" || salt)
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_audit.errors import UntrustedError, UsageError
from repro_audit.manifest.canonical import MAX_PAYLOAD, dumps, loads
from repro_audit.manifest.files import read_bounded
from repro_audit.manifest.reader import Node
from repro_audit.manifest.types import Manifest, PrivacyClaim

INPUTS_SCHEMA = "urn:repro-audit:inputs:v1"
INPUTS_DOMAIN = b"repro-audit inputs v1"
SALT_DOMAIN = b"repro-audit salt v1"
SALT_BYTES = 32
NONCE_BYTES = (8, 64)


@dataclass(frozen=True)
class PrivateSequence:
    """What a private manifest withholds of one sequence."""

    id: int
    prompt: tuple[int, ...]
    generated: tuple[int, ...]
    prompt_text: str | None
    text: str | None


@dataclass(frozen=True)
class PrivateInputs:
    """Salt and sequences, as ``NAME.inputs.json`` keeps them."""

    salt: bytes
    sequences: tuple[PrivateSequence, ...]

    def claim(self) -> PrivacyClaim:
        """What the manifest may say about them."""
        body = dumps(_sequences_json(self.sequences))
        return PrivacyClaim(
            commitment=hashlib.sha256(INPUTS_DOMAIN + self.salt + body).hexdigest(),
            salt_digest=hashlib.sha256(SALT_DOMAIN + self.salt).hexdigest(),
        )

    def to_bytes(self) -> bytes:
        """Contents of the inputs file; write it with mode 0600."""
        return dumps(
            {"salt": self.salt.hex(), "schema": INPUTS_SCHEMA, "sequences": _sequences_json(self.sequences)}
        )


def new_salt() -> bytes:
    """32 bytes from the operating system's generator."""
    return secrets.token_bytes(SALT_BYTES)


def parse_challenge(text: str) -> str:
    """A verifier's nonce in lower-case hex.

    Raises:
        UsageError: not hexadecimal, or not 8 to 64 bytes.
    """
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if not NONCE_BYTES[0] <= len(value) <= NONCE_BYTES[1] or len(text) != 2 * len(value):
        raise UsageError(
            "the challenge is not hexadecimal of 8 to 64 bytes", hint="try: openssl rand -hex 32"
        )
    return value.hex()


def _sequences_json(sequences: Sequence[PrivateSequence]) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = []
    for sequence in sequences:
        entry: dict[str, object] = {
            "generated": list(sequence.generated),
            "id": str(sequence.id),
            "prompt": list(sequence.prompt),
        }
        if sequence.prompt_text is not None:
            entry["promptText"] = sequence.prompt_text
        if sequence.text is not None:
            entry["text"] = sequence.text
        listed.append(entry)
    return listed


def read_inputs(path: Path, manifest: Manifest) -> PrivateInputs:
    """Read an inputs file and require that it is the one the manifest committed to.

    Raises:
        UsageError: missing or unreadable, or the manifest's inputs are not private.
        UntrustedError: malformed, or another commitment.
    """
    if manifest.privacy is None:
        raise UsageError("the manifest's inputs are not private", hint="leave --inputs out")
    inputs = parse_inputs(read_bounded(path, MAX_PAYLOAD, "inputs file"))
    if inputs.claim() != manifest.privacy:
        raise UntrustedError(
            f"the inputs file {path} is not the one this manifest commits to",
            hint="name the one written beside it",
        )
    claimed = [(s.id, s.prompt_count, s.generated_count) for s in manifest.sequences]
    if [(s.id, len(s.prompt), len(s.generated)) for s in inputs.sequences] != claimed:
        raise UntrustedError(
            "the manifest contradicts itself: its commitment opens to other sequences than it lists",
            hint="do not rely on it; ask for a new recording",
        )
    return inputs


def parse_inputs(data: bytes) -> PrivateInputs:
    """Parse the contents of an inputs file.

    Raises:
        UntrustedError: malformed or out of bounds.
    """
    top = Node(loads(data, "the inputs file"), "inputs").object(("salt", "schema", "sequences"))
    top["schema"].choice((INPUTS_SCHEMA,))
    sequences: list[PrivateSequence] = []
    for item in top["sequences"].items(65_536, least=1):
        s = item.object(("generated", "id", "prompt"), ("promptText", "text"))
        sequences.append(
            PrivateSequence(
                id=s["id"].wide(),
                prompt=s["prompt"].integers(2**21),
                generated=s["generated"].integers(2**21),
                prompt_text=s["promptText"].text() if "promptText" in s else None,
                text=s["text"].text() if "text" in s else None,
            )
        )
    return PrivateInputs(bytes.fromhex(top["salt"].hex()), tuple(sequences))
