"""No byte of a recording can change unnoticed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from manifests import regenerate
from repro_audit.errors import InconclusiveError, UntrustedError
from repro_audit.manifest.dsse import open_envelope
from repro_audit.manifest.parse import parse_manifest
from repro_audit.trace.tracefile import open_trace

KEYS = [regenerate.RUNNER.public]
VALID = Path(regenerate.__file__).parent / "vectors" / "valid"


def _accepted(data: bytes) -> bool:
    try:
        parse_manifest(open_envelope(data, KEYS).payload)
    except (UntrustedError, InconclusiveError):
        return False
    return True


def test_every_byte_of_the_manifest_counts() -> None:
    data = bytearray((VALID / "plain.manifest.json").read_bytes())
    assert _accepted(bytes(data))
    draw = random.Random(1)
    # A third of the signed payload, which is one blob to everything before the signature, and all the rest.
    payload = range(data.index(b'"payload":"') + 11, data.index(b'","payloadType"'))
    for at in range(len(data)):
        if at in payload and at % 3:
            continue
        kept = data[at]
        # The payload is signed as a whole: one change a byte; the envelope around it: also every bit.
        masks = {draw.randrange(1, 256)}
        if at < 16 or at > len(data) - 400:
            masks |= {1 << bit for bit in range(8)}
        for mask in masks:
            data[at] = kept ^ mask
            assert not _accepted(bytes(data)), f"byte {at} xor {mask:#x}"
        data[at] = kept


def test_swapping_the_base64_alphabet_is_noticed() -> None:
    data = (VALID / "plain.manifest.json").read_bytes()
    for one, other in ((b"+", b"-"), (b"/", b"_")):
        at = data.find(one)
        if at > 0 and data[at - 1 : at] not in b'"n':
            assert not _accepted(data[:at] + other + data[at + 1 :])


def test_every_byte_of_the_trace_counts(tmp_path: Path) -> None:
    manifest = parse_manifest(open_envelope((VALID / "plain.manifest.json").read_bytes(), KEYS).payload)
    data = bytearray((VALID / "plain.trace.safetensors").read_bytes())
    path = tmp_path / "plain.trace.safetensors"
    draw = random.Random(2)
    path.write_bytes(data)
    with open_trace(path, manifest):
        pass
    # Every byte of the header, and a third of the rows.
    header = 8 + int.from_bytes(data[:8], "little")
    for at in [*range(header), *range(header, len(data), 3)]:
        kept = data[at]
        data[at] = kept ^ draw.randrange(1, 256)
        path.write_bytes(data)
        with pytest.raises(UntrustedError), open_trace(path, manifest):
            pass
        data[at] = kept
