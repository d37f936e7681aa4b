"""A run -> the payload of its manifest: one spelling, and nothing that its own parser would refuse."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from repro_audit import __version__
from repro_audit.errors import InconclusiveError, UntrustedError, UsageError
from repro_audit.manifest.canonical import MAX_PAYLOAD, dumps
from repro_audit.manifest.parse import parse_manifest
from repro_audit.manifest.private import PrivateInputs
from repro_audit.manifest.types import (
    PREDICATE_TYPE,
    ROOT_SUBJECT,
    STATEMENT_TYPE,
    ChatClaim,
    PointSpec,
    Span,
    TraceRef,
)
from repro_audit.settings import PROFILE_VERSION, Decoding, RunSettings
from repro_audit.trace.digest import point_digest, run_root, sequence_root
from repro_audit.trace.record import PointRows, RunRecord, SequenceRecord, TensorDigest
from repro_audit.trace.tracefile import SequenceShape


class ModelFile(Protocol):
    """A file of the model, as the loader digested it."""

    @property
    def name(self) -> str:
        """Relative POSIX name."""

    @property
    def sha256(self) -> str:
        """Hex SHA-256."""


class ModelIdentity(Protocol):
    """The fields of a loaded model that a manifest records; the model itself is not touched."""

    @property
    def kind(self) -> str:
        """``hf``, ``gguf`` or ``python``."""

    @property
    def name(self) -> str:
        """Never a local path."""

    @property
    def revision(self) -> str | None:
        """Commit of a hub model."""

    @property
    def files(self) -> Sequence[ModelFile]:
        """In root order; empty for ``python``."""

    @property
    def root(self) -> str:
        """Hex root (:mod:`repro_audit.manifest.omsroot`)."""

    @property
    def tensors(self) -> Sequence[TensorDigest]:
        """Every parameter once."""

    @property
    def config_digest(self) -> str:
        """Hex SHA-256."""

    @property
    def tokenizer_digest(self) -> str:
        """Hex SHA-256, or nothing for a model without a tokenizer."""

    @property
    def ignored_keys(self) -> Sequence[str]:
        """Checkpoint keys that the class explains away."""

    @property
    def cast_keys(self) -> Sequence[str]:
        """Parameters whose values a cast changed."""

    @property
    def file_for_packages(self) -> str | None:
        """``distribution==version:path inside it`` for a packaged model."""

    @property
    def tied(self) -> Sequence[Sequence[str]]:
        """Groups of names that share one tensor, the listed one first."""


@dataclass(frozen=True)
class Occasion:
    """When and why a run was made: claims, apart from the challenge that a signature binds.

    Attributes:
        run_id: 16 bytes in hex.
        started_at: RFC 3339, UTC, whole seconds.
        finished_at: as ``started_at``.
        challenge: the verifier's nonce in hex, or None.
        environment: name to text.
    """

    run_id: str
    started_at: str
    finished_at: str
    challenge: str | None
    environment: Mapping[str, str]


def new_run_id() -> str:
    """16 random bytes in hex."""
    return secrets.token_hex(16)


def utc_now() -> str:
    """The time as manifests write it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def describe_points(record: RunRecord) -> tuple[PointSpec, ...]:
    """The point table with row types and heads.

    Raises:
        InconclusiveError: a point's rows have another type in one sequence than in another.
        ValueError: a point without rows, which is a fault of the recorder.
    """
    specs: list[PointSpec] = []
    for index, point in enumerate(record.points):
        seen = [_rows(sequence, index) for sequence in record.sequences]
        headers = {rows.header for rows in seen}
        heads = {rows.digests.shape[1] if point.domain == "kv" else 0 for rows in seen}
        if len(headers) != 1 or len(heads) != 1:
            raise InconclusiveError(
                f"the rows of {point.name} have another type in one sequence than in another",
                hint="record these prompts in runs of their own",
            )
        specs.append(PointSpec(point, headers.pop(), heads.pop()))
    return tuple(specs)


def describe_sequences(record: RunRecord) -> tuple[SequenceShape, ...]:
    """Positions and spans of every sequence, as the trace's layout needs them."""
    shapes: list[SequenceShape] = []
    for sequence in record.sequences:
        rows = [_rows(sequence, index) for index in range(len(record.points))]
        spans = tuple(Span(r.first, int(r.digests.shape[0])) for r in rows)
        positions = len(sequence.prompt) + max(len(sequence.generated) - 1, 0)
        if not sequence.prompt:
            positions = max(span.first + span.count for span in spans)
        shapes.append(SequenceShape(positions, spans))
    return tuple(shapes)


