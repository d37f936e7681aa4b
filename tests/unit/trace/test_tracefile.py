"""The trace file: deterministic, readable by others, and never believed before it is checked."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from manifests import synthetic
from repro_audit.errors import UntrustedError, UsageError
from repro_audit.manifest.build import describe_points, describe_sequences
from repro_audit.manifest.parse import parse_manifest
from repro_audit.trace import tracefile
from repro_audit.trace.container import MAX_HEADER, TensorSpec, header_for, parse_header, write_container
from repro_audit.trace.tracefile import open_trace, require_values_fit, write_trace


def _written(tmp_path: Path, **options: Any) -> tuple[Any, Any, Path]:
    run = synthetic.make(**options)
    payload, trace = run.write()
    path = tmp_path / "x.trace.safetensors"
    path.write_bytes(trace)
    return run, parse_manifest(payload), path


@pytest.mark.parametrize("options", [{}, {"values": True}, {"private": True}])
def test_rows_come_back(tmp_path: Path, options: dict[str, bool]) -> None:
    run, manifest, path = _written(tmp_path, **options)
    with open_trace(path, manifest) as trace:
        for n, sequence in enumerate(run.record.sequences):
            rows = trace.rows(n)
            assert set(rows) == set(sequence.rows)
            for index, expected in sequence.rows.items():
                assert (rows[index].header, rows[index].first) == (expected.header, expected.first)
                assert np.array_equal(rows[index].digests, expected.digests)
            top2 = trace.top2(n)
            assert (top2 is None) == ("private" in options)
            if top2 is not None:
                assert np.array_equal(top2, sequence.top2)
            values = trace.values(n, 3)
            assert (values is None) == ("values" not in options)
            if values is not None:
                kept = run.record.values[f"s{n}/{run.record.points[3].name}"]
                assert np.array_equal(values, kept.view(np.uint32))


def test_the_same_record_gives_the_same_bytes() -> None:
    assert synthetic.make(values=True).write() == synthetic.make(values=True).write()


def test_the_safetensors_library_reads_it(tmp_path: Path) -> None:
    run, _, path = _written(tmp_path, values=True)
    tensors = safetensors.numpy.load_file(path)
    assert tensors["s0/tok"].shape == (9, 4, 32)
    assert tensors["s1/kv"].shape == (4, 3, 2, 32)
    assert tensors["s0/top2"].dtype == np.uint32
    index = run.record.points.index(next(p for p in run.record.points if p.name == "model.norm"))
    assert np.array_equal(tensors[f"s0/v{index}"], run.record.values["s0/model.norm"])


def test_the_hash_is_checked_before_the_header_is_parsed(tmp_path: Path, monkeypatch: Any) -> None:
    _, manifest, path = _written(tmp_path)
    data = bytearray(path.read_bytes())
    data[8:12] = b"\xff\xff\xff\xff"
    path.write_bytes(data)

    def parsed(*_: Any) -> None:
        raise AssertionError("parsed before checked")

    monkeypatch.setattr(tracefile, "parse_header", parsed)
    with pytest.raises(UntrustedError, match="another SHA-256"), open_trace(path, manifest):
        pass


def test_rows_changed_after_the_hash_are_noticed(tmp_path: Path) -> None:
    _, manifest, path = _written(tmp_path)
    with open_trace(path, manifest) as trace, path.open("r+b") as stream:
        stream.seek(-900, 2)
        stream.write(b"\x55" * 64)
        stream.flush()
        with pytest.raises(UntrustedError, match="point digest"):
            for n in range(2):
                trace.rows(n)
    path.write_bytes(synthetic.make().write()[1])
    with open_trace(path, manifest) as trace:
        with path.open("r+b") as stream:
            stream.truncate(1000)
        with pytest.raises(UntrustedError, match="changed while it was read"):
            trace.rows(1)


def test_values_beyond_the_cap_are_refused_with_their_size() -> None:
    require_values_fit(100, 100)
    with pytest.raises(UsageError, match=r"24\.0 GB, more than the 8\.6 GB allowed"):
        require_values_fit(24_000_000_000)
    run = synthetic.make(values=True)
    out = bytearray()
    with pytest.raises(UsageError, match="--save-values"):
        write_trace(
            out.extend,
            run.record,
            describe_points(run.record),
            describe_sequences(run.record),
            top2=True,
            values=True,
            values_cap=10,
        )
    assert not out, "refused before the first byte"


def test_layers_with_fewer_heads_are_padded_with_zeros(tmp_path: Path) -> None:
    run = synthetic.make()
    for sequence in run.record.sequences:
        for index in (1, 2):
            rows = sequence.rows[index]
            sequence.rows[index] = replace(rows, digests=rows.digests[:, :1])
    payload, data = run.write()
    path = tmp_path / "x.trace.safetensors"
    path.write_bytes(data)
    manifest = parse_manifest(payload)
    assert [manifest.points[i].heads for i in (1, 2, 6)] == [1, 1, 2]
    with open_trace(path, manifest) as trace:
        assert trace.rows(0)[1].digests.shape == (4, 1, 32)
        assert trace.rows(0)[6].digests.shape == (4, 2, 32)


def test_a_header_beyond_the_bound_is_refused_unread() -> None:
    head = struct.pack("<Q", MAX_HEADER + 8) + b"{" * 100
    with pytest.raises(UntrustedError, match="does not fit"):
        parse_header(head, 2**40, {})


def test_the_container_refuses_to_write_what_it_would_not_read() -> None:
    spec = TensorSpec("a", "uint8", (3,))
    with pytest.raises(ValueError, match="two tensors"):
        header_for([spec, spec], {})
    with pytest.raises(ValueError, match="takes 3"):
        write_container(bytearray().extend, [spec], {}, [b"1234"])


def test_empty_tensors_and_order(tmp_path: Path) -> None:
    specs = [TensorSpec("b", "float32", (0, 4)), TensorSpec("a", "uint8", (2,)), TensorSpec("c", "bool", ())]
    out = bytearray()
    size, _ = write_container(out.extend, specs, {"k": "v"}, [b"", b"12", b"\x01"])
    found = parse_header(bytes(out), size, {"k": "v"})
    assert [found[spec.name][0] for spec in specs] == specs
    assert bytes(out[found["a"][1] :]) == b"12\x01"
    assert safetensors.numpy.load(bytes(out))["b"].shape == (0, 4)
