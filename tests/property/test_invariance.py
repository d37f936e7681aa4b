"""The invariances of profile fp32: whatever the schedule or the process's settings, the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as bounded
from hypothesis import strategies as st

from repro_audit import engine
from repro_audit.engine import Replay, Request
from repro_audit.trace.record import RunRecord
from tests.helpers.engine_runs import difference, settings, tiny

LONG = tuple((7 * i) % 300 + 3 for i in range(150))
REQUESTS = (Request(5, LONG), Request(7, (9, 8, 7)), Request(2, tuple(range(3, 40))))


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny("llama")


@pytest.fixture(scope="module")
def reference(model: Any) -> RunRecord:
    """Each request alone, prompt in one piece, greedy."""
    return engine.record(model, REQUESTS, settings(batch_size=1))


def test_run_to_run(model: Any, reference: RunRecord) -> None:
    assert difference(reference, engine.record(model, REQUESTS, settings(batch_size=1))) is None


@bounded(max_examples=8, deadline=None)
@given(batch=st.integers(1, 4), chunk=st.sampled_from([0, 1, 5, 64, 128, 149]))
def test_batches_and_chunks(model: Any, reference: RunRecord, batch: int, chunk: int) -> None:
    record = engine.record(model, REQUESTS, settings(batch_size=batch, prefill_chunk=chunk))
    assert difference(reference, record) is None
    assert record.scalars == reference.scalars


def test_request_order(model: Any, reference: RunRecord) -> None:
    shuffled = engine.record(model, REQUESTS[::-1], settings())
    shuffled.sequences.reverse()
    assert difference(reference, shuffled) is None


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_prefill_is_decode(model: Any, temperature: float) -> None:
    chosen = settings(new_tokens=9, temperature=temperature)
    made = engine.record(model, REQUESTS, chosen)
    again = engine.replay(model, [Replay(s.id, s.prompt, s.generated) for s in made.sequences], chosen)
    assert difference(made, again) is None
    assert made.scalars == again.scalars
    assert again.schedule["steps"] < made.schedule["steps"]


def test_token_by_token_beyond_a_sliding_window() -> None:
    model = tiny("mistral", sliding_window=16)
    whole = engine.record(model, REQUESTS, settings())
    single = engine.record(model, REQUESTS, settings(prefill_chunk=1))
    assert difference(whole, single) is None
    causal = engine.record(tiny("mistral", sliding_window=None), REQUESTS, settings())
    assert whole.sequences[0].rows[len(whole.points) - 1].digests.tobytes() != (
        causal.sequences[0].rows[len(causal.points) - 1].digests.tobytes()
    )


def test_shared_prefix(model: Any, reference: RunRecord) -> None:
    longer = engine.record(model, [Request(1, (*LONG, 4, 5))], settings(new_tokens=1))
    for point, rows in reference.sequences[0].rows.items():
        if reference.points[point].name != "logits":
            assert (longer.sequences[0].rows[point].digests[: len(LONG)] == rows.digests[: len(LONG)]).all()


def test_levels_agree(model: Any, reference: RunRecord) -> None:
    for level in ("layers", "logits"):
        record = engine.record(model, REQUESTS, settings(level))
        names = {point.name: index for index, point in enumerate(reference.points)}
        for index, point in enumerate(record.points):
            for left, right in zip(record.sequences, reference.sequences, strict=True):
                assert (left.rows[index].digests == right.rows[names[point.name]].digests).all(), point.name


def test_thread_count(model: Any, reference: RunRecord) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert difference(reference, engine.record(model, REQUESTS, settings())) is None
    finally:
        torch.set_num_threads(before)


@contextmanager
def everything_switched() -> Iterator[None]:
    """A caller who turned on all that PyTorch offers for speed."""
    precision, dtype = torch.get_float32_matmul_precision(), torch.get_default_dtype()
    tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.set_float32_matmul_precision("medium")
    torch.set_flush_denormal(True)
    torch.set_default_dtype(torch.bfloat16)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_autocast_enabled("cpu", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cpu", False)
        torch.set_default_dtype(dtype)
        torch.set_flush_denormal(False)
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize("fuse", [True, False])
def test_settings_of_the_process(model: Any, reference: RunRecord, fuse: bool) -> None:
    with everything_switched():
        record = engine.record(model, REQUESTS, settings(), fuse=fuse)
    assert difference(reference, record) is None


def test_subnormal_weights_are_kept_whatever_the_caller_set() -> None:
    model = tiny("llama")
    with torch.no_grad():
        model.module.model.layers[0].input_layernorm.weight.fill_(1e-41)
    kept = engine.record(model, REQUESTS[1:], settings(), fuse=False)
    with everything_switched():
        switched = engine.record(model, REQUESTS[1:], settings(), fuse=False)
    assert difference(kept, switched) is None
    with torch.no_grad():
        model.module.model.layers[0].input_layernorm.weight.zero_()
    flushed = engine.record(model, REQUESTS[1:], settings(), fuse=False)
    assert difference(kept, flushed) == "model.layers.0.input_layernorm of sequence 7"


def test_memory_layout_of_weights(model: Any, reference: RunRecord) -> None:
    other = tiny("llama")
    for child in other.module.modules():
        if isinstance(child, torch.nn.Linear) and child is not other.module.lm_head:
            strided = torch.empty(child.weight.shape[1], child.weight.shape[0] * 2)[:, ::2].t()
            child.weight = torch.nn.Parameter(strided.copy_(child.weight.detach()))
    assert difference(reference, engine.record(other, REQUESTS, settings())) is None


def test_a_changed_weight_shows(reference: RunRecord) -> None:
    other = tiny("llama")
    with torch.no_grad():
        weight = other.module.model.layers[1].mlp.up_proj.weight
        weight[3, 5] = torch.nextafter(weight[3, 5], torch.tensor(10.0))
    assert difference(reference, engine.record(other, REQUESTS, settings())) == (
        "model.layers.1.mlp.up_proj of sequence 5"
    )
