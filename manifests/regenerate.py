"""Write the conformance vectors and the test keys: ``python manifests/regenerate.py``.

The same sources give the same bytes. With ``--check`` nothing is written, and the exit code is 1 if a file
differs.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cryptography.hazmat.primitives import serialization

from manifests import synthetic
from repro_audit.manifest.canonical import dumps
from repro_audit.manifest.dsse import pae, seal
from repro_audit.manifest.encode import compiled_json
from repro_audit.manifest.keys import public_pem
from repro_audit.trace.container import TensorSpec, write_container
from repro_audit.trace.digest import run_root, sequence_root
from repro_audit.trace.tracefile import METADATA

Json = dict[str, Any]

RUNNER = synthetic.test_key("runner")
STRANGER = synthetic.test_key("stranger")
COMPILED = compiled_json(synthetic.KERNELS[:1])[0]


@dataclass(frozen=True)
class Vector:
    """One vector.

    Attributes:
        name: class and file name, as ``invalid/float``.
        envelope: bytes of the manifest file.
        trace: bytes of the trace file, or None for none.
        verdict: what ``check`` must conclude with the runner's key.
        code: code of the first finding, or nothing.
        says: words that the finding must contain.
        why: what the vector shows.
    """

    name: str
    envelope: bytes
    trace: bytes | None
    verdict: str
    code: str
    says: str
    why: str


class Maker:
    """Collects vectors; most are the valid recording with one thing wrong, signed all the same."""

    def __init__(self) -> None:
        self.payload, self.trace = synthetic.make().write()
        self.vectors: list[Vector] = []

    def valid(self, name: str, envelope: bytes, trace: bytes | None, why: str, code: str = "") -> None:
        """A vector that must be accepted."""
        self.vectors.append(Vector(f"valid/{name}", envelope, trace, "VALID", code, "", why))

    def raw(self, name: str, payload: bytes, says: str, why: str) -> None:
        """A payload that is no manifest, signed by the runner."""
        self.vectors.append(
            Vector(f"invalid/{name}", seal(payload, RUNNER), None, "UNTRUSTED", "RA201", says, why)
        )

    def envelope(self, name: str, data: bytes, says: str, why: str) -> None:
        """A file that is no envelope."""
        self.vectors.append(Vector(f"invalid/{name}", data, None, "UNTRUSTED", "RA201", says, why))

    def edited(self, name: str, edit: Callable[[Json], None], says: str, why: str) -> None:
        """The valid statement after ``edit``, canonical and signed by the runner."""
        self.raw(name, self.edit(edit), says, why)

    def edit(self, edit: Callable[[Json], None]) -> bytes:
        """Payload of the valid statement after ``edit``."""
        statement = copy.deepcopy(json.loads(self.payload))
        edit(statement["predicate"])
        return dumps(statement)

    def untrusted(self, name: str, envelope: bytes, code: str, says: str, why: str) -> None:
        """A well-formed manifest whose signature is not to be trusted."""
        self.vectors.append(Vector(f"untrusted/{name}", envelope, self.trace, "UNTRUSTED", code, says, why))

    def traced(self, name: str, trace: bytes, says: str, why: str, *, bound: bool = True) -> None:
        """A trace that is not what the manifest describes; ``bound``: though size and hash are."""
        payload = self.payload
        if bound:
            payload = self.edit(lambda p: _bind(p, trace))
        self.vectors.append(
            Vector(f"invalid/{name}", seal(payload, RUNNER), trace, "UNTRUSTED", "RA202", says, why)
        )

    def inconclusive(self, name: str, payload: bytes, says: str, why: str) -> None:
        """Sound and signed, and beyond what this version can decide."""
        self.vectors.append(
            Vector(f"inconclusive/{name}", seal(payload, RUNNER), None, "INCONCLUSIVE", "RA000", says, why)
        )


def _bind(predicate: Json, trace: bytes) -> None:
    predicate["trace"]["size"] = str(len(trace))
    predicate["trace"]["sha256"] = hashlib.sha256(trace).hexdigest()


def _reroot(predicate: Json) -> None:
    """Make the Merkle roots follow the point digests."""
    roots = []
    for sequence in predicate["sequences"]:
        root = sequence_root([bytes.fromhex(digest) for digest in sequence["digests"]])
        sequence["root"] = root.hex()
        roots.append(root)
    predicate["root"] = run_root(roots).hex()


def _drop_points(predicate: Json, part: str) -> None:
    """Leave out every point whose name contains ``part``, and hide the traces of it."""
    table = predicate["points"]
    kept = [i for i, point in enumerate(table) if part not in point["name"]]
    places = {old: new for new, old in enumerate(kept)}
    points = [copy.deepcopy(table[i]) for i in kept]
    for point in points:
        point["inputs"] = [
            {**edge, "point": places[edge["point"]]} for edge in point["inputs"] if edge["point"] in places
        ]
    predicate["points"] = points
    for sequence in predicate["sequences"]:
        for key in ("digests", "firsts", "counts"):
            sequence[key] = [sequence[key][i] for i in kept]
    _reroot(predicate)


def _add_point(predicate: Json, name: str) -> None:
    point = copy.deepcopy(predicate["points"][4])
    point["name"] = name
    predicate["points"].insert(5, point)
    for later in predicate["points"][6:]:
        for edge in later["inputs"]:
            edge["point"] += edge["point"] >= 5
    for sequence in predicate["sequences"]:
        for key in ("digests", "firsts", "counts"):
            sequence[key].insert(5, sequence[key][4])
    _reroot(predicate)


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _retrace(trace: bytes, edit: Callable[[Json], None]) -> bytes:
    """The trace with an edited header, padded as a header must be."""
    (length,) = struct.unpack("<Q", trace[:8])
    header = json.loads(trace[8 : 8 + length])
    edit(header)
    text = dumps(header)
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + trace[8 + length :]


def accepted(make: Maker) -> None:
    """Vectors that must be accepted."""
    make.valid("plain", seal(make.payload, RUNNER), make.trace, "two greedy sequences, signed")
    make.valid(
        "no-trace", seal(make.payload, RUNNER), None, "without its trace a manifest still checks", "RA203"
    )
    payload, trace = synthetic.make(private=True).write()
    make.valid("private", seal(payload, RUNNER), trace, "tokens withheld, rows keyed by a salt")
    payload, trace = synthetic.make(values=True).write()
    make.valid("values", seal(payload, RUNNER), trace, "values saved beside their rows")
    payload, trace = synthetic.make(temperature=0.5).write()
    make.valid("sampled", seal(payload, RUNNER), trace, "tokens drawn at a temperature")
    payload, trace = synthetic.make(kind="python").write()
    make.valid(
        "python", seal(payload, RUNNER), trace, "a model without files: its root covers the tensor list"
    )
    run = synthetic.make()
    run.record.kernels = synthetic.KERNELS
    payload, trace = run.write()
    make.valid("compiled", seal(payload, RUNNER), trace, "the machine code of a GPU listed")
    both = json.loads(seal(make.payload, RUNNER))
    both["signatures"] += json.loads(seal(make.payload, STRANGER))["signatures"]
    make.valid("countersigned", dumps(both), make.trace, "a further signature by an unknown key does no harm")
    bare = json.loads(seal(make.payload, RUNNER))
    bare["signatures"][0]["keyid"] = ""
    make.valid(
        "empty-keyid", dumps(bare), make.trace, "a signature without a key id: every trusted key is tried"
    )


def distrusted(make: Maker) -> None:
    """Vectors whose signature is not to be trusted."""
    good = json.loads(seal(make.payload, RUNNER))
    make.untrusted("unsigned", seal(make.payload, None), "RA101", "not signed", "no signature at all")
    make.untrusted(
        "other-key", seal(make.payload, STRANGER), "RA101", "no trusted key", "signed by a stranger"
    )

    def signature(data: bytes, keyid: str | None = None) -> bytes:
        envelope = copy.deepcopy(good)
        envelope["signatures"][0]["sig"] = base64.b64encode(data).decode()
        if keyid is not None:
            envelope["signatures"][0]["keyid"] = keyid
        return dumps(envelope)

    real = base64.b64decode(good["signatures"][0]["sig"])
    make.untrusted(
        "flipped-signature", signature(_flip(real, 7)), "RA102", "invalid signature", "one bit flipped"
    )
    make.untrusted("short-signature", signature(real[:-1]), "RA102", "invalid signature", "one byte missing")
    make.untrusted(
        "payload-signed-raw",
        signature(RUNNER.private.sign(make.payload)),
        "RA102",
        "invalid signature",
        "signed without the pre-authentication encoding",
    )
    make.untrusted(
        "other-payload-type",
        signature(RUNNER.private.sign(pae(make.payload, "text/plain"))),
        "RA102",
        "invalid signature",
        "signed as another type of payload",
    )
    make.untrusted(
        "stolen-keyid",
        signature(STRANGER.private.sign(pae(make.payload))),
        "RA102",
        "invalid signature",
        "a stranger's signature under the runner's key id",
    )
    make.untrusted(
        "other-keyid",
        signature(real, STRANGER.public.keyid),
        "RA102",
        "another key's id",
        "the runner's signature under a stranger's key id",
    )
    swapped = copy.deepcopy(good)
    changed = make.edit(lambda p: p["sequences"][0].update(text="six eight"))
    swapped["payload"] = base64.b64encode(changed).decode()
    make.untrusted(
        "payload-swapped", dumps(swapped), "RA102", "invalid signature", "payload replaced after signing"
    )


def malformed(make: Maker) -> None:
    """Files that are no envelope, and payloads that are no statement."""
    sealed = seal(make.payload, RUNNER)
    good = json.loads(sealed)
    make.envelope("empty", b"", "not JSON", "an empty file")
    make.envelope("truncated", sealed[: len(sealed) // 2], "not JSON", "half of the file")
    make.envelope("trailing-bytes", sealed + b"{}", "not JSON", "something after the envelope")
    make.envelope("envelope-not-utf8", sealed[:-1] + b"\xff", "not UTF-8", "a byte that is not UTF-8")
    make.envelope("envelope-array", b"[" + sealed + b"]", "not an object", "an array instead of an envelope")
    make.envelope(
        "envelope-nesting", b"[" * 100_000, "nested deeper", "nesting to exhaust a recursive parser"
    )
    make.envelope("envelope-extra-key", dumps({**good, "note": ""}), "unknown key", "a key beyond DSSE")
    make.envelope(
        "envelope-duplicate-key",
        sealed[:-1] + b',"payload":""}',
        "repeats the key",
        "two payloads: which one was verified?",
    )
    make.envelope(
        "payload-type",
        dumps({**good, "payloadType": "application/json"}),
        "payloadType",
        "another payload type",
    )
    make.envelope(
        "payload-urlsafe",
        dumps({**good, "payload": base64.urlsafe_b64encode(b"\xff\xfe" + make.payload).decode()}),
        "not base64",
        "base64 in another alphabet",
    )
    make.envelope(
        "signature-stray-bits",
        dumps({**good, "signatures": [{"keyid": "", "sig": "AB=="}]}),
        "canonical spelling",
        "base64 with bits that decode to nothing",
    )
    make.envelope(
        "too-many-signatures",
        dumps({**good, "signatures": good["signatures"] * 17}),
        "17 items",
        "beyond a bound",
    )
    text = make.payload
    make.raw("payload-empty", b"", "not JSON", "an empty payload")
    make.raw("payload-truncated", text[:-1], "not JSON", "a payload without its last byte")
    make.raw("payload-trailing", text + b"\n", "canonical form", "a line end after the payload")
    make.raw(
        "payload-spaced", text.replace(b'","', b'", "', 1), "canonical form", "a space: another spelling"
    )
    make.raw("payload-key-order", _unsorted(text), "canonical form", "keys out of order")
    escaped = text.replace(b"six", b"\\u0073ix", 1)
    make.raw("payload-escape", escaped, "canonical form", "an escape where none is needed")
    make.raw("duplicate-key", text[:-1] + b',"subject":[]}', "repeats the key", "two lists of subjects")
    make.raw("float", text.replace(b'"topK":0', b'"topK":0.0'), "holds the number 0.0", "a float")
    make.raw("nan", text.replace(b'"topK":0', b'"topK":NaN'), "holds the number NaN", "NaN")
    make.raw("infinity", text.replace(b'"topK":0', b'"topK":-Infinity'), "holds the number", "an infinity")
    make.raw("big-integer", text.replace(b'"topK":0', b'"topK":9007199254740993'), "beyond", "2**53 + 1")
    make.raw("huge-integer", text.replace(b'"topK":0', b'"topK":' + b"9" * 5000), "beyond", "5000 digits")
    make.raw("negative-zero", text.replace(b'"topK":0', b'"topK":-0'), "-0", "a negative zero")
    make.raw(
        "deep-nesting", text.replace(b'"topK":0', b'"topK":' + b"[" * 64 + b"]" * 64), "nested", "64 levels"
    )
    make.raw("invalid-utf8", text.replace(b"six", b"s\xc0\xafx", 1), "not UTF-8", "an overlong encoding")
    make.raw("lone-surrogate", text.replace(b"six", b"\\ud800", 1), "Unicode", "half of a surrogate pair")
    make.raw(
        "key-not-ascii", text.replace(b'"topK"', '"topК"'.encode()), "not ASCII", "a Cyrillic letter in a key"
    )
    make.raw(
        "statement-type", text.replace(b"Statement/v1", b"Statement/v0"), "_type", "another statement type"
    )
    make.raw(
        "predicate-type",
        text.replace(b'"urn:repro-audit:manifest:v1"', b'"https://slsa.dev/provenance/v1"'),
        "predicateType",
        "another predicate",
    )


def _unsorted(text: bytes) -> bytes:
    value = json.loads(text)
    return json.dumps(dict(reversed(value.items())), separators=(",", ":"), ensure_ascii=False).encode()


def out_of_bounds(make: Maker) -> None:
    """Statements that do not conform to the schema."""
    make.edited("missing-key", lambda p: p.pop("coverage"), "lacks 'coverage'", "no coverage")
    make.edited("unknown-key", lambda p: p.update(note="x"), "unknown key", "a key that nobody reads")
    make.edited(
        "oversized-count",
        lambda p: p["decoding"].update(stopTokenIds=list(range(4097))),
        "4097 items",
        "more items than allowed",
    )
    make.edited(
        "count-is-text", lambda p: p["decoding"].update(topK="0"), "not an integer", "a number as text"
    )
    make.edited(
        "count-is-bool", lambda p: p["decoding"].update(topK=False), "not an integer", "false is not 0"
    )
    make.edited(
        "seed-is-number", lambda p: p["decoding"].update(seed=1), "decimal string", "64 bits as a number"
    )
    make.edited(
        "seed-too-large", lambda p: p["decoding"].update(seed=str(2**64)), "decimal string", "65 bits"
    )
    make.edited(
        "float-spelling",
        lambda p: p["decoding"].update(temperature="0x1p-1"),
        "float.hex",
        "another spelling of 0.5",
    )
    make.edited(
        "negative-temperature",
        lambda p: p["decoding"].update(temperature=(-1.0).hex()),
        "negative",
        "a temperature below 0",
    )
    make.edited(
        "upper-case-hex", lambda p: p.update(root=p["root"].upper()), "hexadecimal", "hex in capitals"
    )
    make.edited("short-digest", lambda p: p.update(root=p["root"][:-2]), "hexadecimal", "31 bytes")
    make.edited("bad-time", lambda p: p.update(startedAt="yesterday"), "UTC time", "no time at all")
    make.edited("unknown-level", lambda p: p.update(level="all"), "level", "a level that does not exist")
    make.edited(
        "unknown-domain", lambda p: p["points"][0].update(domain="all"), "domain", "rows of no known kind"
    )
    make.edited("unknown-dtype", lambda p: p["points"][0].update(dtype="float31"), "dtype", "no such type")
    make.edited(
        "control-characters",
        lambda p: p["points"][0].update(name="model\x1b[2Jembed"),
        "printable",
        "a name that would clear the terminal",
    )
    make.edited(
        "long-name", lambda p: p["points"][0].update(name="m" * 513), "at most 512", "a name too long"
    )
    make.edited(
        "compiled-digest",
        lambda p: p.update(compiled=[{**COMPILED, "sha256": "ab" * 31}]),
        "hexadecimal",
        "a digest of 31 bytes",
    )
    make.edited("zero-sequences", lambda p: p.update(sequences=[]), "0 items", "nothing was run")
    make.edited("zero-points", lambda p: p.update(points=[]), "0 items", "nothing was recorded")

    def subject(name: str) -> bytes:
        statement = json.loads(make.payload)
        statement["subject"][1]["name"] = name
        return dumps(statement)

    make.raw("path-traversal", subject("../../etc/passwd"), "file name", "a file outside the model's folder")
    make.raw("absolute-path", subject("/etc/passwd"), "file name", "an absolute path")
    make.raw("windows-path", subject("C:\\config.json"), "file name", "an absolute path elsewhere")
    make.raw("url-name", subject("https://example.org/config.json"), "file name", "a file somewhere else")


def contradictory(make: Maker) -> None:
    """Statements whose parts do not agree."""

    def sequence(**changes: Any) -> Callable[[Json], None]:
        return lambda p: p["sequences"][0].update(**changes)

    def text(at: int, value: int, key: str) -> Callable[[Json], None]:
        return lambda p: p["sequences"][0][key].__setitem__(at, value)

    make.edited("run-root", lambda p: p.update(root="00" * 32), "run root", "another run root")
    make.edited("sequence-root", sequence(root="00" * 32), "root of sequence 0", "another sequence root")
    make.edited(
        "swapped-sequences", lambda p: p["sequences"].reverse(), "run root", "the sequences in another order"
    )
    make.edited(
        "model-root", lambda p: p["model"].update(rootMethod="tensor-list"), "root of kind", "wrong root"
    )
    make.edited(
        "duplicate-point", lambda p: p["points"][1].update(name=p["points"][2]["name"]), "2 times", "twice"
    )
    make.edited(
        "duplicate-id", sequence(id="11"), "2 times", "two sequences with one id draw the same numbers"
    )
    make.edited("forward-edge", lambda p: p["points"][0].update(inputs=[{"kind": "row", "point": 3}]),
                "not before it", "a point that consumes a later one")  # fmt: skip
    make.edited(
        "unknown-weight", lambda p: p["points"][0].update(weights=["nowhere"]), "does not have", "no tensor"
    )
    make.edited(
        "missing-point", lambda p: _drop_points(p, "layers.1.mlp"), "does not", "the guilty layer left out"
    )
    make.edited("missing-block", lambda p: _drop_points(p, "layers.1."), "no point", "a whole block left out")
    make.edited(
        "extra-point", lambda p: _add_point(p, "model.layers.0.spare"), "does not", "a point of one block"
    )
    make.edited(
        "fewer-digests",
        lambda p: p["sequences"][0]["digests"].pop(),
        "12 items",
        "one digest fewer than points",
    )
    make.edited("position-gap", text(0, 1, "firsts"), "required are", "the first token is not recorded")
    make.edited("position-short", text(3, 3, "counts"), "required are", "the last token is not recorded")
    make.edited("position-count", sequence(positions=5), "positions", "more positions than tokens fed")
    make.edited("prompt-count", sequence(promptCount=4), "prompt tokens", "another length of the prompt")
    make.edited("after-stop", sequence(generated=[0, 7]), "after a stop token", "a token after the end")
    make.edited(
        "level-logits", lambda p: p.update(level="logits"), "one point", "more points than the level has"
    )
    make.edited(
        "covered", lambda p: p["coverage"]["modules"][0].update(covered=10), "10 of 9", "over-covered"
    )
    make.edited(
        "time-travel", lambda p: p.update(startedAt="2026-01-02T03:04:07Z"), "before it", "ends before"
    )
    make.edited(
        "compiled-twice",
        lambda p: p.update(compiled=[COMPILED, COMPILED]),
        "2 times",
        "one kernel listed twice",
    )
    make.edited("cast-keys", lambda p: p["model"].update(castKeys=["x"]), "cast", "a cast the profile denies")

    def unmask(p: Json) -> None:
        p["privacy"] = {"commitment": "00" * 32, "saltDigest": "11" * 32}
        for entry in p["sequences"]:
            for key in ("prompt", "generated", "promptText", "text"):
                entry.pop(key, None)

    make.edited("private-top2", unmask, "private", "withheld tokens that the trace would show")
    make.edited(
        "private-text",
        lambda p: p.update(privacy={"commitment": "00" * 32, "saltDigest": "11" * 32}),
        "unknown key",
        "private inputs beside their text",
    )


def traces(make: Maker) -> None:
    """Traces that are not what their manifest describes."""
    trace = make.trace
    make.traced("trace-flipped", _flip(trace, len(trace) // 2), "SHA-256", "one bit of a row", bound=False)
    make.traced("trace-truncated", trace[:-1], "bytes", "one byte missing", bound=False)
    make.traced("trace-longer", trace + b"\0", "bytes", "one byte more", bound=False)
    make.traced(
        "trace-row", _flip(trace, len(trace) // 2), "point digest", "a row that its point digest denies"
    )
    make.traced("trace-empty", b"", "too few", "a file without a header")
    make.traced(
        "trace-header-length", struct.pack("<Q", 2**62) + trace[8:], "does not fit", "a header of 2**62 bytes"
    )
    make.traced("trace-no-header", struct.pack("<Q", 0) + trace[8:], "not JSON", "an empty header")
    make.traced("trace-tail", trace + bytes(32), "end at byte", "bytes after the last tensor")

    def shift(name: str, start: int, end: int) -> Callable[[Json], None]:
        def edit(header: Json) -> None:
            old = header[name]["data_offsets"]
            header[name]["data_offsets"] = [old[0] + start, old[1] + end]

        return edit

    make.traced(
        "trace-overlap", _retrace(trace, shift("s0/kv", -32, -32)), "starts at byte", "two tensors overlap"
    )
    make.traced(
        "trace-gap", _retrace(trace, shift("s0/kv", 32, 32)), "starts at byte", "bytes that nobody names"
    )
    make.traced(
        "trace-size", _retrace(trace, shift("s1/top2", 0, 8)), "its shape takes", "more bytes than its shape"
    )
    make.traced(
        "trace-shape-product",
        _retrace(trace, lambda h: h["s0/tok"].update(shape=[2**32, 2**32, 32])),
        "its shape takes",
        "a shape whose product overflows 64 bits",
    )
    make.traced(
        "trace-dtype",
        _retrace(trace, lambda h: h["s0/tok"].update(dtype="I8")),
        "is not uint8",
        "signed digests",
    )
    make.traced(
        "trace-metadata",
        _retrace(trace, lambda h: h["__metadata__"].update(x="y")),
        "metadata",
        "foreign metadata",
    )
    make.traced(
        "trace-name",
        _retrace(trace, lambda h: h.update({"../tok": h.pop("s0/tok")})),
        "s0/tok is not",
        "a tensor under another name",
    )
    extra = [TensorSpec("s0/tok", "uint8", (0,))]
    whole = bytearray()
    write_container(whole.extend, extra, METADATA, [b""])
    make.traced("trace-other-layout", bytes(whole), "is not uint8", "a trace of another run")

    def edited(name: str, run: synthetic.Run, says: str, why: str) -> None:
        payload, data = run.write()
        make.vectors.append(
            Vector(f"invalid/{name}", seal(payload, RUNNER), data, "UNTRUSTED", "RA202", says, why)
        )

    run = synthetic.make()
    run.record.sequences[0].generated = (5, 7)
    edited("token-edited", run, "greedily", "a greedy token that is not the largest logit")
    run = synthetic.make(values=True)
    run.record.values["s0/model.norm"][0, 0] += 1
    edited("value-edited", run, "saved values", "a saved value that its row digest denies")
    run = synthetic.make()
    outside = bytearray()
    run.write_trace(outside)
    (length,) = struct.unpack("<Q", outside[:8])
    header = json.loads(outside[8 : 8 + length])
    points, positions = header["s0/tok"]["shape"][:2]
    outside[8 + length + header["s0/tok"]["data_offsets"][0] + (points - 1) * positions * 32] = 1
    make.traced("trace-row-outside", bytes(outside), "not recorded", "a logits row before the first draw")


def undecidable(make: Maker) -> None:
    """Sound, signed, and beyond this version."""
    newer = make.payload.replace(b"repro-audit:manifest:v1", b"repro-audit:manifest:v2")
    make.inconclusive("format-v2", newer, "manifest:v2", "a later version of the format")
    make.inconclusive(
        "profile-unknown",
        make.edit(lambda p: p["profile"].update(name="exact-xl")),
        "exact-xl",
        "unknown profile",
    )
    make.inconclusive(
        "profile-version", make.edit(lambda p: p["profile"].update(version=2)), "fp32 v2", "a later profile"
    )


def build() -> dict[str, bytes]:
    """Every file, by its path below ``manifests``."""
    make = Maker()
    for part in (accepted, distrusted, malformed, out_of_bounds, contradictory, traces, undecidable):
        part(make)
    files: dict[str, bytes] = {}
    expected: dict[str, Any] = {}
    for vector in make.vectors:
        if vector.name in expected:
            raise ValueError(f"two vectors are called {vector.name}")
        files[f"vectors/{vector.name}.manifest.json"] = vector.envelope
        if vector.trace is not None:
            files[f"vectors/{vector.name}.trace.safetensors"] = vector.trace
        expected[vector.name] = {
            "code": vector.code,
            "says": vector.says,
            "verdict": vector.verdict,
            "why": vector.why,
        }
    files["vectors/expected.json"] = (json.dumps(expected, indent=1, sort_keys=True) + "\n").encode()
    for key in (RUNNER, STRANGER, synthetic.test_key("verifier")):
        name = key.public.name.removesuffix(".pub")
        files[f"keys/{name}.pub"] = public_pem(key.public.key)
        files[f"keys/{name}.pem"] = key.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    private = synthetic.make(private=True).private
    assert private is not None
    files["vectors/valid/private.inputs.json"] = private.to_bytes()
    return files


def main() -> int:
    """Write or compare every file; 1 if one differs under ``--check``."""
    folder = synthetic.folder()
    files = build()
    here = {
        path.relative_to(folder).as_posix()
        for part in ("vectors", "keys")
        for path in (folder / part).rglob("*")
        if path.is_file() and not path.name.endswith(".pub.pem")  # of the golden manifests, whose key is gone
    }
    stale = sorted(here - set(files))
    changed = [
        name for name, data in files.items() if name not in here or (folder / name).read_bytes() != data
    ]
    if "--check" in sys.argv[1:]:
        for name in stale + changed:
            print(f"differs: {name}")
        return 1 if stale or changed else 0
    for name in stale:
        (folder / name).unlink()
    for name in changed:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
    print(f"{len(files)} files, {len(changed)} written, {len(stale)} removed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
