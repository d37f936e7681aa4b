"""The recorder: rows of points go in as tensors, row digests come out, per sequence and in position order.

Rows are hashed where they are, and on a GPU their digests stay there until somebody asks or they grow many.
Large tensors are hashed at once. Small ones (a decode step has some hundred of a few kilobytes) wait for the
end of the step and are hashed together: rows of all points then share the hash's vector lanes, or one launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from repro_kernels.cpu.digest import digest_many

from repro_audit.trace.device_rows import (
    DeviceRows,
    Part,
    differing,
    hash_rows,
    joined,
    one_tensor,
    shaped,
    stays,
    to_host,
)
from repro_audit.trace.digest import row_key
from repro_audit.trace.record import Digests, Point, PointRows, RowHeader

#: Tensors of at most this many bytes wait for the end of the step; larger ones are hashed at once.
SMALL_BYTES = 1 << 16

#: The same on a GPU, where one tensor alone keeps few multiprocessors busy.
SMALL_BYTES_GPU = 1 << 20

#: A GPU hashes what waits before the end of the step if it is more than this many bytes.
WAITING_BYTES = 1 << 26

#: Digests stay on a GPU up to about this many bytes.
RESIDENT_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class Span:
    """Rows ``begin:end`` of a step's tensors are positions ``first`` and on of sequence ``sequence``."""

    sequence: int
    first: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """The row digests of one step, left where its tensors are, and which rows they are.

    Attributes:
        digests: uint8 [rows, 32].
        parts: per tensor taken, its point, the spans, the header, and its first row and how many it has.
        held: what launches that were captured in the step read: to be kept as long as they are replayed.
    """

    digests: torch.Tensor
    parts: tuple[tuple[int, Sequence[Span], RowHeader, int, int], ...]
    held: tuple[object, ...] = ()


@dataclass(slots=True)
class _Waiting:
    """A tensor taken and not yet flushed: on the CPU to be hashed; on a GPU perhaps hashed already."""

    point: int
    spans: Sequence[Span]
    header: RowHeader
    key: bytes
    dims: int
    #: None if it was hashed and its values are not kept.
    tensor: torch.Tensor | None
    rows: DeviceRows | None = None


