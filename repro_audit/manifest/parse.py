"""Payload bytes -> :class:`Manifest`: bounded, strict, and free of contradictions.

The reader accepts exactly what ``schemas/manifest.schema.json`` describes, in canonical form, and then
requires that the parts agree with one another (:mod:`repro_audit.manifest.consistency`). It opens no file
and imports nothing that a manifest names.
"""

from __future__ import annotations

import hashlib
import re

from repro_audit.errors import InconclusiveError
from repro_audit.manifest.canonical import loads_canonical
from repro_audit.manifest.consistency import require_consistent
from repro_audit.manifest.parse_model import MAX_DIM, MAX_RANK, MAX_TENSORS, read_model
from repro_audit.manifest.reader import MAX_NAME, Node
from repro_audit.manifest.types import (
    PREDICATE_TYPE,
    ROOT_SUBJECT,
    STATEMENT_TYPE,
    ChatClaim,
    Manifest,
    PointSpec,
    PrivacyClaim,
    SequenceClaim,
    Span,
    Subject,
    TraceRef,
)
from repro_audit.settings import ACTIVATIONS, LEVELS, Decoding, RunSettings
from repro_audit.trace.digest import ITEM_SIZES
from repro_audit.trace.record import (
    DOMAINS,
    CompiledKernel,
    Edge,
    ModuleCount,
    OperatorCount,
    Point,
    RowHeader,
)

MAX_POINTS = 65_536
MAX_SEQUENCES = 65_536
MAX_TOKENS = 2**21
MAX_POSITIONS = 2**31 - 1
EDGE_KINDS = ("row", "causal", "window", "all")
CLASSES = ("exact", "specified", "structural")

_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_OTHER_VERSION = re.compile(r"urn:repro-audit:manifest:v[1-9][0-9]{0,3}")


def parse_manifest(payload: bytes) -> Manifest:
    """Read a manifest payload: the very bytes that were verified.

    Raises:
        UntrustedError: malformed, out of bounds, not canonical, or contradicting itself.
        InconclusiveError: written in another version of the format.
    """
    statement = Node(loads_canonical(payload, "the manifest"), "manifest")
    top = statement.object(("_type", "predicate", "predicateType", "subject"))
    top["_type"].choice((STATEMENT_TYPE,))
    kind = top["predicateType"].name()
    if kind != PREDICATE_TYPE:
        if _OTHER_VERSION.fullmatch(kind):
            raise InconclusiveError(
                f"the manifest is written in format {kind}, this tool reads {PREDICATE_TYPE}",
                hint="install the version of repro-audit that wrote it",
            )
        raise top["predicateType"].fail(f"is not {PREDICATE_TYPE}")
    root, files = _subjects(top["subject"])
    manifest = _predicate(top["predicate"], root, files, hashlib.sha256(payload).hexdigest())
    require_consistent(manifest)
    return manifest


def _subjects(node: Node) -> tuple[str, tuple[Subject, ...]]:
    subjects: list[Subject] = []
    for index, item in enumerate(node.items(MAX_TENSORS, least=1)):
        parts = item.object(("digest", "name"))
        digest = parts["digest"].object(("sha256",))["sha256"].hex()
        if index == 0:
            subjects.append(Subject(parts["name"].choice((ROOT_SUBJECT,)), digest))
        else:
            subjects.append(Subject(parts["name"].file_name(), digest))
    return subjects[0].sha256, tuple(subjects[1:])


