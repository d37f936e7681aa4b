"""The model's part of a manifest."""

from __future__ import annotations

from repro_audit.manifest.reader import Node
from repro_audit.manifest.types import MODEL_KINDS, ROOT_METHODS, ModelClaim, Subject
from repro_audit.trace.digest import ITEM_SIZES
from repro_audit.trace.record import Scalar, TensorDigest

MAX_TENSORS = 262_144
MAX_RANK = 16
MAX_DIM = 2**40


def read_model(node: Node, root: str, files: tuple[Subject, ...]) -> ModelClaim:
    """The predicate's ``model`` with the root and files of the statement's subjects.

    Raises:
        UntrustedError: malformed or out of bounds.
    """
    m = node.object(
        (
            "buffers",
            "castKeys",
            "configDigest",
            "constants",
            "ignoredKeys",
            "kind",
            "name",
            "rootMethod",
            "scalars",
            "tensors",
            "tied",
        ),
        ("package", "revision", "tokenizerDigest"),
    )
    return ModelClaim(
        kind=m["kind"].choice(MODEL_KINDS),
        name=m["name"].name(),
        revision=m["revision"].name(128) if "revision" in m else None,
        root=root,
        root_method=m["rootMethod"].choice(ROOT_METHODS),
        files=files,
        config_digest=m["configDigest"].hex(),
        tokenizer_digest=m["tokenizerDigest"].hex() if "tokenizerDigest" in m else None,
        tensors=tuple(_tensor(item) for item in m["tensors"].items(MAX_TENSORS)),
        buffers=tuple(_tensor(item) for item in m["buffers"].items(MAX_TENSORS)),
        constants=tuple(_tensor(item) for item in m["constants"].items(MAX_TENSORS)),
        scalars=tuple(_scalar(item) for item in m["scalars"].items(MAX_TENSORS)),
        tied=tuple(
            tuple(name.name() for name in group.items(4096, least=2))
            for group in m["tied"].items(MAX_TENSORS)
        ),
        ignored_keys=tuple(item.name() for item in m["ignoredKeys"].items(MAX_TENSORS)),
        cast_keys=tuple(item.name() for item in m["castKeys"].items(MAX_TENSORS)),
        package=m["package"].name() if "package" in m else None,
    )


def _tensor(node: Node) -> TensorDigest:
    t = node.object(("digest", "dtype", "name", "shape"))
    return TensorDigest(
        name=t["name"].name(),
        dtype=t["dtype"].choice(tuple(ITEM_SIZES)),
        shape=t["shape"].integers(MAX_RANK, most=MAX_DIM),
        digest=t["digest"].hex(),
    )


def _scalar(node: Node) -> Scalar:
    s = node.object(("argument", "operator", "value"))
    s["value"].real()
    return Scalar(s["operator"].name(), s["argument"].name(), s["value"].text(32))
