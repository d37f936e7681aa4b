"""A run -> the payload of its manifest: one spelling, and nothing that its own parser would refuse."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from repro_audit import __version__
from repro_audit.errors import InconclusiveError, UntrustedError, UsageError
from repro_audit.manifest.canonical import MAX_PAYLOAD, dumps
from repro_audit.manifest.encode import (
    ModelIdentity,
    compiled_json,
    coverage_json,
    decoding_json,
    environment_json,
    model_json,
    point_json,
    subjects_json,
)
from repro_audit.manifest.parse import parse_manifest
from repro_audit.manifest.private import PrivateInputs
from repro_audit.manifest.types import (
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    ChatClaim,
    PointSpec,
    Span,
    TraceRef,
)
from repro_audit.settings import PROFILE_VERSION, RunSettings
from repro_audit.trace.digest import point_digest, run_root, sequence_root
from repro_audit.trace.record import PointRows, RunRecord, SequenceRecord
from repro_audit.trace.tracefile import SequenceShape


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
        "coverage": coverage_json(record),
        "decoding": decoding_json(settings.decoding),
        "environment": environment_json(occasion.environment),
        "finishedAt": occasion.finished_at,
        "level": settings.level,
        "model": model_json(record, model),
        "points": [point_json(spec) for spec in points],
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
    if record.kernels:
        predicate["compiled"] = compiled_json(record.kernels)
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
            "subject": subjects_json(model),
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
