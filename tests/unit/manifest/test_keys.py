"""Keys: made with care, loaded with care, refused in one sentence."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from repro_audit.errors import UsageError
from repro_audit.manifest.dsse import open_envelope, seal
from repro_audit.manifest.keys import generate, load_private, load_public, read_passphrase


def test_a_pair_signs_and_verifies(tmp_path: Path) -> None:
    made = generate(tmp_path / "k.pem")
    key, public = load_private(str(tmp_path / "k.pem")), load_public(str(tmp_path / "k.pem.pub"))
    assert made.keyid == key.public.keyid == public.keyid
    assert open_envelope(seal(b"{}", key), [public]).signers == (public,)
    assert key.warnings == ()


def test_the_private_half_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "k.pem"
    generate(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    (warning,) = load_private(str(path)).warnings
    assert "0640" in warning and "chmod 600" in warning


@pytest.mark.parametrize("taken", ["k.pem", "k.pem.pub"])
def test_no_key_is_overwritten(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("precious")
    with pytest.raises(UsageError, match="exists already"):
        generate(tmp_path / "k.pem")
    assert [path.name for path in tmp_path.iterdir()] == [taken]
    assert (tmp_path / taken).read_text() == "precious"


def test_passphrases(tmp_path: Path) -> None:
    path, phrase = tmp_path / "k.pem", tmp_path / "phrase"
    phrase.write_text("correct horse\nsecond line\n")
    secret = read_passphrase(phrase)
    assert secret == b"correct horse"
    generate(path, secret)
    assert b"ENCRYPTED" in path.read_bytes()
    load_private(str(path), passphrase=secret)
    with pytest.raises(UsageError, match="passphrase is wrong"):
        load_private(str(path), passphrase=b"wrong")
    with pytest.raises(UsageError, match="is encrypted; pass --passphrase-file"):
        load_private(str(path))
    generate(tmp_path / "open.pem")
    with pytest.raises(UsageError, match="is not encrypted"):
        load_private(str(tmp_path / "open.pem"), passphrase=secret)
    phrase.write_text("\n")
    with pytest.raises(UsageError, match="empty"):
        read_passphrase(phrase)


def test_keys_from_the_environment(tmp_path: Path) -> None:
    generate(tmp_path / "k.pem")
    environ = {"K": (tmp_path / "k.pem").read_text(), "P": (tmp_path / "k.pem.pub").read_text(), "EMPTY": ""}
    assert load_private("env:K", environ=environ).public.keyid == load_public("env:P", environ=environ).keyid
    for name in ("env:MISSING", "env:EMPTY"):
        with pytest.raises(UsageError, match="is not set"):
            load_private(name, environ=environ)
    with pytest.raises(UsageError, match="too long"):
        load_public("env:K", environ={"K": "x" * 70_000})


def test_other_things_are_no_keys(tmp_path: Path) -> None:
    generate(tmp_path / "k.pem")
    with pytest.raises(UsageError, match="is a private key; trust its public half"):
        load_public(str(tmp_path / "k.pem"))
    with pytest.raises(UsageError, match="not a PKCS#8 private key"):
        load_private(str(tmp_path / "k.pem.pub"))
    with pytest.raises(UsageError, match="No such file"):
        load_public(str(tmp_path / "missing.pub"))
    with pytest.raises(UsageError, match="not a regular file"):
        load_public(str(tmp_path))
    curve = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "ec.pem").write_bytes(
        curve.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    (tmp_path / "ec.pub").write_bytes(
        curve.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    with pytest.raises(UsageError, match="not an Ed25519 key"):
        load_private(str(tmp_path / "ec.pem"))
    with pytest.raises(UsageError, match="not an Ed25519 key"):
        load_public(str(tmp_path / "ec.pub"))
