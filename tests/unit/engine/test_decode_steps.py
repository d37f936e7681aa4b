"""Decoding by static steps gives the record of decoding operator by operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from repro_audit import engine
from repro_audit.engine import Request
from repro_audit.errors import InconclusiveError
from repro_audit.models.loaded import LoadedModel
from repro_audit.settings import Decoding, RunSettings
from repro_audit.trace.record import RunRecord
from tests.helpers.engine_runs import difference, settings, tiny
from tests.helpers.static_decoding import pretended

PROMPT = tuple((7 * i) % 250 + 3 for i in range(45))
REQUESTS = (Request(2**64 - 4, PROMPT), Request(9, PROMPT[3:12]), Request(1, PROMPT[:1]))


def both(
    monkeypatch: pytest.MonkeyPatch,
    model: LoadedModel,
    how: RunSettings,
    requests: tuple[Request, ...] = REQUESTS,
    breaks: str = "",
) -> tuple[RunRecord, int]:
    """The static record, found equal to the other; and how many steps were replayed."""
    expected = engine.record(model, requests, how)
    with pretended(monkeypatch, breaks) as devices:
        found = engine.record(model, requests, how)
    assert difference(expected, found) is None
    for name in ("operators", "modules", "scalars", "constants", "buffers", "cache_faults", "schedule"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.cache_faults == ()
    assert devices
    return found, sum(device.launches for device in devices)


@pytest.mark.parametrize("activations", ["fp32", "bf16"])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3", "phi3", "gemma", "starcoder2"])
def test_greedy(monkeypatch: pytest.MonkeyPatch, family: str, activations: str) -> None:
    how = settings(new_tokens=9, activations=activations)
    _, launches = both(monkeypatch, tiny(family, torch.bfloat16), how)
    assert launches >= 8


@pytest.mark.parametrize(
    "values", [{}, {"top_k": 5}, {"top_p": 0.6}, {"top_k": 40, "top_p": 0.9}, {"temperature": 3.0}]
)
def test_sampled(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]) -> None:
    decoding = Decoding(8, **{"temperature": 0.9, "seed": 2**64 - 1, **values})
    found, _ = both(monkeypatch, tiny(), RunSettings(decoding, level="layers"))
    assert len({s.generated for s in found.sequences}) == 3


@pytest.mark.parametrize("size", [1, 2, 3])
def test_batches_whose_sequences_stop_one_by_one(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    drawn = [s.generated for s in engine.record(tiny(), REQUESTS, settings(new_tokens=12)).sequences]
    # The middle one stops early, then the first; the last in the cache moves up.
    stops = (drawn[1][3], drawn[0][6])
    how = RunSettings(Decoding(12, stop_token_ids=stops), level="ops", batch_size=size)
    found, _ = both(monkeypatch, tiny(), how)
    assert [len(s.generated) for s in found.sequences][:2] == [7, 4]


def test_a_bucket_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 1 to 40 keys over buckets of 16, 32 and what the cache holds; single tokens from the start."""
    how = RunSettings(Decoding(40), level="layers")
    both(monkeypatch, tiny("mistral"), how, (Request(0, PROMPT[:1]), Request(1, PROMPT[5:6])))


def test_chunks_and_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    for values in ({"level": "logits"}, {"level": "ops", "prefill_chunk": 4}, {"level": "layers"}):
        both(monkeypatch, tiny("qwen2"), settings(new_tokens=6, **values))


@pytest.mark.parametrize("breaks", ["capture", "watched", "step 1", "step 2", "step 3", "step 5"])
def test_what_cannot_be_replayed_goes_on_operator_by_operator(
    monkeypatch: pytest.MonkeyPatch, breaks: str
) -> None:
    both(monkeypatch, tiny(), settings(new_tokens=8), breaks=breaks)


def test_once_a_run_gave_up_it_tries_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended(monkeypatch, "capture") as devices:
        engine.record(tiny(), REQUESTS, settings(new_tokens=8, batch_size=1))
    assert len(devices) == 1


def test_steps_are_replayed_and_one_runs_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = engine.record(tiny(), REQUESTS[:1], settings(new_tokens=12)).sequences[0].generated
    how = RunSettings(Decoding(12, stop_token_ids=(drawn[5],)), level="layers")
    with pretended(monkeypatch) as devices:
        engine.record(tiny(), REQUESTS[:1], how)
    # The first token comes from the prompt; five steps draw the rest, one more ran past the stop token.
    assert [(d.captures, d.launches) for d in devices] == [(1, 6)]


def test_values_are_kept_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended(monkeypatch) as devices:
        engine.record(tiny(), REQUESTS, settings(save_values=True))
    assert not devices


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_models_without_our_attention(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    with pretended(monkeypatch) as devices:
        engine.record(tiny(family), REQUESTS, settings())
    assert not devices


@pytest.mark.parametrize("where", ["prompt", "drawn"])
def test_what_is_not_finite_is_named(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A step that sets the flag runs again without it, and raises what it always did."""
    drawn = engine.record(tiny(), REQUESTS[:1], settings(new_tokens=8)).sequences[0].generated

    def poisoned() -> LoadedModel:
        model = tiny()
        module: Any = model.module
        token = PROMPT[7] if where == "prompt" else drawn[4]
        module.get_input_embeddings().weight.data[token] = float("nan")
        return model

    how = RunSettings(Decoding(8), level="layers")
    with pytest.raises(InconclusiveError, match="an attention") as expected:
        engine.record(poisoned(), REQUESTS[:1], how)
    with pretended(monkeypatch), pytest.raises(InconclusiveError) as found:
        engine.record(poisoned(), REQUESTS[:1], how)
    assert str(found.value) == str(expected.value)
