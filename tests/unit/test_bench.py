"""The benchmark takes turns, refuses wrong bits and impossible figures, and says what it left out."""

from __future__ import annotations

import json
from importlib import resources
from types import SimpleNamespace

import jsonschema
import pytest
import torch

from repro_audit.bench import (
    attention,
    baselines,
    endtoend,
    hashing,
    inputs,
    plan,
    products,
    report,
    roofline,
    shapes,
    stacks,
)
from repro_audit.bench import rows as benchrows
from repro_audit.bench.budget import Budget
from repro_audit.bench.roofline import Roofline, Work
from repro_audit.bench.rows import OURS, Row, compared, judged
from repro_audit.bench.timing import Contender, Measurement, race
from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.progress import NullObserver

PEAKS = Roofline(4e12, {"fp32": 33e12, "tf32": 247e12, "bf16": 494e12}, 50 << 20, "a test")


def test_contenders_take_turns_with_fresh_inputs():
    order: list[str] = []
    times = race(
        {
            "a": Contender(lambda index: order.append(f"a{index}")),
            "b": Contender(lambda index: order.append(f"b{index}")),
            "host": Contender(lambda index: order.append("h"), host=True),
        },
        device="cpu",
        sets=2,
        rounds=3,
        refresh=lambda turn: order.append(f"r{turn}"),
    )
    turns = [
        step
        for turn in range(3)
        for step in (f"r{turn}", "a0", "a1", f"r{turn}", "b0", "b1", f"r{turn}", "h")
    ]
    assert order == ["r0", "a0", "a1", "b0", "b1", "h", *turns]
    assert {len(found.seconds) for found in times.values()} == {3}


def test_quantiles():
    found = Measurement.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert found.median == 3
    assert found.spread == pytest.approx((1.4, 4.6))
    assert Measurement.of([2.0]).spread == (2, 2)
    assert Measurement.of([1.0, 2.0]).median == 1.5


def test_bounds_are_named():
    assert PEAKS.least(Work(4e9)) == ("bytes", 1e-3)
    assert PEAKS.least(Work(4e9, 66e9)) == ("FMA issue", 2e-3)
    assert PEAKS.least(Work(1e6, 494e9, "bf16")) == ("tensor units", 1e-3)
    assert PEAKS.least(Work(4e6, 1e6))[0] == "latency"
    assert Work(8.0, 2.0).by("bf16", 0.5) == Work(4.0, 2.0, "bf16")


def test_a_figure_above_the_roofline_is_refused():
    work = Work(4e9)
    possible = judged(Row("gemv", "x", OURS, Measurement.of([0.96e-3]), work), PEAKS)
    assert possible.fraction == pytest.approx(1 / 0.96)
    refused = judged(Row("gemv", "x", OURS, Measurement.of([0.94e-3]), work), PEAKS)
    assert refused.refused
    assert refused.measured is None
    assert "refused: above the roofline" in report.render([refused], {}, PEAKS)
    assert judged(refused, PEAKS) == refused
    unknown = Row("gemv", "x", OURS, Measurement.of([1e-9]), work)
    assert judged(unknown, None) == unknown


def test_peaks_of_a_device_nobody_listed():
    told = SimpleNamespace(
        name="NVIDIA Something",
        multi_processor_count=10,
        clock_rate=1_000_000,
        memory_clock_rate=1_000_000,
        memory_bus_width=64,
        L2_cache_size=1 << 20,
    )
    peaks = roofline.from_properties(told)
    assert peaks.bandwidth == 16e9
    assert peaks.fmas["fp32"] == 1.28e12
    told.name = "NVIDIA H200"
    assert roofline.from_properties(told).bandwidth == 4.8e12


def test_ratios_are_to_ours_of_the_same_case():
    ours = Row("gemm", "a", OURS, Measurement.of([2.0]))
    other = Row("gemm", "a", "torch", Measurement.of([3.0]))
    stray = Row("gemm", "b", "torch", Measurement.of([3.0]))
    absent = Row("gemm", "a", "HF", note="skipped: no")
    assert [row.ratio for row in compared([ours, other, stray, absent])] == [None, 1.5, None, None]


