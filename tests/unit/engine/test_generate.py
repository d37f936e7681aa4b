"""Generation and replay: what is fed, drawn, refused, and what a fault in the cache looks like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from repro_audit import engine
from repro_audit.engine import Replay, Request
from repro_audit.engine.cache import PositionCache
from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.settings import Decoding, RunSettings
from tests.helpers.engine_runs import difference, settings, tiny

PROMPT = Request(4, (5, 6, 7, 8))


def test_rows_cover_what_was_fed() -> None:
    record = engine.record(tiny(), [PROMPT], settings(new_tokens=3))
    (sequence,) = record.sequences
    assert len(sequence.generated) == 3
    for index, point in enumerate(record.points):
        rows = sequence.rows[index]
        expected = (3, 3) if point.name == "logits" else (0, 6)
        assert (rows.first, rows.digests.shape[0]) == expected
        assert rows.digests.shape[1:] == ((2, 32) if point.domain == "kv" else (32,))
    assert sequence.top2 is not None
    assert [int(token) for token in sequence.top2[:, 0, 0]] == list(sequence.generated)
    assert record.cache_faults == ()
    assert record.attention == "eager"
    assert all(module.covered == module.total for module in record.modules)
    assert {operator.classed for operator in record.operators} <= {"exact", "specified", "structural"}


def test_scoring_feeds_the_whole_prompt() -> None:
    record = engine.record(tiny(), [PROMPT], settings(new_tokens=0))
    (sequence,) = record.sequences
    assert sequence.generated == ()
    assert {rows.digests.shape[0] for rows in sequence.rows.values()} == {4}
    again = engine.replay(tiny(), [Replay(4, PROMPT.prompt_ids, ())], settings(new_tokens=0))
    assert difference(record, again) is None


def test_a_stop_token_ends_its_sequence_alone() -> None:
    model = tiny()
    other = Request(9, (20, 21, 22))
    free = engine.record(model, [PROMPT, other], settings("layers", 6, temperature=1.0))
    stop = free.sequences[0].generated[2]
    decoding = Decoding(6, temperature=1.0, seed=7, stop_token_ids=(stop,))
    record = engine.record(model, [PROMPT, other], RunSettings(decoding, level="layers"))
    first = free.sequences[0].generated.index(stop) + 1
    assert record.sequences[0].generated == free.sequences[0].generated[:first]
    if stop not in free.sequences[1].generated:
        assert record.sequences[1].generated == free.sequences[1].generated
    again = engine.replay(
        model,
        [Replay(s.id, s.prompt, s.generated) for s in record.sequences],
        RunSettings(decoding, level="layers"),
    )
    assert difference(record, again) is None


def test_sampling_depends_on_id_and_seed_not_on_the_batch() -> None:
    model = tiny()
    chosen = settings("logits", 8, temperature=1.5)
    (alone,) = engine.record(model, [PROMPT], chosen).sequences
    crowd = engine.record(model, [Request(1, PROMPT.prompt_ids), PROMPT], chosen).sequences
    assert crowd[1].generated == alone.generated
    assert crowd[0].generated != alone.generated
    other = RunSettings(Decoding(8, temperature=1.5, seed=8), level="logits")
    assert engine.record(model, [PROMPT], other).sequences[0].generated != alone.generated


def test_replay_returns_what_the_sampler_picks() -> None:
    model = tiny()
    (made,) = engine.record(model, [PROMPT], settings()).sequences
    forged = list(made.generated)
    forged[2] = (forged[2] + 1) % 300
    (again,) = engine.replay(model, [Replay(made.id, made.prompt, tuple(forged))], settings()).sequences
    assert again.generated[:3] == made.generated[:3]
    assert again.generated[2] != forged[2]
    assert len(again.generated) == len(forged)


def test_a_salt_keys_every_row() -> None:
    model = tiny()
    plain = engine.record(model, [PROMPT], settings())
    salted = engine.record(model, [PROMPT], settings(), row_salt=bytes(32))
    for point, rows in plain.sequences[0].rows.items():
        assert not (rows.digests == salted.sequences[0].rows[point].digests).all(axis=-1).any()


def test_values_on_request() -> None:
    record = engine.record(tiny(), [PROMPT], settings("layers", save_values=True))
    assert record.values["s0/model.norm"].shape == (8, 64)
    assert record.values["s0/model.layers.0.k_cache"].shape == (8, 2, 16)
    assert record.values["s0/logits"].dtype == np.float32


def test_a_cache_that_changes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PositionCache.update

    def rotten(self: Any, key: Any, value: Any, layer: int, *args: Any, **kwargs: Any) -> Any:
        result = original(self, key, value, layer, *args, **kwargs)
        if layer == 1 and self.spans[0].first == 5:
            with torch._C._DisableTorchDispatch():  # type: ignore[attr-defined]
                self.values[1][0, 1, 2] += 1.0
        return result

    monkeypatch.setattr(PositionCache, "update", rotten)
    record = engine.record(tiny(), [PROMPT], settings("layers"))
    assert record.cache_faults == ("model.layers.1.v_cache s0 2",)


REFUSED: list[tuple[list[Request], RunSettings, type[Exception], str]] = [
    ([], settings(), UsageError, "no prompt"),
    ([Request(0, ())], settings(), UsageError, "prompt of sequence 0 is empty"),
    ([Request(3, tuple(range(255)))], settings(new_tokens=4), UsageError, "context holds 256"),
    ([PROMPT, PROMPT], settings(), UsageError, "same id"),
    ([PROMPT], settings(profile="exact"), UsageError, "unknown profile"),
    ([PROMPT], settings(device="cuda"), InconclusiveError, "use --device cpu"),
    ([PROMPT], settings(activations="int8"), UsageError, "unknown activation"),
]


@pytest.mark.parametrize(("requests", "chosen", "error", "message"), REFUSED)
def test_refused(requests: list[Request], chosen: RunSettings, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        engine.record(tiny(), requests, chosen)


def test_training_mode_is_refused() -> None:
    model = tiny()
    model.module.train()
    with pytest.raises(InconclusiveError, match="the model is in training mode"):
        engine.record(model, [PROMPT], settings())


def test_overflowing_logits_are_refused() -> None:
    model = tiny()
    with torch.no_grad():
        model.module.model.norm.weight.fill_(float("inf"))
    with pytest.raises(InconclusiveError, match=r"NaN|non-finite"):
        engine.record(model, [PROMPT], settings("logits"))


@pytest.mark.parametrize("fuse", [True, False])
def test_non_finite_keys_stop_the_run(fuse: bool) -> None:
    model = tiny()
    with torch.no_grad():
        model.module.model.layers[1].self_attn.k_proj.weight.fill_(float("nan"))
    with pytest.raises(InconclusiveError, match="non-finite"):
        engine.record(model, [PROMPT], settings("logits"), fuse=fuse)


def test_dynamic_rope_holds_within_the_original_length() -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    model = tiny(rope_parameters=rope, max_position_embeddings=32)
    prompt = Request(0, tuple(range(3, 27)))
    whole = engine.record(model, [prompt], settings(new_tokens=8))
    assert difference(whole, engine.record(model, [prompt], settings(new_tokens=8, prefill_chunk=5))) is None
    with pytest.raises(InconclusiveError, match=r"RoPE type dynamic .* exceeds the original 32"):
        engine.record(model, [prompt], settings(new_tokens=9))


def test_an_interrupt_leaves_the_model_as_it_was() -> None:
    model = tiny(dtype=torch.bfloat16)
    before = list(model.module.parameters())

    class Impatient:
        def stage(self, name: str, total: int | None = None) -> None:
            pass

        def advance(self, n: int = 1) -> None:
            raise KeyboardInterrupt

        def note(self, text: str) -> None:
            pass

    with pytest.raises(KeyboardInterrupt):
        engine.record(model, [PROMPT], settings(), observer=Impatient())
    assert all(a is b for a, b in zip(before, model.module.parameters(), strict=True))
    assert not any(child._forward_hooks or "forward" in child.__dict__ for child in model.module.modules())
    assert model.module.config._attn_implementation in ("eager", "sdpa")
    assert not torch.is_inference_mode_enabled()


def test_derived_buffers_are_recomputed_and_digested() -> None:
    model = tiny()
    rotary = model.module.model.rotary_emb
    expected = engine.record(model, [PROMPT], settings())
    with torch.no_grad():
        rotary.inv_freq.mul_(2.0)
    kept = rotary.inv_freq.clone()
    again = engine.record(model, [PROMPT], settings())
    assert difference(expected, again) is None
    assert (rotary.inv_freq == kept).all()
    assert [buffer.name for buffer in again.buffers] == [
        "model.rotary_emb.inv_freq",
        "model.rotary_emb.original_inv_freq",
    ]