def _rows(sequence: SequenceRecord, index: int) -> PointRows:
    rows = sequence.rows.get(index)
    if rows is None or not rows.digests.shape[0]:
        raise ValueError(f"point {index} has no rows in sequence {sequence.id}")
    return rows


def build_manifest(
    record: RunRecord,
    model: ModelIdentity,
    settings: RunSettings,
    trace: TraceRef,
    occasion: Occasion,
    *,
    top2: bool,
    prompt_texts: Sequence[str | None] = (),
    chat: ChatClaim | None = None,
    private: PrivateInputs | None = None,
) -> bytes:
    """The payload that gets signed.

    Args:
        record: the run.
        model: identity of what ran.
        settings: as resolved.
        trace: size and digest of the written trace.
        occasion: time, challenge, environment.
        top2: whether the trace holds the two largest logits (never with private inputs: it shows the tokens).
        prompt_texts: text of each prompt as the user wrote it, where there was one; withheld if private.
        chat: what a chat template made of the prompts, if one did; its texts are withheld if private.
        private: the withheld inputs, or None.

    Raises:
        UsageError: the manifest would be larger than 16 MiB, or the trace shows private inputs.
        InconclusiveError: rows of changing type (:func:`describe_points`).
        RuntimeError: the record contradicts itself; a fault of ours, told before anything is signed.
    """
    if private is not None and (top2 or settings.save_values):
        raise UsageError("saved values would show the private inputs", hint="leave --save-values out")
    points = describe_points(record)
    shapes = describe_sequences(record)
    texts = tuple(prompt_texts) or (None,) * len(record.sequences)
    roots: list[bytes] = []
    sequences: list[dict[str, Any]] = []
    for sequence, shape, text in zip(record.sequences, shapes, texts, strict=True):
        root, entry = _sequence(sequence, shape, points, None if private else text, private is not None)
        roots.append(root)
        sequences.append(entry)
    predicate: dict[str, Any] = {
        "coverage": _coverage(record),
        "decoding": _decoding(settings.decoding),
        "environment": _environment(occasion.environment),
        "finishedAt": occasion.finished_at,
        "level": settings.level,
        "model": _model(record, model),
        "points": [_point(spec) for spec in points],
        "profile": {
            "activations": settings.activations,
            "castWeights": settings.cast_weights,
            "name": settings.profile,
            "version": PROFILE_VERSION,
        },
        "root": run_root(roots).hex(),
        "runId": occasion.run_id,
        "schedule": {
            "batchSize": settings.batch_size,
            "device": settings.device,
            "measured": [{"name": k, "value": v} for k, v in sorted(record.schedule.items())],
            "prefillChunk": settings.prefill_chunk,
        },
        "sequences": sequences,
        "startedAt": occasion.started_at,
        "tool": {"name": "repro-audit", "version": __version__},
        "trace": {
            "sha256": trace.sha256,
            "size": str(trace.size),
            "top2": top2,
            "values": settings.save_values,
        },
    }
    if occasion.challenge is not None:
        predicate["challenge"] = occasion.challenge
    if chat is not None:
        rendered = [] if private else list(chat.rendered)
        predicate["chat"] = {"rendered": rendered, **({"date": chat.date} if chat.date else {})}
    if private is not None:
        claim = private.claim()
        predicate["privacy"] = {"commitment": claim.commitment, "saltDigest": claim.salt_digest}
    payload = dumps(
        {
            "_type": STATEMENT_TYPE,
            "predicate": predicate,
            "predicateType": PREDICATE_TYPE,
            "subject": _subjects(model),
        }
    )
    _require_acceptable(payload)
    return payload


def _require_acceptable(payload: bytes) -> None:
    if len(payload) > MAX_PAYLOAD:
        raise UsageError(
            f"the manifest would have {len(payload) / 1e6:.1f} MB, more than {MAX_PAYLOAD / 1e6:.1f} MB",
            hint="record fewer prompts in one run, or a coarser level with --record",
        )
    try:
        parse_manifest(payload)
    except UntrustedError as error:
        raise RuntimeError(
            f"the recorder made a manifest that no verifier accepts: {error.message}"
        ) from error


def _subjects(model: ModelIdentity) -> list[dict[str, Any]]:
    named = [(ROOT_SUBJECT, model.root), *((file.name, file.sha256) for file in model.files)]
    return [{"digest": {"sha256": digest}, "name": name} for name, digest in named]


