"""What a run leaves behind, before it is a file: the matrix points x positions. numpy only, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Digests = npt.NDArray[np.uint8]

#: Row domains. tok: one row per token; kv: one per (token, kv head); sample: one per sample of dim 0.
DOMAINS = ("tok", "kv", "sample")


@dataclass(frozen=True)
class Edge:
    """What a point consumes: the index of the consumed point and the kind of dependency.

    ``row``: the same position; ``causal``: this and every earlier position; ``window``: the last ``window``
    positions; ``all``: every position.
    """

    point: int
    kind: str = "row"
    window: int = 0


@dataclass(frozen=True)
class Point:
    """A named output inside the model; canonical order is the order of the table.

    Attributes:
        name: module path and meaning, as ``model.layers.3.mlp`` or ``model.layers.3.k_cache``.
        domain: one of :data:`DOMAINS`.
        inputs: the consumed points; indices are always smaller than the point's own.
        weights: names of the parameters and buffers that the point's computation reads.
    """

    name: str
    domain: str
    inputs: tuple[Edge, ...] = ()
    weights: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowHeader:
    """The typed header of a row: dtype name as torch prints it without the prefix, and the row's shape."""

    dtype: str
    shape: tuple[int, ...]


@dataclass
class PointRows:
    """Row digests of one point in one sequence: ``digests[i]`` belongs to position ``first + i``.

    ``digests`` is uint8 [count, 32] in domain tok and sample, [count, kv_heads, 32] in kv.
    """

    header: RowHeader
    first: int
    digests: Digests


@dataclass
class SequenceRecord:
    """One sequence: what went in, what came out, and the rows of every point, by point index."""

    id: int
    prompt: tuple[int, ...]
    generated: tuple[int, ...]
    rows: dict[int, PointRows] = field(default_factory=dict)
    #: uint32 [count, 2, 2]: per logits row the two largest (token id, fp32 bits), ties to the lowest id.
    top2: npt.NDArray[np.uint32] | None = None
    text: str | None = None


@dataclass(frozen=True)
class Scalar:
    """A float scalar that an operator received: the hex of its double (``float.hex``)."""

    operator: str
    argument: str
    value: str


@dataclass(frozen=True)
class TensorDigest:
    """A named tensor's typed digest: the row digest of the whole tensor taken as one row."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str


@dataclass(frozen=True)
class OperatorCount:
    """Coverage of one operator: how it was classed (``exact``, ``specified``, ``structural``), its calls.

    ``calls`` depends on the schedule and is a claim; the classes are evidence.
    """

    operator: str
    classed: str
    kernel: str
    calls: int


@dataclass(frozen=True)
class ModuleCount:
    """Coverage of one kind of module: how many exist, how many ran under the profile."""

    kind: str
    total: int
    covered: int


@dataclass(frozen=True, order=True)
class CompiledKernel:
    """Machine code that ran: a kernel of the GPU, or the library of CPU kernels.

    Attributes:
        name: module and function, ``gpu.rows._rows``; ``cpu`` for the library.
        specialisation: types, alignments, constants and options; the instruction set of the library.
        target: ``sm_90``, ``x86_64``.
        sha256: hex.
    """

    name: str
    specialisation: str
    target: str
    sha256: str


@dataclass
class RunRecord:
    """Everything the engine knows after a run or a replay."""

    points: tuple[Point, ...]
    sequences: list[SequenceRecord]
    scalars: tuple[Scalar, ...]
    constants: tuple[TensorDigest, ...]
    buffers: tuple[TensorDigest, ...]
    operators: tuple[OperatorCount, ...]
    modules: tuple[ModuleCount, ...]
    attention: str
    cache_faults: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    schedule: dict[str, int] = field(default_factory=dict)
    kernels: tuple[CompiledKernel, ...] = ()
