"""A small recording without a model: every part of the format, from counters, the same bytes every time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from repro_audit.manifest.build import Occasion, build_manifest, describe_points, describe_sequences
from repro_audit.manifest.keys import SigningKey, trusted
from repro_audit.manifest.omsroot import root_of_digests, tensor_list_root
from repro_audit.manifest.private import PrivateInputs, PrivateSequence
from repro_audit.manifest.types import TraceRef
from repro_audit.settings import Decoding, RunSettings
from repro_audit.trace.digest import row_digests, tensor_digest
from repro_audit.trace.record import (
    CompiledKernel,
    Edge,
    ModuleCount,
    OperatorCount,
    Point,
    PointRows,
    RowHeader,
    RunRecord,
    Scalar,
    SequenceRecord,
    TensorDigest,
)
from repro_audit.trace.tracefile import write_trace

KERNELS = (
    CompiledKernel(
        "gpu.rows._rows",
        "x: *fp32 ((tt.divisibility 16)), BLOCK=128; num_warps=4",
        "sm_90",
        "ab" * 32,
    ),
    CompiledKernel("gpu.rows._rows", "x: *bf16, n: i32, BLOCK=128; num_warps=4", "sm_90", "cd" * 32),
    CompiledKernel("gpu.softmax._softmax", "x: *fp32, LOG=False; num_warps=8", "sm_90", "ef" * 32),
)
"""What a run on a GPU lists as compiled kernels."""

BLOCKS = 2
HIDDEN = 4
HEADS = 2
VOCABULARY = 8
SALT = bytes(range(32))
PROMPTS = ((1, 2, 3), (4, 5))
DRAWN = ((6, 7), (3, 0))


def test_key(name: str) -> SigningKey:
    """A key that anyone can derive from its name: for tests alone."""
    private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"test only: " + name.encode()).digest())
    return SigningKey(private, trusted(private.public_key(), f"{name}.pub"))


def numbers(name: str, *shape: int) -> npt.NDArray[np.float32]:
    """fp32 values in [-1, 1) that depend on the name alone."""
    count = int(np.prod(shape, dtype=np.int64))
    blocks = [hashlib.sha256(f"{name} {i}".encode()).digest() for i in range(count // 8 + 1)]
    words = np.frombuffer(b"".join(blocks), dtype="<i4")[:count]
    return (words.astype(np.float64) / 2**31).astype(np.float32).reshape(shape)


@dataclass(frozen=True)
class File:
    """A file of the model that never was."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Identity:
    """What a loader would say of a two-block decoder."""

    kind: str = "hf"
    name: str = "synthetic/two-blocks"
    revision: str | None = "0123456789abcdef0123456789abcdef01234567"
    files: tuple[File, ...] = ()
    root: str = ""
    tensors: tuple[TensorDigest, ...] = ()
    config_digest: str = hashlib.sha256(b"config").hexdigest()
    tokenizer_digest: str = hashlib.sha256(b"tokenizer").hexdigest()
    ignored_keys: tuple[str, ...] = ()
    cast_keys: tuple[str, ...] = ()
    file_for_packages: str | None = None
    tied: tuple[tuple[str, ...], ...] = (("model.embed_tokens.weight", "lm_head.weight"),)


def identity(kind: str = "hf") -> Identity:
    """The model's identity; kind ``python`` has no files."""
    names = ["model.embed_tokens.weight", "model.norm.weight"]
    for block in range(BLOCKS):
        names += [f"model.layers.{block}.{part}.weight" for part in ("mlp", "norm", "self_attn")]
    tensors = tuple(
        TensorDigest(
            name, "float32", (HIDDEN, HIDDEN), tensor_digest(numbers(name, HIDDEN, HIDDEN), "float32")
        )
        for name in sorted(names)
    )
    if kind == "python":
        return Identity("python", "python:synthetic:build", None, (), tensor_list_root(tensors), tensors)
    files = tuple(
        File(name, hashlib.sha256(name.encode()).hexdigest()) for name in ("config.json", "model.safetensors")
    )
    return Identity(files=files, root=root_of_digests(file.sha256 for file in files), tensors=tensors)


def points() -> tuple[Point, ...]:
    """The point table of level ``layers``."""
    table = [Point("model.embed_tokens", "tok", (), ("model.embed_tokens.weight",))]
    last = 0
    for block in range(BLOCKS):
        at = len(table)
        name = f"model.layers.{block}"
        own = f"{name}.self_attn.weight"
        table += [
            Point(f"{name}.k_cache", "kv", (Edge(last),), (own,)),
            Point(f"{name}.v_cache", "kv", (Edge(last),), (own,)),
            Point(
                f"{name}.self_attn",
                "tok",
                (Edge(last), Edge(at, "causal"), Edge(at + 1, "window", 2)),
                (own, f"{name}.norm.weight"),
            ),
            Point(f"{name}.mlp", "tok", (Edge(last), Edge(at + 2)), (f"{name}.mlp.weight",)),
            Point(f"{name}.residual", "tok", (Edge(last), Edge(at + 2), Edge(at + 3))),
        ]
        last = at + 4
    table.append(Point("model.norm", "tok", (Edge(last),), ("model.norm.weight",)))
    table.append(Point("logits", "tok", (Edge(last + 1),), ("lm_head.weight",)))
    return tuple(table)


