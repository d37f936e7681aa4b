"""diff: where two recordings first part, what is inherited, and when they cannot be compared at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifests import regenerate, synthetic
from repro_audit.errors import InconclusiveError, UntrustedError, UsageError
from repro_audit.manifest.dsse import InvalidSignatureError, seal
from repro_audit.manifest.private import PrivateInputs
from repro_audit.trace.record import PointRows, RowHeader, Scalar, TensorDigest
from repro_audit.verdict import Result, Verdict
from repro_audit.verify.diff import diff

Write = Callable[..., Path]
RUNNER = regenerate.RUNNER


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def writer(name: str, run: synthetic.Run | None = None, *, trace: bool = True, key: Any = RUNNER) -> Path:
        payload, data = (run or synthetic.make()).write()
        path = tmp_path / f"{name}.manifest.json"
        path.write_bytes(seal(payload, key))
        if trace:
            (tmp_path / f"{name}.trace.safetensors").write_bytes(data)
        return path

    return writer


def _codes(result: Result) -> list[str]:
    return [finding.code for finding in result.findings]


def test_identical(write: Write) -> None:
    result = diff([write("a"), write("b"), write("c")])
    assert result.verdict is Verdict.IDENTICAL
    assert dict(result.counts) == {
        "rows identical": 176,
        "origins": 0,
        "inherited": 0,
        "after other tokens": 0,
    }
    assert result.findings == ()


def test_batching_machine_and_time_are_not_compared(write: Write) -> None:
    run = synthetic.make()
    run.settings = replace(run.settings, batch_size=3, prefill_chunk=2, device="cuda:0")
    run.environment = {"cpu.model": "Other", "device": "cuda"}
    run.record.schedule = {"prefills": 9}
    assert diff([write("a"), write("b", run)]).verdict is Verdict.IDENTICAL


def test_one_origin_and_its_heirs(write: Write) -> None:
    changed = {(0, name, p): 0.5 for name, p in (
        ("model.layers.0.mlp", 1), ("model.layers.0.residual", 1), ("model.layers.1.k_cache", 1),
        ("model.layers.1.self_attn", 1), ("model.layers.1.self_attn", 2), ("model.layers.1.self_attn", 3),
        ("model.layers.1.residual", 3), ("model.norm", 3), ("logits", 3),
    )}  # fmt: skip
    result = diff([write("a"), write("b", synthetic.make(changed=changed))])
    assert result.verdict is Verdict.DIVERGED
    (origin,) = result.findings
    assert (origin.code, origin.kind, origin.point) == ("RA401", "origin", "model.layers.0.mlp")
    assert (origin.sequence, origin.position) == (0, 1)
    assert dict(result.counts)["inherited"] == 8
    assert "first differ in model.layers.0.mlp at token 1 of sequence 0" in result.summary
    assert result.matrix[0][1][1:3] == ("layer 0 .O..", "layer 1 .xxx")


def test_a_head_of_the_cache_is_named(write: Write) -> None:
    run = synthetic.make(changed={(1, "model.layers.1.v_cache", 2): 0.25})
    result = diff([write("a"), write("b", run)])
    (origin,) = result.findings
    assert (origin.kind, origin.point, origin.position) == ("cache", "model.layers.1.v_cache", 2)
    assert ("kv heads", "0") in origin.details


def test_only_the_first_run_is_the_yardstick(write: Write) -> None:
    other = synthetic.make(changed={(0, "logits", 2): 1e-3})
    result = diff([write("a"), write("b"), write("c", other)])
    assert result.verdict is Verdict.DIVERGED
    assert "a.manifest.json and c.manifest.json" in result.summary


def test_without_traces_points_are_named(write: Write) -> None:
    run = synthetic.make(changed={(0, "model.layers.0.mlp", 1): 0.5, (0, "model.layers.0.residual", 1): 0.5})
    result = diff([write("a"), write("b", run, trace=False)])
    assert result.verdict is Verdict.DIVERGED
    assert _codes(result) == ["RA406", "RA203"]
    assert result.findings[0].point == "model.layers.0.mlp" and result.findings[0].position is None
    assert diff([write("a"), write("c", trace=False)]).verdict is Verdict.IDENTICAL


def test_a_changed_tensor_is_the_origin_and_shows_somewhere(write: Write) -> None:
    run = synthetic.make(changed={(0, "model.layers.1.mlp", 0): 0.5})
    tensors = tuple(
        replace(t, digest="00" * 32) if t.name == "model.layers.1.mlp.weight" else t
        for t in run.model.tensors
    )
    run.model = replace(run.model, tensors=tensors)
    result = diff([write("a"), write("b", run)])
    assert result.verdict is Verdict.DIVERGED
    assert _codes(result) == ["RA301", "RA402"]
    assert "model.layers.1.mlp.weight" in result.findings[0].message


def test_a_tied_tensor_shows_under_each_of_its_names(write: Write) -> None:
    run = synthetic.make(changed={(0, "logits", 3): 1e-3})
    tensors = tuple(
        replace(t, digest="00" * 32) if t.name == "model.embed_tokens.weight" else t
        for t in run.model.tensors
    )
    run.model = replace(run.model, tensors=tensors)
    assert _codes(diff([write("a"), write("b", run)])) == ["RA301", "RA402"]


def test_scalars_buffers_and_constants_are_origins(write: Write) -> None:
    run = synthetic.make()
    run.record.scalars = (Scalar("aten.add.Tensor", "other", (2e-05).hex()), run.record.scalars[1])
    run.record.buffers = (replace(run.record.buffers[0], digest="00" * 32),)
    run.record.constants = (TensorDigest("constant 0", "int64", (), "11" * 32),)
    result = diff([write("a"), write("b", run)])
    assert result.verdict is Verdict.DIVERGED
    assert sorted(_codes(result)) == ["RA302", "RA303", "RA303", "RA304"]


def test_rows_after_another_token_are_not_compared(write: Write) -> None:
    changed: dict[tuple[int, str, int], float] = {(0, "logits", 2): 0.5}
    changed |= {
        (0, name, 3): 0.5 for name in ("model.embed_tokens", "model.layers.0.mlp", "model.norm", "logits")
    }
    run = synthetic.make(changed=changed)
    first = run.record.sequences[0]
    first.generated = (5, 7)
    assert first.top2 is not None
    first.top2[0] = np.array([[5, 0x40400000], [6, 0x40000000]], dtype=np.uint32)
    result = diff([write("a"), write("b", run)])
    assert result.verdict is Verdict.DIVERGED
    assert [(f.code, f.point, f.position) for f in result.findings] == [
        ("RA401", "logits", 2),
        ("RA409", None, 3),
    ]
    assert dict(result.counts)["after other tokens"] == 13
    assert "as their logits differ" in result.findings[1].message


def test_a_draw_that_differs_from_equal_rows_is_named(write: Write) -> None:
    run = synthetic.make(temperature=0.5)
    run.record.sequences[1].generated = (3, 6)
    result = diff([write("a", synthetic.make(temperature=0.5)), write("b", run)])
    assert result.verdict is Verdict.DIVERGED
    assert _codes(result) == ["RA409"]
    assert "from rows that do not differ" in result.summary


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"profile": "exact"}, "not known here"),
        ({"activations": "bf16"}, "another profile"),
        ({"cast_weights": True}, "another profile"),
    ],
)
def test_another_profile_is_another_question(write: Write, change: dict[str, Any], words: str) -> None:
    run = synthetic.make()
    run.settings = replace(run.settings, **change)
    if "profile" in change:
        with pytest.raises(InconclusiveError, match=words):
            diff([write("a"), write("b", run)])
        return
    result = diff([write("a"), write("b", run)])
    assert result.verdict is Verdict.INCONCLUSIVE
    assert words in result.summary


def test_another_model_or_prompt_is_another_question(write: Write) -> None:
    a = write("a")
    run = synthetic.make()
    run.model = replace(run.model, config_digest="00" * 32)
    assert diff([a, write("b", run)]).verdict is Verdict.INCONCLUSIVE
    run = synthetic.make()
    tensors = (replace(run.model.tensors[0], shape=(2, 8)), *run.model.tensors[1:])
    run.model = replace(run.model, tensors=tensors)
    result = diff([a, write("c", run)])
    assert result.verdict is Verdict.INCONCLUSIVE and "different models" in result.summary
    run = synthetic.make()
    run.record.sequences[1].prompt = (4, 6)
    result = diff([a, write("d", run)])
    assert result.verdict is Verdict.INCONCLUSIVE and "another prompt in sequence 1" in result.summary
    run = synthetic.make()
    del run.record.sequences[1]
    run.texts = run.texts[:1]
    assert diff([a, write("e", run)]).verdict is Verdict.INCONCLUSIVE


def test_equal_rows_under_other_decoding_are_not_identical(write: Write) -> None:
    a = write("a")
    assert diff([a, write("b", synthetic.make(temperature=0.5))]).verdict is Verdict.INCONCLUSIVE
    both = synthetic.make(temperature=0.5, changed={(0, "model.norm", 0): 0.5})
    assert diff([a, write("c", both)]).verdict is Verdict.DIVERGED
    # A seed draws nothing at temperature 0.
    run = synthetic.make()
    run.settings = replace(run.settings, decoding=replace(run.settings.decoding, seed=1))
    assert diff([a, write("d", run)]).verdict is Verdict.IDENTICAL


def test_another_level_compares_what_both_have(write: Write) -> None:
    a = write("a")
    run = _logits_only(synthetic.make())
    result = diff([a, write("b", run)])
    assert result.verdict is Verdict.INCONCLUSIVE and "recording level" in result.summary
    run = _logits_only(synthetic.make(changed={(0, "logits", 3): 1e-3}))
    assert diff([a, write("c", run)]).verdict is Verdict.DIVERGED


def _logits_only(run: synthetic.Run) -> synthetic.Run:
    last = len(run.record.points) - 1
    run.record.points = (replace(run.record.points[last], inputs=()),)
    for sequence in run.record.sequences:
        sequence.rows = {0: sequence.rows[last]}
    run.settings = replace(run.settings, level="logits")
    return run


def test_missing_and_extra_points_at_one_level_diverge(write: Write) -> None:
    run = synthetic.make()
    norm = next(i for i, point in enumerate(run.record.points) if point.name == "model.norm")
    run.record.points = tuple(
        replace(point, name="model.other") if i == norm else point
        for i, point in enumerate(run.record.points)
    )
    result = diff([write("a"), write("b", run)])
    assert result.verdict is Verdict.DIVERGED
    assert sorted(_codes(result)) == ["RA204", "RA205"]


def test_rows_of_another_type_diverge(write: Write) -> None:
    run = synthetic.make()
    for sequence in run.record.sequences:
        rows = sequence.rows[0]
        sequence.rows[0] = PointRows(RowHeader("bfloat16", (4,)), rows.first, rows.digests)
    result = diff([write("a"), write("b", run)])
    assert result.verdict is Verdict.DIVERGED
    assert set(_codes(result)) == {"RA206"}


def test_private_runs_compare_only_under_one_salt(write: Write) -> None:
    one, two = synthetic.make(private=True), synthetic.make(private=True)
    assert diff([write("a", one), write("b", two)]).verdict is Verdict.IDENTICAL
    assert two.private is not None
    two.private = PrivateInputs(bytes(32), two.private.sequences)
    result = diff([write("a", one), write("c", two)])
    assert result.verdict is Verdict.INCONCLUSIVE and "different salts" in result.summary
    assert diff([write("a", one), write("d")]).verdict is Verdict.INCONCLUSIVE


def test_trust_of_each_side_is_shown_and_required_only_if_asked(write: Write) -> None:
    a, b = write("a"), write("b", key=None)
    result = diff([a, b])
    assert result.verdict is Verdict.IDENTICAL
    assert ("a.manifest.json: trust", "none: signed, but by no trusted key") in result.facts
    assert ("b.manifest.json: trust", "none: unsigned") in result.facts
    with pytest.raises(UntrustedError, match="not signed"):
        diff([a, b], [RUNNER.public])
    shown = dict(diff([a, b], [RUNNER.public], allow_untrusted=True).facts)
    assert shown["a.manifest.json: trust"] == "signed by runner.pub"
    assert "not by distinct trusted keys" in shown["a.manifest.json and b.manifest.json: evidence grade"]


def test_distinct_runners_earn_a_grade(write: Write) -> None:
    stranger = regenerate.STRANGER
    facts = dict(diff([write("a"), write("b", key=stranger)], [RUNNER.public, stranger.public]).facts)
    assert "distinct" not in facts["a.manifest.json and b.manifest.json: evidence grade"]


def test_a_forged_side_is_refused(write: Write, tmp_path: Path) -> None:
    forged = Path(regenerate.__file__).parent / "vectors" / "untrusted" / "payload-swapped.manifest.json"
    with pytest.raises(InvalidSignatureError):
        diff([write("a"), forged], [RUNNER.public], allow_untrusted=True)
    a, b = write("a"), write("b")
    (tmp_path / "b.trace.safetensors").write_bytes(b"other")
    with pytest.raises(UntrustedError, match="trace"):
        diff([a, b])
    with pytest.raises(UsageError, match="two or more"):
        diff([a])


def test_cache_faults_that_a_side_recorded_are_never_identical(write: Write) -> None:
    run = synthetic.make()
    run.record.cache_faults = ("layer 1, sequence 0, position 2, head 1",)
    result = diff([write("a"), write("b", run)])
    assert result.verdict is Verdict.DIVERGED and _codes(result) == ["RA405"]