def _tensor(tensor: TensorDigest) -> dict[str, Any]:
    return {
        "digest": tensor.digest,
        "dtype": tensor.dtype,
        "name": tensor.name,
        "shape": list(tensor.shape),
    }


def _by_name(tensors: Sequence[TensorDigest]) -> list[dict[str, Any]]:
    return [_tensor(tensor) for tensor in sorted(tensors, key=lambda tensor: tensor.name)]


def _model(record: RunRecord, model: ModelIdentity) -> dict[str, Any]:
    out: dict[str, Any] = {
        "buffers": _by_name(record.buffers),
        "castKeys": sorted(model.cast_keys),
        "configDigest": model.config_digest,
        "constants": [_tensor(tensor) for tensor in record.constants],
        "ignoredKeys": sorted(model.ignored_keys),
        "kind": model.kind,
        "name": model.name,
        "rootMethod": "tensor-list" if model.kind == "python" else "openssf-model-signing",
        "scalars": [
            {"argument": scalar.argument, "operator": scalar.operator, "value": scalar.value}
            for scalar in sorted(record.scalars, key=lambda s: (s.operator, s.argument, s.value))
        ],
        "tensors": _by_name(model.tensors),
        "tied": sorted(list(group) for group in model.tied),
    }
    if model.revision is not None:
        out["revision"] = model.revision
    if model.file_for_packages is not None:
        out["package"] = model.file_for_packages
    if model.tokenizer_digest:
        out["tokenizerDigest"] = model.tokenizer_digest
    return out


def _decoding(decoding: Decoding) -> dict[str, Any]:
    return {
        "maxNewTokens": decoding.max_new_tokens,
        "seed": str(decoding.seed),
        "source": decoding.source,
        "stopTokenIds": list(decoding.stop_token_ids),
        "temperature": float(decoding.temperature).hex(),
        "topK": decoding.top_k,
        "topP": float(decoding.top_p).hex(),
    }


def _coverage(record: RunRecord) -> dict[str, Any]:
    return {
        "attention": record.attention,
        "cacheFaults": list(record.cache_faults),
        "modules": [
            {"covered": module.covered, "kind": module.kind, "total": module.total}
            for module in record.modules
        ],
        "operators": [
            {
                "calls": operator.calls,
                "classed": operator.classed,
                "kernel": operator.kernel,
                "operator": operator.operator,
            }
            for operator in record.operators
        ],
    }


def _environment(environment: Mapping[str, str]) -> list[dict[str, str]]:
    """Claims as printable text: what a driver reports about itself may hold anything."""
    listed = []
    for name, value in sorted(environment.items()):
        printable = "".join(c if c.isprintable() else " " for c in str(value)).strip()
        if printable:
            listed.append({"name": name, "value": printable[:4096]})
    return listed


def _point(spec: PointSpec) -> dict[str, Any]:
    out: dict[str, Any] = {
        "domain": spec.point.domain,
        "dtype": spec.header.dtype,
        "inputs": [
            {
                "kind": edge.kind,
                "point": edge.point,
                **({"window": edge.window} if edge.kind == "window" else {}),
            }
            for edge in spec.point.inputs
        ],
        "name": spec.point.name,
        "shape": list(spec.header.shape),
        "weights": list(spec.point.weights),
    }
    if spec.point.domain == "kv":
        out["heads"] = spec.heads
    return out


def _sequence(
    sequence: SequenceRecord,
    shape: SequenceShape,
    points: Sequence[PointSpec],
    text: str | None,
    private: bool,
) -> tuple[bytes, dict[str, Any]]:
    digests = [
        point_digest(spec.point.name, spec.header, span.first, sequence.rows[index].digests)
        for index, (spec, span) in enumerate(zip(points, shape.spans, strict=True))
    ]
    root = sequence_root(digests)
    out: dict[str, Any] = {
        "counts": [span.count for span in shape.spans],
        "digests": [digest.hex() for digest in digests],
        "firsts": [span.first for span in shape.spans],
        "generatedCount": len(sequence.generated),
        "id": str(sequence.id),
        "positions": shape.positions,
        "promptCount": len(sequence.prompt),
        "root": root.hex(),
    }
    if not private:
        out["prompt"] = list(sequence.prompt)
        out["generated"] = list(sequence.generated)
        if text is not None:
            out["promptText"] = text
        if sequence.text is not None:
            out["text"] = sequence.text
    return root, out