def _predicate(node: Node, root: str, files: tuple[Subject, ...], payload_sha256: str) -> Manifest:
    p = node.object(
        (
            "coverage",
            "decoding",
            "environment",
            "finishedAt",
            "level",
            "model",
            "points",
            "profile",
            "root",
            "runId",
            "schedule",
            "sequences",
            "startedAt",
            "tool",
            "trace",
        ),
        ("challenge", "chat", "compiled", "privacy"),
    )
    profile = p["profile"].object(("activations", "castWeights", "name", "version"))
    schedule = p["schedule"].object(("batchSize", "device", "measured", "prefillChunk"))
    trace = p["trace"].object(("sha256", "size", "top2", "values"))
    tool = p["tool"].object(("name", "version"))
    tool["name"].choice(("repro-audit",))
    settings = RunSettings(
        decoding=_decoding(p["decoding"]),
        profile=profile["name"].name(64),
        activations=profile["activations"].choice(ACTIVATIONS),
        level=p["level"].choice(LEVELS),
        device=schedule["device"].name(64),
        cast_weights=profile["castWeights"].boolean(),
        batch_size=schedule["batchSize"].integer(1),
        prefill_chunk=schedule["prefillChunk"].integer(0),
        save_values=trace["values"].boolean(),
    )
    points = tuple(_point(item) for item in p["points"].items(MAX_POINTS, least=1))
    private = "privacy" in p
    coverage = p["coverage"].object(("attention", "cacheFaults", "modules", "operators"))
    return Manifest(
        payload_sha256=payload_sha256,
        run_id=p["runId"].hex(16, 16),
        started_at=_time(p["startedAt"]),
        finished_at=_time(p["finishedAt"]),
        challenge=p["challenge"].hex(8, 64) if "challenge" in p else None,
        tool_version=tool["version"].name(64),
        model=read_model(p["model"], root, files),
        settings=settings,
        profile_version=profile["version"].integer(1),
        points=points,
        sequences=tuple(
            _sequence(item, len(points), private) for item in p["sequences"].items(MAX_SEQUENCES, least=1)
        ),
        root=p["root"].hex(),
        operators=tuple(_operator(item) for item in coverage["operators"].items(4096)),
        modules=tuple(_module(item) for item in coverage["modules"].items(4096)),
        attention=coverage["attention"].name(64),
        cache_faults=tuple(item.name(1024) for item in coverage["cacheFaults"].items(4096)),
        schedule=tuple(
            (parts["name"].name(64), parts["value"].integer(0, 2**53 - 1))
            for parts in (item.object(("name", "value")) for item in schedule["measured"].items(256))
        ),
        environment=tuple(
            (parts["name"].name(128), parts["value"].name(4096))
            for parts in (item.object(("name", "value")) for item in p["environment"].items(1024))
        ),
        compiled=tuple(_compiled(item) for item in p["compiled"].items(4096, least=1))
        if "compiled" in p
        else (),
        trace=TraceRef(trace["size"].wide(2**63 - 1), trace["sha256"].hex()),
        has_top2=trace["top2"].boolean(),
        has_values=settings.save_values,
        privacy=_privacy(p["privacy"]) if private else None,
        chat=_chat(p["chat"]) if "chat" in p else None,
    )


def _compiled(node: Node) -> CompiledKernel:
    parts = node.object(("name", "sha256", "specialisation", "target"))
    return CompiledKernel(
        parts["name"].name(256),
        parts["specialisation"].name(4096),
        parts["target"].name(64),
        parts["sha256"].hex(),
    )


def _time(node: Node) -> str:
    value = node.name(20)
    if _TIME.fullmatch(value) is None:
        raise node.fail("is not a UTC time like 2026-01-31T12:00:00Z")
    return value


def _decoding(node: Node) -> Decoding:
    d = node.object(("maxNewTokens", "seed", "source", "stopTokenIds", "temperature", "topK", "topP"))
    temperature, top_p = d["temperature"].finite(), d["topP"].finite()
    if temperature < 0:
        raise d["temperature"].fail("is negative")
    if not 0 < top_p <= 1:
        raise d["topP"].fail("is not above 0 and at most 1")
    return Decoding(
        max_new_tokens=d["maxNewTokens"].integer(0),
        temperature=temperature,
        top_k=d["topK"].integer(0),
        top_p=top_p,
        seed=d["seed"].wide(),
        stop_token_ids=d["stopTokenIds"].integers(4096),
        source=d["source"].choice(("arguments", "generation_config")),
    )