class Recorder:
    """Collects row digests of points.

    Args:
        points: the point table.
        sequences: how many sequences the run has.
        salt: 32 secret bytes that key the rows, or None.
        save_values: keep the rows' values as well.
    """

    def __init__(
        self, points: Sequence[Point], sequences: int, salt: bytes | None = None, *, save_values: bool = False
    ) -> None:
        self._points = points
        self._salt = salt
        self._save = save_values
        self._keys: dict[tuple[torch.dtype, torch.Size], tuple[RowHeader, bytes]] = {}
        self._pending: list[_Waiting] = []
        self._found: list[dict[int, tuple[RowHeader, int, list[Part]]]] = [{} for _ in range(sequences)]
        self._values: dict[tuple[int, int], list[npt.NDArray[Any]]] = {}
        #: On a GPU: bytes that wait, how many of what is pending are copies, bytes of digests that stay.
        self._waiting, self._copied, self._resident = 0, 0, 0
        self._held: list[object] = []

    def take(self, point: int, tensor: torch.Tensor, spans: Sequence[Span]) -> None:
        """Record rows of a point.

        Args:
            point: its index.
            tensor: [rows, ...], or [rows, kv heads, ...] in domain kv; any strides. On a GPU it may not be
                written to before the end of the step, or :meth:`unshare` is called first.
            spans: which rows are which positions of which sequence; other rows are left out.
        """
        dims = 2 if self._points[point].domain == "kv" else 1
        shape = tensor.shape[dims:]
        known = self._keys.get((tensor.dtype, shape))
        if known is None:
            header = RowHeader(str(tensor.dtype).removeprefix("torch."), tuple(shape))
            known = self._keys[tensor.dtype, shape] = (header, row_key(header, self._salt))
        header, key = known
        if stays(tensor):
            self._pending.append(_Waiting(point, spans, header, key, dims, tensor))
            if tensor.nbytes > SMALL_BYTES_GPU:
                self._hash(self._pending[-1:])
            else:
                self._waiting += tensor.nbytes
                if self._waiting > WAITING_BYTES:
                    self._hash(self._pending)
        elif tensor.nbytes <= SMALL_BYTES:
            # A copy: what runs before the end of the step may write to the tensor.
            self._pending.append(_Waiting(point, spans, header, key, dims, tensor.clone()))
        else:
            (digests,) = digest_many([(tensor, key, dims)])
            self._store(point, spans, header, shaped(digests, tensor, dims), tensor)

    def flush(self) -> None:
        """Hash what waits; call at the end of every step."""
        self._hash(self._pending)
        pending = self._done()
        on_host = [(item, item.tensor) for item in pending if item.rows is None and item.tensor is not None]
        found = digest_many([(tensor, item.key, item.dims) for item, tensor in on_host])
        for (item, tensor), digests in zip(on_host, found, strict=True):
            self._store(item.point, item.spans, item.header, shaped(digests, tensor, item.dims), tensor)
        there = [(item, item.rows) for item in pending if item.rows is not None]
        for item, rows in there:
            self._store(item.point, item.spans, item.header, rows, item.tensor)
        buffers = {id(rows.buffer): rows.buffer.nbytes for _, rows in there}
        self._resident += sum(buffers.values())
        if self._resident > RESIDENT_BYTES:
            self._settle()

    def unshare(self) -> None:
        """Make what waits independent of the tensors taken: model code is about to write in place."""
        for item in self._pending[self._copied :]:
            if item.rows is None and item.tensor is not None and stays(item.tensor):
                item.tensor = item.tensor.clone()
        self._copied = len(self._pending)

    def discard(self) -> None:
        """Forget what waits: the step runs again."""
        self._done()

    def seal(self) -> Sealed:
        """Hash what waits without bringing it to the host: the end of a step that may be replayed.

        Every span of such a step is one row; where in its sequence it lies, :meth:`commit` is told. On a GPU
        nothing is waited for, and when a step of the same shapes was sealed before, it can be captured.
        """
        self._hash(self._pending)
        held, pending = tuple(self._held), self._done()
        if not held:
            tensors = [(item, item.tensor) for item in pending if item.tensor is not None]
            found = digest_many([(tensor, item.key, item.dims) for item, tensor in tensors])
            for (item, tensor), digests in zip(tensors, found, strict=True):
                item.rows = DeviceRows(torch.from_numpy(digests), 0, tuple(tensor.shape[: item.dims]))
        there = [(item, item.rows) for item in pending if item.rows is not None]
        whole, starts = one_tensor([rows for _, rows in there])
        parts = tuple(
            (item.point, item.spans, item.header, start, rows.count)
            for (item, rows), start in zip(there, starts, strict=True)
        )
        return Sealed(whole, parts, held)

    def commit(self, sealed: Sealed, digests: Digests, first: Mapping[int, int]) -> None:
        """Record what runs of a sealed step gave.

        Args:
            sealed: of any of the runs.
            digests: uint8 [runs, rows, 32].
            first: sequence to its position in the first run; each run is one further.
        """
        for point, spans, header, begin, rows in sealed.parts:
            part = digests[:, begin : begin + rows]
            if self._points[point].domain == "kv":
                part = part.reshape(len(digests), len(spans), -1, 32)
            for span in spans:
                own = np.ascontiguousarray(part[:, span.begin])
                entry = self._found[span.sequence].setdefault(point, (header, first[span.sequence], []))
                entry[2].append(own)

    def changes(self, items: Sequence[tuple[int, int, torch.Tensor]]) -> list[list[int]]:
        """Positions whose rows, hashed again, are not what was recorded; a GPU is waited for seldom.

        Args:
            items: (point of domain kv, sequence, tensor [positions, kv heads, ...] with position 0 first),
                all on one device.

        Returns:
            The positions per item.
        """
        found: list[list[int]] = []
        now: list[Part] = []
        then: list[Sequence[Part]] = []
        size = 0
        for point, sequence, tensor in items:
            then.append(self._found[sequence][point][2])
            rehashed = [(tensor, self._keys[tensor.dtype, tensor.shape[2:]][1], 2)]
            if stays(tensor):
                now += hash_rows(rehashed)[0]
            else:
                now.append(shaped(digest_many(rehashed)[0], tensor, 2))
            size += tensor.shape[0] * tensor.shape[1] * 32
            if size > RESIDENT_BYTES:
                found += differing(now, then)
                now, then, size = [], [], 0
        return found + differing(now, then) if now else found

    def rows(self, sequence: int) -> dict[int, PointRows]:
        """Point index to row digests of one sequence, points in canonical order."""
        self._settle()
        found = self._found[sequence]
        return {
            point: PointRows(header, first, joined(parts))
            for point, (header, first, parts) in sorted(found.items())
        }

    def values(self) -> dict[str, npt.NDArray[Any]]:
        """``s{sequence}/{point name}`` to the rows' values, if they were kept; bfloat16 as uint16 bits."""
        return {
            f"s{sequence}/{self._points[point].name}": np.concatenate(parts)
            for (sequence, point), parts in self._values.items()
        }

    def _hash(self, waiting: Sequence[_Waiting]) -> None:
        """Digest on the GPU what waits there."""
        chosen = [
            (item, item.tensor)
            for item in waiting
            if item.rows is None and item.tensor is not None and stays(item.tensor)
        ]
        if not chosen:
            return
        found, held = hash_rows([(tensor, item.key, item.dims) for item, tensor in chosen])
        self._held.append(held)
        for (item, tensor), rows in zip(chosen, found, strict=True):
            item.rows = rows
            item.tensor = tensor.cpu() if self._save else None
        if waiting is self._pending:
            self._waiting = 0

    def _done(self) -> list[_Waiting]:
        """What was pending, and no longer is."""
        pending, self._pending, self._held = self._pending, [], []
        self._waiting = self._copied = 0
        return pending

    def _settle(self) -> None:
        """Bring all digests to the host."""
        places = [
            (parts, index, part)
            for found in self._found
            for _, _, parts in found.values()
            for index, part in enumerate(parts)
            if isinstance(part, DeviceRows)
        ]
        self._resident = 0
        if places:
            arrived = to_host([part for _, _, part in places])
            for (parts, index, _), digests in zip(places, arrived, strict=True):
                parts[index] = digests

    def _store(
        self,
        point: int,
        spans: Sequence[Span],
        header: RowHeader,
        digests: Part,
        tensor: torch.Tensor | None,
    ) -> None:
        for span in spans:
            part = digests[span.begin : span.end]
            entry = self._found[span.sequence].get(point)
            if entry is None:
                self._found[span.sequence][point] = (header, span.first, [part])
            else:
                entry[2].append(part)
            if self._save and tensor is not None:
                rows = tensor[span.begin : span.end].contiguous()
                bits = rows.view(torch.int16) if rows.dtype is torch.bfloat16 else rows
                self._values.setdefault((span.sequence, point), []).append(bits.numpy().copy())
