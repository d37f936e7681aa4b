"""Roots bind the order of what they stand for, and a trace holds nothing beyond what its manifest implies."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from manifests import synthetic
from repro_audit.errors import UntrustedError
from repro_audit.manifest.build import describe_points, describe_sequences
from repro_audit.manifest.parse import parse_manifest
from repro_audit.manifest.types import TraceRef
from repro_audit.trace.container import MAX_HEADER, TensorSpec, parse_header, write_container
from repro_audit.trace.digest import run_root, sequence_root
from repro_audit.trace.tracefile import METADATA, layout, open_trace


def test_roots_bind_the_order() -> None:
    first, second = bytes(31) + b"\x01", bytes(31) + b"\x02"
    leaves = [hashlib.sha256(b"\x00" + digest).digest() for digest in (first, second)]
    for root in (sequence_root, run_root):
        assert root([first, second]) == hashlib.sha256(b"\x01" + leaves[0] + leaves[1]).digest()
        assert root([second, first]) == hashlib.sha256(b"\x01" + leaves[1] + leaves[0]).digest()


@pytest.mark.parametrize("size", [0, 64])
def test_a_tensor_before_the_others_is_refused(tmp_path: Path, size: int) -> None:
    # Signed along with the rest, and every tensor that the manifest implies stands where it must.
    run = synthetic.make()
    payload, data = run.write()
    specs = layout(describe_points(run.record), describe_sequences(run.record), top2=True, values=False)
    held = parse_header(data[: 8 + MAX_HEADER], len(data), METADATA)
    parts = [data[held[spec.name][1] : held[spec.name][1] + spec.nbytes] for spec in specs]
    out = bytearray()
    extra = TensorSpec("hidden", "uint8", (size,))
    total, sha256 = write_container(out.extend, [extra, *specs], METADATA, [bytes(size), *parts])
    path = tmp_path / "x.trace.safetensors"
    path.write_bytes(out)
    manifest = replace(parse_manifest(payload), trace=TraceRef(total, sha256))
    with (
        pytest.raises(UntrustedError, match="tensors, the manifest implies"),
        open_trace(path, manifest),
    ):
        pass
