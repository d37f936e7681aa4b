"""A verifier's own envelope: an in-toto test-result statement about a manifest.

DSSE signatures all cover one payload, so a countersignature could only repeat "I ran this". A verifier states
what it found instead, in a payload of its own whose subject is the SHA-256 of the manifest's payload bytes.
Predicate: https://in-toto.io/attestation/test-result/v0.1; our facts are an extension field named by a URI,
as the in-toto rules ask of producers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from repro_audit import __version__
from repro_audit.errors import UntrustedError
from repro_audit.manifest.canonical import dumps, loads_canonical
from repro_audit.manifest.dsse import Opened, open_envelope
from repro_audit.manifest.keys import TrustedKey
from repro_audit.manifest.reader import Node
from repro_audit.manifest.types import STATEMENT_TYPE, Manifest
from repro_audit.verdict import Verdict

TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
VERIFICATION = "urn:repro-audit:verification:v1"
SUBJECT_NAME = "urn:repro-audit:manifest-payload"
#: Verdicts that a verifier may put its name under.
ATTESTABLE = (Verdict.REPRODUCED, Verdict.DIVERGED, Verdict.INCONCLUSIVE, Verdict.POLICY)
_RESULTS = {Verdict.REPRODUCED: "PASSED", Verdict.DIVERGED: "FAILED"}


@dataclass(frozen=True)
class Attestation:
    """What a verifier states.

    Attributes:
        manifest_sha256: of the manifest's payload bytes (hex): the link of the chain.
        run_root: the run root that was compared with.
        verdict: one of :data:`ATTESTABLE`.
        profile: name and version, as ``fp32 v1``.
        grade: evidence grade in words.
        tool_version: version of the verifier.
    """

    manifest_sha256: str
    run_root: str
    verdict: Verdict
    profile: str
    grade: str
    tool_version: str


def build_attestation(manifest: Manifest, verdict: str, grade: str, model_root: str | None = None) -> bytes:
    """The payload that a verifier signs.

    Args:
        manifest: what was verified.
        verdict: the word, as ``REPRODUCED``.
        grade: evidence grade in words.
        model_root: of the model's files as the verifier has them, never the recorder's word; None leaves
            it out.

    Raises:
        UntrustedError: a verdict that says nothing about a rerun.
    """
    reached = Verdict(verdict)
    if reached not in ATTESTABLE:
        raise UntrustedError(f"a result {verdict} cannot be attested", hint="only a finished rerun can")
    test = f"bits:{manifest.settings.profile}"
    passed, failed, warned = (
        [test] if _RESULTS.get(reached, "WARNED") == word else [] for word in ("PASSED", "FAILED", "WARNED")
    )
    predicate = {
        "configuration": [
            *(
                [{"digest": {"sha256": model_root}, "name": "urn:repro-audit:model-root"}]
                if model_root is not None
                else []
            ),
            {"digest": {"sha256": manifest.trace.sha256}, "name": "urn:repro-audit:trace"},
        ],
        "failedTests": failed,
        "passedTests": passed,
        "result": _RESULTS.get(reached, "WARNED"),
        VERIFICATION: {
            "grade": grade,
            "profile": f"{manifest.settings.profile} v{manifest.profile_version}",
            "runRoot": manifest.root,
            "toolVersion": __version__,
            "verdict": reached.value,
        },
        "warnedTests": warned,
    }
    return dumps(
        {
            "_type": STATEMENT_TYPE,
            "predicate": predicate,
            "predicateType": TEST_RESULT,
            "subject": [{"digest": {"sha256": manifest.payload_sha256}, "name": SUBJECT_NAME}],
        }
    )


def parse_attestation(payload: bytes) -> Attestation:
    """Read an attestation of ours.

    Raises:
        UntrustedError: malformed, or its parts contradict one another.
    """
    what = "the attestation"
    top = Node(loads_canonical(payload, what), "attestation").object(
        ("_type", "predicate", "predicateType", "subject")
    )
    top["_type"].choice((STATEMENT_TYPE,))
    top["predicateType"].choice((TEST_RESULT,))
    subject = next(iter(top["subject"].items(1, least=1))).object(("digest", "name"))
    subject["name"].choice((SUBJECT_NAME,))
    p = top["predicate"].object(
        ("configuration", "failedTests", "passedTests", "result", VERIFICATION, "warnedTests")
    )
    for item in p["configuration"].items(16):
        entry = item.object(("digest", "name"))
        entry["name"].name()
        entry["digest"].object(("sha256",))["sha256"].hex()
    v = p[VERIFICATION].object(("grade", "profile", "runRoot", "toolVersion", "verdict"))
    verdict = Verdict(v["verdict"].choice([verdict.value for verdict in ATTESTABLE]))
    expected = _RESULTS.get(verdict, "WARNED")
    if p["result"].choice(("FAILED", "PASSED", "WARNED")) != expected:
        raise p["result"].fail(f"contradicts its verdict {verdict.value}")
    for key, word in (("failedTests", "FAILED"), ("passedTests", "PASSED"), ("warnedTests", "WARNED")):
        names = [item.name() for item in p[key].items(1)]
        if bool(names) != (word == expected):
            raise p[key].fail(f"contradicts its result {expected}")
    return Attestation(
        manifest_sha256=subject["digest"].object(("sha256",))["sha256"].hex(),
        run_root=v["runRoot"].hex(),
        verdict=verdict,
        profile=v["profile"].name(128),
        grade=v["grade"].name(128),
        tool_version=v["toolVersion"].name(64),
    )


def open_attestation(
    data: bytes,
    payload: bytes,
    manifest: Manifest,
    keys: Sequence[TrustedKey],
    *,
    allow_untrusted: bool = False,
) -> tuple[Attestation, Opened]:
    """Open an attestation's envelope and require that it speaks of this manifest.

    Args:
        data: the attestation file's bytes.
        payload: the manifest's payload bytes.
        manifest: the same, parsed.
        keys: keys that may attest.
        allow_untrusted: accept any signer or none, and say so in :attr:`Opened.trust`.

    Raises:
        UntrustedError: no trusted signature, malformed, or about another manifest.
    """
    opened = open_envelope(data, keys, allow_untrusted=allow_untrusted, what="the attestation")
    attestation = parse_attestation(opened.payload)
    if attestation.manifest_sha256 != hashlib.sha256(payload).hexdigest():
        raise UntrustedError("the attestation is about another manifest", hint="name the one it was made for")
    if attestation.run_root != manifest.root:
        raise UntrustedError(
            "the attestation names another run root than its manifest", hint="do not rely on this attestation"
        )
    return attestation, opened
