"""The recorder: rows of points go in as tensors, row digests come out, per sequence and in position order.

Large tensors are hashed where they are, those of a GPU after a copy to the host. Small ones (a decode step
has some hundred of a few kilobytes) are copied and hashed together in one call at the end of the step: rows
of all points then share the hash's vector lanes, and leave a GPU in one transfer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from repro_kernels.cpu.digest import digest_many

from repro_audit.trace.digest import row_key
from repro_audit.trace.record import Digests, Point, PointRows, RowHeader

#: Tensors of at most this many bytes wait for the end of the step; larger ones are hashed at once.
SMALL_BYTES = 1 << 16


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
        parts: per tensor taken, its point, the spans, the header and how many rows it has.
    """

    digests: torch.Tensor
    parts: tuple[tuple[int, Sequence[Span], RowHeader, int], ...]


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
        self._pending: list[tuple[int, Sequence[Span], RowHeader, torch.Tensor, bytes, int]] = []
        self._found: list[dict[int, tuple[RowHeader, int, list[Digests]]]] = [{} for _ in range(sequences)]
        self._values: dict[tuple[int, int], list[npt.NDArray[Any]]] = {}

    def take(self, point: int, tensor: torch.Tensor, spans: Sequence[Span]) -> None:
        """Record rows of a point.

        Args:
            point: its index.
            tensor: [rows, ...], or [rows, kv heads, ...] in domain kv; any strides.
            spans: which rows are which positions of which sequence; other rows are left out.
        """
        dims = 2 if self._points[point].domain == "kv" else 1
        shape = tensor.shape[dims:]
        known = self._keys.get((tensor.dtype, shape))
        if known is None:
            header = RowHeader(str(tensor.dtype).removeprefix("torch."), tuple(shape))
            known = self._keys[tensor.dtype, shape] = (header, row_key(header, self._salt))
        header, key = known
        if tensor.nbytes <= SMALL_BYTES:
            # A copy: what runs before the end of the step may write to the tensor.
            self._pending.append((point, spans, header, tensor.clone(), key, dims))
            return
        tensor = tensor.cpu()
        (digests,) = digest_many([(tensor, key, dims)])
        self._store(point, spans, header, tensor, digests)

    def flush(self) -> None:
        """Hash what waits; call at the end of every step."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        tensors = _to_host([item[3] for item in pending])
        found = digest_many(
            [(tensor, key, dims) for tensor, (*_, key, dims) in zip(tensors, pending, strict=True)]
        )
        for (point, spans, header, *_), tensor, digests in zip(pending, tensors, found, strict=True):
            self._store(point, spans, header, tensor, digests)

    def unshare(self) -> None:
        """Make what waits independent of the tensors taken: model code is about to write in place."""

    def discard(self) -> None:
        """Forget what waits: the step runs again."""
        self._pending.clear()

    def seal(self) -> Sealed:
        """Hash what waits without bringing it to the host: the end of a step that may be replayed.

        Every span of such a step is one row; where in its sequence it lies, :meth:`commit` is told.
        """
        pending, self._pending = self._pending, []
        found = digest_many([(tensor, key, dims) for _, _, _, tensor, key, dims in pending])
        parts = tuple(
            (point, spans, header, len(digests))
            for (point, spans, header, *_), digests in zip(pending, found, strict=True)
        )
        rows = [torch.from_numpy(digests) for digests in found]
        return Sealed(torch.cat(rows) if rows else torch.empty(0, 32, dtype=torch.uint8), parts)

    def commit(self, sealed: Sealed, digests: Digests, first: Mapping[int, int]) -> None:
        """Record what runs of a sealed step gave.

        Args:
            sealed: of any of the runs.
            digests: uint8 [runs, rows, 32].
            first: sequence to its position in the first run; each run is one further.
        """
        begin = 0
        for point, spans, header, rows in sealed.parts:
            part = digests[:, begin : begin + rows]
            begin += rows
            if self._points[point].domain == "kv":
                part = part.reshape(len(digests), len(spans), -1, 32)
            for span in spans:
                own = np.ascontiguousarray(part[:, span.begin])
                entry = self._found[span.sequence].setdefault(point, (header, first[span.sequence], []))
                entry[2].append(own)

    def changed(self, point: int, sequence: int, tensor: torch.Tensor) -> list[int]:
        """Positions whose rows, hashed again, are not what was recorded.

        Args:
            point: index of a recorded point of domain kv.
            sequence: index of the sequence.
            tensor: [positions, kv heads, ...], position 0 first.
        """
        _, _, parts = self._found[sequence][point]
        key = self._keys[tensor.dtype, tensor.shape[2:]][1]
        (digests,) = digest_many([(tensor.cpu(), key, 2)])
        recorded = np.concatenate(parts).reshape(tensor.shape[0], -1)
        return np.flatnonzero((digests.reshape(recorded.shape) != recorded).any(axis=1)).tolist()

    def rows(self, sequence: int) -> dict[int, PointRows]:
        """Point index to row digests of one sequence, points in canonical order."""
        found = self._found[sequence]
        return {
            point: PointRows(header, first, np.concatenate(parts) if len(parts) > 1 else parts[0])
            for point, (header, first, parts) in sorted(found.items())
        }

    def values(self) -> dict[str, npt.NDArray[Any]]:
        """``s{sequence}/{point name}`` to the rows' values, if they were kept; bfloat16 as uint16 bits."""
        return {
            f"s{sequence}/{self._points[point].name}": np.concatenate(parts)
            for (sequence, point), parts in self._values.items()
        }

    def _store(
        self, point: int, spans: Sequence[Span], header: RowHeader, tensor: torch.Tensor, digests: Digests
    ) -> None:
        if self._points[point].domain == "kv":
            digests = digests.reshape(tensor.shape[0], tensor.shape[1], digests.shape[-1])
        for span in spans:
            part = digests[span.begin : span.end]
            entry = self._found[span.sequence].get(point)
            if entry is None:
                self._found[span.sequence][point] = (header, span.first, [part])
            else:
                entry[2].append(part)
            if self._save:
                rows = tensor[span.begin : span.end].contiguous()
                bits = rows.view(torch.int16) if rows.dtype is torch.bfloat16 else rows
                self._values.setdefault((span.sequence, point), []).append(bits.numpy().copy())


def _to_host(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors in host memory; those of a GPU travel as one run of bytes."""
    if all(tensor.is_cpu for tensor in tensors):
        return tensors
    flat = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
    # Offsets are multiples of the widest element.
    padded = [torch.nn.functional.pad(run, (0, -run.numel() % 8)) for run in flat]
    arrived = torch.split(torch.cat(padded).cpu(), [run.numel() for run in padded])
    return [
        run[: tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)
        for run, tensor in zip(arrived, tensors, strict=True)
    ]
