"""Programs that share no code with us verify our envelopes."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from manifests import regenerate, synthetic
from repro_audit.manifest.dsse import seal
from repro_audit.manifest.omsroot import root_of_digests

VECTORS = Path(regenerate.__file__).parent / "vectors"
PUBLIC = Path(regenerate.__file__).parent / "keys" / "runner.pub"


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl(tmp_path: Path) -> None:
    envelope = json.loads((VECTORS / "valid" / "plain.manifest.json").read_bytes())
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
    signed = tmp_path / "signed.bin"
    signed.write_bytes(b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload))
    (tmp_path / "signature.bin").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    command = (
        "openssl", "pkeyutl", "-verify", "-pubin", "-inkey", PUBLIC, "-rawin", "-in", signed,
        "-sigfile", tmp_path / "signature.bin",
    )  # fmt: skip
    assert _run(*command).returncode == 0
    signed.write_bytes(signed.read_bytes() + b" ")
    assert _run(*command).returncode != 0


@pytest.mark.skipif(shutil.which("cosign") is None, reason="cosign is not installed")
def test_cosign(tmp_path: Path) -> None:
    blob = tmp_path / "config.json"
    blob.write_bytes(b"{}")
    run = synthetic.make()
    files = (synthetic.File("config.json", hashlib.sha256(b"{}").hexdigest()),)
    run.model = replace(run.model, files=files, root=root_of_digests(file.sha256 for file in files))
    envelope = tmp_path / "x.manifest.json"
    envelope.write_bytes(seal(run.write()[0], regenerate.RUNNER))
    command = (
        "cosign", "verify-blob-attestation", "--insecure-ignore-tlog", "--key", PUBLIC,
        "--type", "urn:repro-audit:manifest:v1", "--signature", envelope, blob,
    )  # fmt: skip
    assert _run(*command).returncode == 0
    blob.write_bytes(b"{ }")
    assert _run(*command).returncode != 0
