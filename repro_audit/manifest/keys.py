"""Ed25519 keys in PEM: PKCS#8 for the private half, SubjectPublicKeyInfo for the public one.

A key is a file or an environment variable (``env:NAME``) that holds the PEM text. A key id is a hint for
people; which key made a signature is decided by trying every trusted key.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]  # public API, no __all__

from repro_audit.errors import UntrustedError, UsageError
from repro_audit.manifest.files import PendingFile, commit_together, read_bounded

MAX_PEM = 64 * 1024
MAX_PASSPHRASE = 1024


@dataclass(frozen=True)
class TrustedKey:
    """A public key and the name under which a person knows it.

    Attributes:
        name: file name or variable, for reports.
        key: the Ed25519 public key.
        keyid: hex id as securesystemslib derives it.
        known_ids: every id under which common tools put this key into an envelope.
    """

    name: str
    key: Ed25519PublicKey
    keyid: str
    known_ids: frozenset[str]

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Whether this key made ``signature`` over ``data``."""
        try:
            self.key.verify(signature, data)
        except InvalidSignature:
            return False
        return True

    def raw(self) -> bytes:
        """The 32 bytes of the key: what makes two keys the same."""
        return self.key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


@dataclass(frozen=True)
class SigningKey:
    """A private key with its public half, and what a person should be warned about.

    Attributes:
        private: the Ed25519 private key.
        public: its public half.
        warnings: sentences, as "the key file is readable by others".
    """

    private: Ed25519PrivateKey
    public: TrustedKey
    warnings: tuple[str, ...] = ()


def trusted(key: Ed25519PublicKey, name: str) -> TrustedKey:
    """Wrap a public key with the ids that tools give it."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    keyid = SSlibKey.from_crypto(key).keyid
    derived = {hashlib.sha256(der).hexdigest(), "SHA256:" + hashlib.sha256(der).hexdigest(), raw.hex()}
    return TrustedKey(name, key, keyid, frozenset({keyid, hashlib.sha256(raw).hexdigest(), *derived}))


def generate(path: Path, passphrase: bytes | None = None) -> TrustedKey:
    """Make a key pair: ``path`` (0600) and ``path`` + ``.pub``. Neither may exist.

    Raises:
        UsageError: one of them exists, or cannot be written.
    """
    private = Ed25519PrivateKey.generate()
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        encryption = serialization.BestAvailableEncryption(passphrase)
    pem = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    public_path = path.with_name(path.name + ".pub")
    with PendingFile(path, mode=0o600) as secret, PendingFile(public_path) as public:
        secret.write(pem)
        public.write(public_pem(private.public_key()))
        commit_together([secret, public])
    return trusted(private.public_key(), public_path.name)


def public_pem(key: Ed25519PublicKey) -> bytes:
    """The key as SubjectPublicKeyInfo in PEM."""
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def read_passphrase(path: Path) -> bytes:
    """The first line of a passphrase file, without its line end.

    Raises:
        UsageError: missing, unreadable, too long or empty.
    """
    lines = _read(path, MAX_PASSPHRASE, "passphrase file").splitlines()
    if not lines or not lines[0]:
        raise UsageError(f"the passphrase file {path} is empty", hint="put the passphrase on its first line")
    return lines[0]


def load_private(
    source: str, *, passphrase: bytes | None = None, environ: Mapping[str, str] = os.environ
) -> SigningKey:
    """Load a signing key.

    Args:
        source: a file, or ``env:NAME`` for a variable that holds the PEM text.
        passphrase: for an encrypted key.
        environ: where ``env:`` looks.

    Raises:
        UsageError: missing, not PEM, not Ed25519, or the passphrase is missing, wrong or not needed.
    """
    pem, name, warnings = _source(source, environ)
    try:
        private = serialization.load_pem_private_key(pem, passphrase)
    except TypeError:
        needed = "is encrypted" if passphrase is None else "is not encrypted"
        remedy = "pass --passphrase-file FILE" if passphrase is None else "leave --passphrase-file out"
        raise UsageError(f"the key {source} {needed}", hint=remedy) from None
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(
            f"the key {source} is not a PKCS#8 private key in PEM, or the passphrase is wrong",
            hint="make one with: repro-audit keygen",
        ) from None
    if not isinstance(private, Ed25519PrivateKey):
        raise UsageError(f"the key {source} is not an Ed25519 key", hint="make one with: repro-audit keygen")
    return SigningKey(private, trusted(private.public_key(), name), warnings)


def load_public(source: str, *, environ: Mapping[str, str] = os.environ) -> TrustedKey:
    """Load a key to trust: a file or ``env:NAME``.

    Raises:
        UsageError: missing, not PEM, not Ed25519, or a private key.
    """
    pem, name, _ = _source(source, environ, secret=False)
    if b"PRIVATE KEY" in pem:
        raise UsageError(f"{source} is a private key", hint="trust its public half, the .pub file")
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(f"the key {source} is not a public key in PEM", hint="name the .pub file") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"the key {source} is not an Ed25519 key", hint="ask the signer for an Ed25519 key")
    return trusted(key, name)


def _source(
    source: str, environ: Mapping[str, str], secret: bool = True
) -> tuple[bytes, str, tuple[str, ...]]:
    if source.startswith("env:"):
        variable = source.removeprefix("env:")
        value = environ.get(variable)
        if not value:
            raise UsageError(
                f"the environment variable {variable} is not set", hint="put the PEM text into it"
            )
        if len(value) > MAX_PEM:
            raise UsageError(
                f"the environment variable {variable} is too long for a key", hint="check its value"
            )
        return value.encode(), source, ()
    path = Path(source)
    data = _read(path, MAX_PEM, "key")
    warnings: tuple[str, ...] = ()
    if secret and os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
        mode = stat.S_IMODE(path.stat().st_mode)
        warnings = (
            f"the private key {path} has mode {mode:04o} and others may use it; run: chmod 600 {path}",
        )
    return data, path.name, warnings


def _read(path: Path, limit: int, what: str) -> bytes:
    try:
        return read_bounded(path, limit, what)
    except UntrustedError as error:
        raise UsageError(error.message, hint=f"name a {what}") from None
