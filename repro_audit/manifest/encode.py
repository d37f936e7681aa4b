"""Parts of a manifest's statement as JSON values, and what is asked of a model to be described."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from repro_audit.manifest.types import ROOT_SUBJECT, PointSpec
from repro_audit.settings import Decoding
from repro_audit.trace.record import CompiledKernel, RunRecord, TensorDigest


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


def subjects_json(model: ModelIdentity) -> list[dict[str, Any]]:
    """The model's root, then its files."""
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


def model_json(record: RunRecord, model: ModelIdentity) -> dict[str, Any]:
    """What the model is: digests, names, scalars."""
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


def decoding_json(decoding: Decoding) -> dict[str, Any]:
    """Decoding settings; doubles in hexadecimal, the seed as text."""
    return {
        "maxNewTokens": decoding.max_new_tokens,
        "seed": str(decoding.seed),
        "source": decoding.source,
        "stopTokenIds": list(decoding.stop_token_ids),
        "temperature": float(decoding.temperature).hex(),
        "topK": decoding.top_k,
        "topP": float(decoding.top_p).hex(),
    }


def coverage_json(record: RunRecord) -> dict[str, Any]:
    """Operators and modules that ran, and how they were classed."""
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


def environment_json(environment: Mapping[str, str]) -> list[dict[str, str]]:
    """Claims as printable text: what a driver reports about itself may hold anything."""
    listed = []
    for name, value in sorted(environment.items()):
        printable = "".join(c if c.isprintable() else " " for c in str(value)).strip()
        if printable:
            listed.append({"name": name, "value": printable[:4096]})
    return listed


def compiled_json(kernels: Sequence[CompiledKernel]) -> list[dict[str, str]]:
    """The machine code that ran."""
    return [
        {
            "name": kernel.name,
            "sha256": kernel.sha256,
            "specialisation": kernel.specialisation,
            "target": kernel.target,
        }
        for kernel in sorted(kernels)
    ]


def point_json(spec: PointSpec) -> dict[str, Any]:
    """One row of the point table."""
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