def test_durations():
    assert [report.duration(s) for s in (1.234e-6, 0.01234, 0.9999, 2.5, 250.0)] == [
        "1.23 us", "12.3 ms", "1 s", "2.5 s", "250 s",
    ]  # fmt: skip


def test_inputs_are_fresh_and_scaled():
    x, half = torch.empty(2000), torch.empty(2000, dtype=torch.bfloat16)
    refresh = inputs.refresher([x], [half])
    seen = []
    for turn in range(4):
        refresh(turn)
        seen.append(float(x.std()))
        inputs.require_bits("a copy", half, x.to(torch.bfloat16))
    assert seen == pytest.approx([1, 3, 0.01, 1], rel=0.1)
    first = x.clone()
    refresh(4)
    with pytest.raises(InconclusiveError, match="other bits"):
        inputs.require_bits("drawn again", x, first)


def test_rotated_inputs_exceed_the_cache():
    assert inputs.sets_needed(32 << 20, 50 << 20) == 5
    assert inputs.sets_needed(1 << 30, 50 << 20) == 2
    assert inputs.sets_needed(1, None) == 16


def test_wrong_bits_are_not_timed(monkeypatch):
    def wrong(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = baselines._wide(baselines.Operands(x, x, w, w.float()))
        y.view(torch.int32)[0, 0] ^= 1
        return y

    monkeypatch.setattr(products, "linear_of", lambda device: wrong)
    with pytest.raises(InconclusiveError, match="specification says"):
        next(products.measure("gemm", (3, 5, 200), "cpu", None, 1))


def test_a_contender_that_computes_something_else_is_not_compared(monkeypatch):
    other = baselines.Product("other", lambda operands: operands.x @ operands.w_fp32.t() * 1.1, 2, "fp32")
    monkeypatch.setattr(baselines, "products", lambda device: [other])
    with pytest.raises(InconclusiveError, match="something else"):
        list(products.measure("gemm", (3, 5, 200), "cpu", None, 1))


def test_every_product_baseline_of_a_gpu_computes_a_product():
    """Those that need no GPU, which is all but batch_invariant_ops."""
    x, w = torch.randn(3, 64), torch.randn(5, 64).to(torch.bfloat16)
    operands = baselines.Operands(x, x.to(torch.bfloat16), w, w.float())
    names = [stack.name for stack in baselines.products("cuda:0") if stack.name != baselines.INVARIANT]
    assert names == ["cuBLAS bf16", "cuBLAS fp32", "cuBLAS TF32", "LayerCast"]
    before = torch.backends.cuda.matmul.allow_tf32
    for stack in baselines.products("cuda:0"):
        if stack.name in names:
            inputs.require_alike(stack.name, stack.call(operands), x @ w.float().t())
    assert torch.backends.cuda.matmul.allow_tf32 == before


def test_products_attention_and_hashes_give_rows(monkeypatch):
    monkeypatch.setattr(hashing, "ROWS", 8)
    rows = [
        *products.measure("gemm", (3, 70, 200), "cpu", PEAKS, 2),
        *attention.measure(("prefill 6", 6, 6), "cpu", None, 2),
        *attention.measure(("decode", 1, 9), "cpu", None, 2),
        *hashing.measure("cpu", None, 2),
    ]
    assert [row.stack for row in rows if row.area == "gemm"] == [OURS, "torch fp32", "LayerCast"]
    assert all(row.measured or row.refused for row in rows)
    assert {row.area for row in rows} == {"gemm", "attention", "hash"}
    assert all(row.ratio for row in rows if row.area != "gemm" and row.stack != OURS)


def test_wrong_digests_are_not_timed(monkeypatch):
    monkeypatch.setattr(hashing, "ROWS", 8)
    right = hashing.digests_of("cpu")

    def wrong(items):
        found = [table.copy() for table in right(items)]
        found[0][7, 31] ^= 1
        return found

    monkeypatch.setattr(hashing, "digests_of", lambda device: wrong)
    with pytest.raises(InconclusiveError, match="blake3 package"):
        next(hashing.measure("cpu", None, 1))


@pytest.fixture(scope="module")
def tiny():
    return shapes.build("tiny", "cpu")


def test_shapes(tiny):
    assert sum(p.numel() for p in tiny.module.parameters()) == shapes.weights(shapes.SHAPES["tiny"])
    assert shapes.weights(shapes.SHAPES["llama-3-8b"]) == 8_030_261_248
    assert shapes.weights(shapes.SHAPES["smollm2-135m"]) == 134_515_008
    assert {p.dtype for p in tiny.module.parameters()} == {torch.bfloat16}
    with pytest.raises(UsageError, match=r"large.*llama-3-8b.*tiny"):
        shapes.find("large")


def test_stacks_compute_the_same_and_leave_no_trace(tiny):
    module = tiny.module
    before = {name: (p.data_ptr(), p.dtype) for name, p in module.named_parameters()}
    tokens = torch.arange(20)[None]
    found = {}
    for stack in (*stacks.stacks("cpu"), stacks.stacks("cuda:0")[0]):
        with stacks.sdpa(module), stack.changed(module):
            found[stack.name] = stacks.prefill(module, tokens)
            decoder = stacks.Decoder(module, tokens, 8, static=False)
            decoder.draw(8)
    assert set(found) == {"LayerCast", "HF fp32", "HF bf16"}
    assert found["LayerCast"].dtype == found["HF fp32"].dtype == torch.float32
    assert found["HF bf16"].dtype == torch.bfloat16
    assert float((found["LayerCast"] - found["HF fp32"]).abs().max()) < 1e-4
    inputs.require_alike("HF bf16", found["HF bf16"], found["HF fp32"])
    assert {name: (p.data_ptr(), p.dtype) for name, p in module.named_parameters()} == before
    assert module.config._attn_implementation == "eager"
    assert all("forward" not in vars(child) for child in module.modules())


def test_a_static_cache_draws_what_a_dynamic_one_draws(tiny):
    tokens = torch.arange(20)[None]
    with stacks.sdpa(tiny.module), stacks.widened(tiny.module):
        plain = stacks.Decoder(tiny.module, tokens, 8, static=False)
        plain.draw(6)
        fixed = stacks.Decoder.__new__(stacks.Decoder)
        fixed._capture = lambda: None
        fixed.__init__(tiny.module, tokens, 8, static=True)
        fixed.draw(6)
    assert plain._token.item() == fixed._token.item()
    assert plain._position.item() == fixed._position.item() == 26


def test_a_model_gives_every_row(tiny):
    model = endtoend.Model(tiny, "cpu", endtoend.Sizes(24, 16, 16, 8, 16), 2, None)
    rows = [row for measure in model.areas().values() for row in measure(Budget(None))]
    assert {row.area for row in rows} == set(plan.WHOLE)
    assert [row.stack for row in rows if row.area == "prefill"] == [OURS, "LayerCast", "HF fp32"]
    assert [row.stack for row in rows if row.area == "record"] == 2 * [
        OURS,
        "--record layers",
        "--record ops",
    ]
    assert all(row.measured for row in rows)
    assert "of the plain prefill" in next(row.note for row in rows if row.area == "verify")


def test_decoding_that_prefill_does_not_confirm_is_not_timed(tiny, monkeypatch):
    model = endtoend.Model(tiny, "cpu", endtoend.Sizes(24, 16, 16, 8, 16), 1, None)
    real = model._replay
    monkeypatch.setattr(model, "_replay", lambda prompt, drawn, level: real(prompt[1:], drawn, level))
    with pytest.raises((InconclusiveError, ValueError)):
        next(model.areas()["decode"](Budget(None)))


def test_a_baseline_that_fails_is_named_and_stops_nothing(tiny, monkeypatch):
    def failing(module, tokens):
        raise RuntimeError("no such thing\nmore")

    monkeypatch.setattr(stacks, "prefill", failing)
    model = endtoend.Model(tiny, "cpu", endtoend.Sizes(24, 16, 16, 8, 16), 1, None)
    rows = list(model.prefill(Budget(None)))
    assert [row.note for row in rows] == ["", *2 * ["failed: no such thing"]]


def test_a_case_with_wrong_bits_is_a_row_and_the_rest_is_measured(monkeypatch):
    wanted = plan.Plan(("gemv", "attention"), "cpu", "tiny", rounds=1)
    monkeypatch.setattr(
        products, "linear_of", lambda device: lambda x, w: torch.zeros(x.shape[0], w.shape[0])
    )
    monkeypatch.setitem(attention.CASES, "cpu", (("decode", 1, 9),))
    rows = list(plan.run(wanted, lambda: tiny, NullObserver()))
    assert rows[0].refused
    assert "specification says" in rows[0].note
    assert [row.area for row in rows if row.measured] == 2 * ["attention"]


def test_sizes_respect_the_context():
    assert endtoend.SIZES["cuda"].within(None) == endtoend.SIZES["cuda"]
    assert endtoend.SIZES["cuda"].within(256) == endtoend.Sizes(255, 128, 64, 64, 64)


def test_the_budget_leaves_things_out_by_name():
    now = [0.0]
    budget = Budget(5, clock=lambda: now[0])
    assert not budget.spent()
    now[0] = 5.0
    assert budget.spent()
    wanted = plan.Plan(("gemm", "decode"), "cpu", "tiny", seconds=0)

    def load():
        raise AssertionError("not reached")

    rows = list(plan.run(wanted, load, NullObserver()))
    assert {row.area for row in rows} == {"gemm", "decode"}
    assert all(row.measured is None and "--budget" in row.note for row in rows)


def test_a_stack_that_does_not_fit_is_left_out_by_name(tiny, monkeypatch):
    monkeypatch.setattr(endtoend, "_free", lambda device: 1000)
    model = endtoend.Model(tiny, "cpu", endtoend.Sizes(24, 16, 16, 8, 16), 1, None)
    found = {row.stack: row for row in model.prefill(Budget(None))}
    assert found["HF fp32"].note.startswith("skipped: needs 0.0 GiB more")
    assert found["LayerCast"].measured


def test_a_small_gpu_is_refused_with_the_numbers(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (8 << 30, 8 << 30))
    large = plan.Plan(plan.AREAS, "cuda:0", "llama-3-8b")
    with pytest.raises(InconclusiveError, match=r"8\.0 GiB free, this benchmark needs 16\.5"):
        plan.require_memory(large)
    plan.require_memory(plan.Plan(plan.AREAS, "cuda:0", "tiny"))
    plan.require_memory(plan.Plan(plan.AREAS, "cpu", "llama-3-8b"))


def test_the_document_conforms():
    row = Row("gemm", "a", OURS, Measurement.of([2.0], graph=True), Work(3.0, 4.0), peak_bytes=5)
    settings = {
        "areas": ["gemm"],
        "device": "cpu",
        "model": "m",
        "quick": True,
        "rounds": None,
        "budget": 1.5,
    }
    left_out = Row("hash", "b", OURS, note="skipped")
    tree = json.loads(
        report.dumps(report.document([judged(row, PEAKS), left_out], {"a": "b"}, PEAKS, settings))
    )
    schema = json.loads((resources.files("repro_audit.schemas") / "bench.schema.json").read_text())
    jsonschema.validate(tree, schema)
    assert tree["date"] >= "2026"
    assert tree["rows"][0]["seconds"] == 2
    assert tree["rows"][1]["seconds"] is None
    assert schema["properties"]["rows"]["items"]["properties"]["area"]["enum"] == list(plan.AREAS)
    assert benchrows.ABOVE not in str(tree)