def _point(node: Node) -> PointSpec:
    p = node.object(("domain", "dtype", "inputs", "name", "shape", "weights"), ("heads",))
    domain = p["domain"].choice(DOMAINS)
    if (domain == "kv") != ("heads" in p):
        raise node.fail("must give heads in domain kv, and only there")
    point = Point(
        name=p["name"].name(MAX_NAME),
        domain=domain,
        inputs=tuple(_edge(item) for item in p["inputs"].items(MAX_POINTS)),
        weights=tuple(item.name() for item in p["weights"].items(MAX_TENSORS)),
    )
    header = RowHeader(p["dtype"].choice(tuple(ITEM_SIZES)), p["shape"].integers(MAX_RANK, most=MAX_DIM))
    return PointSpec(point, header, p["heads"].integer(1, 65_536) if "heads" in p else 0)


def _edge(node: Node) -> Edge:
    e = node.object(("kind", "point"), ("window",))
    kind = e["kind"].choice(EDGE_KINDS)
    if (kind == "window") != ("window" in e):
        raise node.fail("must give window for kind window, and only there")
    return Edge(e["point"].integer(0, MAX_POINTS), kind, e["window"].integer(1) if "window" in e else 0)


def _sequence(node: Node, points: int, private: bool) -> SequenceClaim:
    open_keys = () if private else ("generated", "prompt")
    open_optional = () if private else ("promptText", "text")
    s = node.object(
        (
            "counts",
            "digests",
            "firsts",
            "generatedCount",
            "id",
            "positions",
            "promptCount",
            "root",
            *open_keys,
        ),
        open_optional,
    )
    digests = s["digests"].array(points, least=points)
    firsts = s["firsts"].integers(points, most=MAX_POSITIONS)
    counts = s["counts"].integers(points, least=1, most=MAX_POSITIONS)
    if len(firsts) != points or len(counts) != points:
        raise node.fail(f"must give first and count for each of the {points} points")
    return SequenceClaim(
        id=s["id"].wide(),
        positions=s["positions"].integer(1, MAX_POSITIONS),
        prompt_count=s["promptCount"].integer(0, MAX_TOKENS),
        generated_count=s["generatedCount"].integer(0, MAX_TOKENS),
        prompt=None if private else s["prompt"].integers(MAX_TOKENS),
        generated=None if private else s["generated"].integers(MAX_TOKENS),
        prompt_text=s["promptText"].text() if "promptText" in s else None,
        text=s["text"].text() if "text" in s else None,
        root=s["root"].hex(),
        digests=tuple(Node(item, f"{s['digests'].path}[{i}]").hex() for i, item in enumerate(digests)),
        spans=tuple(Span(first, count) for first, count in zip(firsts, counts, strict=True)),
    )


def _operator(node: Node) -> OperatorCount:
    o = node.object(("calls", "classed", "kernel", "operator"))
    return OperatorCount(
        operator=o["operator"].name(),
        classed=o["classed"].choice(CLASSES),
        kernel=o["kernel"].text(MAX_NAME),
        calls=o["calls"].integer(0, 2**53 - 1),
    )


def _module(node: Node) -> ModuleCount:
    m = node.object(("covered", "kind", "total"))
    return ModuleCount(m["kind"].name(), m["total"].integer(), m["covered"].integer())


def _privacy(node: Node) -> PrivacyClaim:
    p = node.object(("commitment", "saltDigest"))
    return PrivacyClaim(p["commitment"].hex(), p["saltDigest"].hex())


def _chat(node: Node) -> ChatClaim:
    c = node.object(("rendered",), ("date",))
    rendered = tuple(item.text() for item in c["rendered"].items(MAX_SEQUENCES))
    return ChatClaim(rendered, c["date"].name(128) if "date" in c else None)
