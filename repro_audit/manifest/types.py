"""What a manifest says, as frozen dataclasses. Everything in it is a claim until something re-derives it."""

from __future__ import annotations

from dataclasses import dataclass

from repro_audit.settings import RunSettings
from repro_audit.trace.record import (
    CompiledKernel,
    ModuleCount,
    OperatorCount,
    Point,
    RowHeader,
    Scalar,
    TensorDigest,
)

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
#: One constant until the project owns a domain.
PREDICATE_TYPE = "urn:repro-audit:manifest:v1"
#: Name of ``subject[0]``; its colon keeps it apart from every file name.
ROOT_SUBJECT = "urn:repro-audit:model-root"

MODEL_KINDS = ("hf", "gguf", "python")
#: How ``subject[0]`` was computed: OpenSSF Model Signing over files, or our digest over the tensor list.
ROOT_METHODS = ("openssf-model-signing", "tensor-list")


@dataclass(frozen=True)
class Subject:
    """A file of the model: its name relative to the model's folder and its SHA-256 (hex)."""

    name: str
    sha256: str


@dataclass(frozen=True)
class TraceRef:
    """Size in bytes and SHA-256 (hex) of the whole trace file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class ModelClaim:
    """The model as the recorder saw it.

    Attributes:
        kind: one of ``MODEL_KINDS``.
        name: never a local path, and never used to find a model.
        revision: commit of a hub model, or None.
        root: hex SHA-256, ``subject[0]``.
        root_method: one of ``ROOT_METHODS``.
        files: the further subjects, empty for ``python``.
        config_digest: hex SHA-256.
        tokenizer_digest: hex SHA-256, or None for a model without a tokenizer.
        tensors: every parameter, sorted by name; tied ones once.
        buffers: derived buffers (RoPE frequencies and the like), sorted by name.
        constants: tensors that entered as constants, in order of first use.
        scalars: float scalars that operators received, sorted.
        tied: groups of names that share one tensor, the listed one first.
        ignored_keys: keys of the checkpoint that the model's class explains away.
        cast_keys: parameters whose values a cast changed (``--cast-weights``).
        package: ``distribution==version:path inside it`` of a packaged model: a claim.
    """

    kind: str
    name: str
    revision: str | None
    root: str
    root_method: str
    files: tuple[Subject, ...]
    config_digest: str
    tokenizer_digest: str | None
    tensors: tuple[TensorDigest, ...]
    buffers: tuple[TensorDigest, ...]
    constants: tuple[TensorDigest, ...]
    scalars: tuple[Scalar, ...]
    tied: tuple[tuple[str, ...], ...]
    ignored_keys: tuple[str, ...]
    cast_keys: tuple[str, ...]
    package: str | None


@dataclass(frozen=True)
class PointSpec:
    """A point of the table with the type of its rows.

    Attributes:
        point: name, domain, consumed points, weights.
        header: dtype and shape of one row.
        heads: rows per position in domain ``kv``, 0 elsewhere.
    """

    point: Point
    header: RowHeader
    heads: int = 0


@dataclass(frozen=True)
class Span:
    """Recorded rows of a point in a sequence: positions ``first`` to ``first + count - 1``."""

    first: int
    count: int


@dataclass(frozen=True)
class SequenceClaim:
    """One sequence.

    Attributes:
        id: the recorded 64-bit id that sampling uses.
        positions: rows of a full point: tokens fed (prompt + drawn - 1), or samples.
        prompt_count: tokens of the prompt.
        generated_count: tokens drawn.
        prompt: token ids, or None when the inputs are private.
        generated: token ids, or None when the inputs are private.
        prompt_text: the text that was encoded, or None.
        text: the decoded text, or None.
        root: hex Merkle root over ``digests``.
        digests: hex point digests, one per point of the table.
        spans: recorded positions, one per point of the table.
    """

    id: int
    positions: int
    prompt_count: int
    generated_count: int
    prompt: tuple[int, ...] | None
    generated: tuple[int, ...] | None
    prompt_text: str | None
    text: str | None
    root: str
    digests: tuple[str, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class PrivacyClaim:
    """Private inputs: what the manifest says instead of the tokens.

    Attributes:
        commitment: hex SHA-256 over salt and inputs (:mod:`repro_audit.manifest.private`).
        salt_digest: hex SHA-256 naming the salt, so that two runs under one salt can be compared.
    """

    commitment: str
    salt_digest: str


@dataclass(frozen=True)
class ChatClaim:
    """What a chat template made of the prompts.

    Attributes:
        rendered: the text of every sequence that was encoded; empty when the inputs are private.
        date: the date that the template wrote into the text, if it wrote one.
    """

    rendered: tuple[str, ...]
    date: str | None


@dataclass(frozen=True)
class Manifest:
    """A parsed manifest payload; nothing in it chooses code, paths or downloads.

    Attributes:
        payload_sha256: SHA-256 (hex) of the payload bytes: what attestations name.
        started_at: RFC 3339 UTC time by the recorder's clock: a claim.
        finished_at: as ``started_at``.
        challenge: the verifier's nonce (hex), or None.
        tool_version: version of the recorder.
        settings: profile, activations, level, decoding and the rest, as resolved.
        profile_version: version of the profile.
        points: the point table in canonical order.
        root: hex run root.
        operators, modules, attention: coverage.
        cache_faults: cache rows that read back other than written.
        schedule: how the run was batched, name to number: a claim.
        environment: name to text: claims.
        compiled: the machine code that ran: claims; empty in a record that lists none.
        has_top2: the trace holds the two largest logits per row.
        has_values: the trace holds the values.
    """

    payload_sha256: str
    run_id: str
    started_at: str
    finished_at: str
    challenge: str | None
    tool_version: str
    model: ModelClaim
    settings: RunSettings
    profile_version: int
    points: tuple[PointSpec, ...]
    sequences: tuple[SequenceClaim, ...]
    root: str
    operators: tuple[OperatorCount, ...]
    modules: tuple[ModuleCount, ...]
    attention: str
    cache_faults: tuple[str, ...]
    schedule: tuple[tuple[str, int], ...]
    environment: tuple[tuple[str, str], ...]
    compiled: tuple[CompiledKernel, ...]
    trace: TraceRef
    has_top2: bool
    has_values: bool
    privacy: PrivacyClaim | None
    chat: ChatClaim | None

    def point_table(self) -> tuple[Point, ...]:
        """The points without their row types, as origins and the engine use them."""
        return tuple(spec.point for spec in self.points)