@dataclass
class Run:
    """A synthetic run and what it takes to write it down.

    Attributes:
        record: as an engine would return it.
        model: as a loader would return it.
        settings: as resolved.
        private: the withheld inputs, or None.
        top2: whether the trace holds the two largest logits.
        texts: prompt texts.
    """

    record: RunRecord
    model: Identity
    settings: RunSettings
    private: PrivateInputs | None = None
    top2: bool = True
    texts: tuple[str | None, ...] = ("one two\nthree", None)
    environment: dict[str, str] = field(
        default_factory=lambda: {"cpu.model": "Synthetic 1", "device": "cpu", "python": "3.11"}
    )

    def write(self) -> tuple[bytes, bytes]:
        """Payload of the manifest and bytes of the trace."""
        trace = bytearray()
        reference = self.write_trace(trace)
        return self.payload(reference), bytes(trace)

    def write_trace(self, out: bytearray) -> TraceRef:
        """Append the trace to ``out``."""
        return write_trace(
            out.extend,
            self.record,
            describe_points(self.record),
            describe_sequences(self.record),
            top2=self.top2,
            values=self.settings.save_values,
        )

    def payload(
        self, reference: TraceRef, challenge: str | None = "00112233445566778899aabbccddeeff"
    ) -> bytes:
        """The manifest's payload for a trace."""
        occasion = Occasion(
            "000102030405060708090a0b0c0d0e0f",
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:06Z",
            challenge,
            self.environment,
        )
        return build_manifest(
            self.record,
            self.model,
            self.settings,
            reference,
            occasion,
            top2=self.top2,
            prompt_texts=self.texts,
            private=self.private,
        )


def make(
    *,
    private: bool = False,
    values: bool = False,
    temperature: float = 0.0,
    kind: str = "hf",
    changed: dict[tuple[int, str, int], float] | None = None,
) -> Run:
    """A run of two sequences.

    Args:
        private: withhold tokens and text, key the rows by ``SALT``.
        values: keep the values.
        temperature: of sampling; the tokens are the same all the same.
        kind: of the model.
        changed: (sequence, point name, position) -> number added to that row's first element.
    """
    table = points()
    salt = SALT if private else None
    sequences: list[SequenceRecord] = []
    kept: dict[str, npt.NDArray[np.float32]] = {}
    for n, (prompt, drawn) in enumerate(zip(PROMPTS, DRAWN, strict=True)):
        positions = len(prompt) + len(drawn) - 1
        sequence = SequenceRecord(n + 10, prompt, drawn, text="" if n else "six seven")
        for index, point in enumerate(table):
            first = len(prompt) - 1 if point.name == "logits" else 0
            count = positions - first
            shape = (HEADS, HIDDEN // HEADS) if point.domain == "kv" else (HIDDEN,)
            if point.name == "logits":
                shape = (VOCABULARY,)
            rows = numbers(f"{point.name} {n}", count, *shape).copy()
            if point.name == "logits":
                rows[np.arange(count), list(drawn)] = 2.0
            for (where, name, position), amount in (changed or {}).items():
                if where == n and name == point.name:
                    rows.reshape(count, -1)[position - first, 0] += np.float32(amount)
            lead = 2 if point.domain == "kv" else 1
            flat = rows.reshape(-1, *rows.shape[lead:])
            digests = row_digests(flat, "float32", salt=salt).reshape(*rows.shape[:lead], 32)
            sequence.rows[index] = PointRows(RowHeader("float32", rows.shape[lead:]), first, digests)
            if values:
                kept[f"s{n}/{point.name}"] = rows
            if point.name == "logits":
                sequence.top2 = largest_two(rows)
        sequences.append(sequence)
    record = RunRecord(
        points=table,
        sequences=sequences,
        scalars=(
            Scalar("aten.add.Tensor", "other", (1e-05).hex()),
            Scalar("aten.mul.Tensor", "other", (0.5).hex()),
        ),
        constants=(),
        buffers=(
            TensorDigest(
                "model.rotary_emb.inv_freq", "float32", (2,), tensor_digest(numbers("f", 2), "float32")
            ),
        ),
        operators=(
            OperatorCount("aten.add.Tensor", "exact", "", 12),
            OperatorCount("aten.linear.default", "specified", "gemm", 9),
        ),
        modules=(ModuleCount("Linear", 9, 9),),
        attention="eager",
        values=kept,
        schedule={"decode_steps": 1, "prefills": 1},
    )
    decoding = Decoding(max_new_tokens=2, temperature=temperature, seed=2**64 - 1, stop_token_ids=(0,))
    run = Run(record, identity(kind), RunSettings(decoding, save_values=values))
    if private:
        withheld = tuple(
            PrivateSequence(s.id, s.prompt, s.generated, text, s.text)
            for s, text in zip(sequences, run.texts, strict=True)
        )
        run = replace(run, private=PrivateInputs(SALT, withheld), top2=False)
    return run


def largest_two(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    """uint32 [rows, 2, 2]: (token id, fp32 bits) of the two largest, ties to the lowest id."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :2]
    bits = np.take_along_axis(logits, order, axis=1).view(np.uint32)
    return np.stack([order.astype(np.uint32), bits], axis=2)


def folder() -> Path:
    """Where this file lies."""
    return Path(__file__).resolve().parent
