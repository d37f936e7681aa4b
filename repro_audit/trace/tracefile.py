"""``NAME.trace.safetensors``: the matrix points x positions as a file, bound to its manifest.

Tensors per sequence n, in this order, first the digests of all sequences, then the values::

    s{n}/tok     uint8  [tok points, positions, 32]            row digests
    s{n}/kv      uint8  [kv points, positions, kv_heads, 32]   cache row digests
    s{n}/sample  uint8  [sample points, samples, 32]
    s{n}/top2    uint32 [logits rows, 2, 2]                    (token id, fp32 bits) of the two largest logits
    s{n}/v{i}    the values of point i                         with --save-values

A domain without points has no tensor. Rows that a point does not record (logits before the first draw),
and heads that a layer does not have, are zero. Opening checks size and SHA-256 of the whole file before the
header is parsed, and requires the layout that the manifest implies; loading a sequence requires that its
rows give the manifest's point digests. Top-2 logits are bound by the file's hash alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from repro_audit.errors import UntrustedError, UsageError
from repro_audit.manifest.files import open_regular
from repro_audit.manifest.types import Manifest, PointSpec, Span, TraceRef
from repro_audit.trace.container import (
    MAX_HEADER,
    TensorSpec,
    hash_stream,
    parse_header,
    write_container,
)
from repro_audit.trace.digest import point_digest
from repro_audit.trace.record import DOMAINS, Digests, PointRows, RunRecord

METADATA = {"format": "urn:repro-audit:trace:v1"}
#: Most bytes of values that ``--save-values`` writes.
VALUES_CAP = 8 * 1024**3


@dataclass(frozen=True)
class SequenceShape:
    """Rows of one sequence: positions of a full point, and the recorded span of every point."""

    positions: int
    spans: tuple[Span, ...]


def _values_name(sequence: int, point: int) -> str:
    return f"s{sequence}/v{point}"


def layout(
    points: Sequence[PointSpec], sequences: Sequence[SequenceShape], *, top2: bool, values: bool
) -> tuple[TensorSpec, ...]:
    """The tensors that a trace of these points and sequences holds, in file order."""
    specs: list[TensorSpec] = []
    for n, sequence in enumerate(sequences):
        for domain in DOMAINS:
            members = _members(points, domain)
            if not members:
                continue
            heads = (max(points[i].heads for i in members),) if domain == "kv" else ()
            shape = (len(members), sequence.positions, *heads, 32)
            specs.append(TensorSpec(f"s{n}/{domain}", "uint8", shape))
        if top2:
            specs.append(TensorSpec(f"s{n}/top2", "uint32", (sequence.spans[-1].count, 2, 2)))
    if values:
        for n, sequence in enumerate(sequences):
            for i, (spec, span) in enumerate(zip(points, sequence.spans, strict=True)):
                heads = (spec.heads,) if spec.heads else ()
                shape = (span.count, *heads, *spec.header.shape)
                specs.append(TensorSpec(_values_name(n, i), spec.header.dtype, shape))
    return tuple(specs)


def _members(points: Sequence[PointSpec], domain: str) -> list[int]:
    return [index for index, spec in enumerate(points) if spec.point.domain == domain]


def require_values_fit(nbytes: int, cap: int = VALUES_CAP) -> None:
    """Refuse values beyond the cap, with the number.

    Raises:
        UsageError: ``nbytes`` is more than ``cap``.
    """
    if nbytes > cap:
        raise UsageError(
            f"--save-values would write {nbytes / 1e9:.1f} GB, more than the {cap / 1e9:.1f} GB allowed",
            hint="record fewer tokens, or a coarser level with --record",
        )


def write_trace(
    write: Callable[[bytes], None],
    record: RunRecord,
    points: Sequence[PointSpec],
    sequences: Sequence[SequenceShape],
    *,
    top2: bool,
    values: bool,
    values_cap: int = VALUES_CAP,
) -> TraceRef:
    """Write the trace of a run; the same record gives the same bytes.

    Args:
        write: takes the next bytes, as ``PendingFile.write``.
        record: the run; its row digests, and with ``values`` its ``values``: ``s{sequence}/{point name}`` to
            arrays of the point's dtype or integers of that width, [count, (kv_heads,) *row shape].
        points: the described point table.
        sequences: the described sequences.
        top2: whether to write the two largest logits.
        values: whether to write the values.
        values_cap: most bytes of values.

    Raises:
        UsageError: the values are larger than the cap.
        ValueError: the record does not match its description.
    """
    specs = layout(points, sequences, top2=top2, values=values)
    require_values_fit(sum(spec.nbytes for spec in specs if "/v" in spec.name), values_cap)
    size, sha256 = write_container(write, specs, METADATA, _tensors(record, points, sequences, specs))
    return TraceRef(size, sha256)


def _tensors(
    record: RunRecord,
    points: Sequence[PointSpec],
    sequences: Sequence[SequenceShape],
    specs: Sequence[TensorSpec],
) -> Iterator[bytes]:
    for spec in specs:
        head, kind = spec.name.split("/")
        n = int(head[1:])
        if kind in DOMAINS:
            matrix: Digests = np.zeros(spec.shape, dtype=np.uint8)
            for row, index in enumerate(_members(points, kind)):
                rows = record.sequences[n].rows[index]
                end = rows.first + rows.digests.shape[0]
                if kind == "kv":
                    matrix[row, rows.first : end, : rows.digests.shape[1]] = rows.digests
                else:
                    matrix[row, rows.first : end] = rows.digests
            yield matrix.tobytes()
        elif kind == "top2":
            yield np.ascontiguousarray(record.sequences[n].top2, dtype="<u4").tobytes()
        else:
            value = np.ascontiguousarray(record.values[f"s{n}/{record.points[int(kind[1:])].name}"])
            yield value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()


class TraceFile:
    """An open trace whose bytes are the ones its manifest names. Make one with :func:`open_trace`."""

    def __init__(
        self, stream: IO[bytes], manifest: Manifest, offsets: Mapping[str, tuple[TensorSpec, int]]
    ) -> None:
        self._stream = stream
        self._manifest = manifest
        self._offsets = offsets

    def _array(self, name: str, dtype: str) -> npt.NDArray[Any]:
        spec, offset = self._offsets[name]
        self._stream.seek(offset)
        data = self._stream.read(spec.nbytes)
        if len(data) != spec.nbytes:
            raise UntrustedError(
                "the trace changed while it was read", hint="copy it to a place of your own first"
            )
        return np.frombuffer(data, dtype=dtype).reshape(spec.shape)

    def rows(self, sequence: int) -> dict[int, PointRows]:
        """Row digests of every point of a sequence, by point index.

        Raises:
            UntrustedError: the rows do not give the manifest's point digests, or a row stands where none may.
        """
        claim = self._manifest.sequences[sequence]
        out: dict[int, PointRows] = {}
        for domain in DOMAINS:
            members = _members(self._manifest.points, domain)
            if not members:
                continue
            matrix = self._array(f"s{sequence}/{domain}", "uint8")
            for row, index in enumerate(members):
                spec, span = self._manifest.points[index], claim.spans[index]
                digests = matrix[row, span.first : span.first + span.count]
                outside = np.count_nonzero(matrix[row]) - np.count_nonzero(digests)
                if domain == "kv":
                    outside += np.count_nonzero(digests[:, spec.heads :])
                    digests = digests[:, : spec.heads]
                where = f"sequence {sequence}, point {spec.point.name}"
                if outside:
                    raise _mismatch(f"{where} has rows at positions that are not recorded")
                found = point_digest(spec.point.name, spec.header, span.first, digests).hex()
                if found != claim.digests[index]:
                    raise _mismatch(f"{where}: its rows do not give the manifest's point digest")
                out[index] = PointRows(spec.header, span.first, digests)
        return out

    def top2(self, sequence: int) -> npt.NDArray[np.uint32] | None:
        """uint32 [logits rows, 2, 2] (token id, fp32 bits), or None if the trace holds none."""
        if not self._manifest.has_top2:
            return None
        return self._array(f"s{sequence}/top2", "<u4")

    def values(self, sequence: int, point: int) -> npt.NDArray[Any] | None:
        """A point's values as unsigned integers of the element's width, or None if the trace holds none."""
        if not self._manifest.has_values:
            return None
        name = _values_name(sequence, point)
        spec, _ = self._offsets[name]
        count = int(np.prod(spec.shape, dtype=np.int64))
        width = spec.nbytes // count if count else 1
        return self._array(name, f"<u{width}")


def _mismatch(why: str) -> UntrustedError:
    return UntrustedError(
        f"the trace does not match its manifest: {why}", hint="do not rely on either of them"
    )


@contextmanager
def open_trace(path: Path, manifest: Manifest) -> Iterator[TraceFile]:
    """Open the trace of a manifest: size, SHA-256 of the whole file, then header, then layout.

    Raises:
        UsageError: missing or unreadable.
        UntrustedError: another file than the manifest names, or malformed.
    """
    with open_regular(path, "trace") as stream:
        size = stream.seek(0, 2)
        if size != manifest.trace.size:
            raise _mismatch(f"{path.name} has {size} bytes, the manifest says {manifest.trace.size}")
        sha256, head = hash_stream(stream, size, 8 + MAX_HEADER)
        if sha256 != manifest.trace.sha256:
            raise _mismatch(f"{path.name} has another SHA-256")
        found = parse_header(head, size, METADATA)
        shapes = [SequenceShape(s.positions, s.spans) for s in manifest.sequences]
        expected = layout(manifest.points, shapes, top2=manifest.has_top2, values=manifest.has_values)
        offset = size - sum(spec.nbytes for spec in expected)
        placed: dict[str, tuple[TensorSpec, int]] = {}
        for spec in expected:
            if found.get(spec.name) != (spec, offset):
                raise _mismatch(f"{spec.name} is not {spec.dtype} {list(spec.shape)} at byte {offset}")
            placed[spec.name] = (spec, offset)
            offset += spec.nbytes
        if len(found) != len(placed):
            raise _mismatch(f"it holds {len(found)} tensors, the manifest implies {len(placed)}")
        yield TraceFile(stream, manifest, placed)
