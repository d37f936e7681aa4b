"""From findings to a verdict, and the words around an origin."""

from __future__ import annotations

import numpy as np

from repro_audit.trace.record import Edge, Point
from repro_audit.verdict import Finding, Verdict
from repro_audit.verify.compare import Comparison, match_points, whole_points
from repro_audit.verify.explain import CODES
from repro_audit.verify.grade import Device, Grade, device_of, grade
from repro_audit.verify.judge import heat_map, layer_label, origin_findings, spans, verdict_of, worst_first
from repro_audit.verify.origins import Differences, find_origins

POINTS = (
    Point("model.embed_tokens", "tok", (), ("embed.weight",)),
    Point("model.layers.0.mlp", "tok", (Edge(0),), ("layers.0.w",)),
    Point("model.layers.1.mlp", "tok", (Edge(1),), ("layers.1.w",)),
    Point("logits", "tok", (Edge(2),), ("embed.weight",)),
)


def differs(*rows: str) -> dict[int, Differences]:
    return {i: Differences(0, np.array([c == "x" for c in row])) for i, row in enumerate(rows)}


def found(comparison: dict[int, Differences], changed: frozenset[str] = frozenset(), by_token: bool = True):
    origins = find_origins(POINTS if by_token else whole_points(POINTS), comparison)
    return origin_findings(
        0, POINTS, origins, changed, by_token=by_token, token_text=lambda position: f" ('t{position}')"
    )


def test_origin_names_point_token_and_range():
    (finding,) = found(differs("....", "....", ".x.x", ".x.x"))
    assert (finding.code, finding.point, finding.position) == ("RA401", "model.layers.1.mlp", 1)
    assert "('t1')" in finding.message
    assert dict(finding.details)["tokens"] == "1, 3 (2 positions)"


def test_a_changed_tensor_explains_the_origin():
    (finding,) = found(differs("....", "....", ".x..", ".x.."), frozenset({"layers.1.w", "unrelated"}))
    assert finding.code == "RA402"
    assert dict(finding.details)["reads"] == "layers.1.w"


def test_without_a_trace_only_points_are_named():
    (finding,) = found(differs(".", ".", "x", "x"), by_token=False)
    assert (finding.code, finding.point, finding.position) == ("RA406", "model.layers.1.mlp", None)


def test_precedence():
    def verdict(*codes: str) -> Verdict:
        return verdict_of([Finding(code, "m") for code in codes], Verdict.REPRODUCED)

    assert verdict() is Verdict.REPRODUCED
    assert verdict("RA203", "RA103") is Verdict.REPRODUCED
    assert verdict("RA104") is Verdict.POLICY
    assert verdict("RA104", "RA501") is Verdict.INCONCLUSIVE
    assert verdict("RA501", "RA401") is Verdict.DIVERGED
    assert verdict("RA401", "RA202") is Verdict.UNTRUSTED


def test_missing_and_extra_points_never_reproduce():
    from repro_audit.manifest.types import PointSpec
    from repro_audit.trace.record import RowHeader

    header = RowHeader("float32", (4,))
    specs = [PointSpec(point, header) for point in POINTS]
    assert match_points(POINTS, specs)[1] == []
    for wrong in (
        specs[:1],
        specs[:2] + specs[3:],
        [*specs, PointSpec(Point("extra", "tok"), header)],
        specs[::-1],
    ):
        findings = match_points(POINTS, wrong)[1]
        assert verdict_of(findings, Verdict.REPRODUCED) is Verdict.DIVERGED


def test_every_code_that_decides_is_explained():
    assert all(code == entry.code and entry.meaning and entry.remedy for code, entry in CODES.items())
    assert {entry.verdict for entry in CODES.values()} >= {
        Verdict.UNTRUSTED, Verdict.DIVERGED, Verdict.INCONCLUSIVE, Verdict.POLICY, None,
    }  # fmt: skip


def test_worst_first():
    findings = [
        Finding("RA203", "m", "note"),
        Finding("RA401", "m", "origin"),
        Finding("RA301", "m", "weights"),
    ]
    assert [finding.kind for finding in worst_first(findings)] == ["weights", "origin", "note"]


def test_heat_map():
    rows = differs("....", "....", ".x..", "..xx")
    comparison = Comparison({**rows, 3: Differences(2, np.array([True, False]))}, (), True)
    lines = heat_map(POINTS, comparison, find_origins(POINTS, comparison.differs), 4)
    assert lines == ("embed_tokens ....", "layer 0 ....", "layer 1 .O..", "logits __O.")
    assert heat_map(POINTS, Comparison(rows, (), False), find_origins(POINTS, rows), 4) == ()


def test_labels_and_spans():
    assert layer_label("model.layers.12.mlp.down_proj") == "layer 12"
    assert layer_label("model.norm") == "norm"
    assert spans([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
    assert spans(list(range(0, 40, 2))).endswith(", ...")


def test_grade_orders_and_never_rises_from_silence():
    intel = Device("cpu", "GenuineIntel", "avx512", "Xeon")
    assert grade(intel, intel) is Grade.SAME_DEVICE
    assert grade(intel, Device("cpu", "GenuineIntel", "avx512", "Core")) is Grade.SAME_CLASS
    assert grade(intel, Device("cpu", "GenuineIntel", "avx2", "Xeon")) is Grade.OTHER_CLASS
    assert grade(intel, Device("cpu", "AuthenticAMD", "avx512", "EPYC")) is Grade.OTHER_VENDOR
    assert grade(Device("cuda", "NVIDIA", "9.0", "H200"), intel) is Grade.OTHER_VENDOR
    assert grade(device_of({}), intel) is Grade.SAME_DEVICE
    assert sorted(Grade) == [Grade.SAME_DEVICE, Grade.SAME_CLASS, Grade.OTHER_CLASS, Grade.OTHER_VENDOR]
