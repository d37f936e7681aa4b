"""Every family under every invariance, on the CPU; tests/gpu/test_engine.py runs the same ones on a GPU."""

from __future__ import annotations

import pytest

from repro_audit import engine
from repro_audit.engine import Replay, Request
from repro_audit.errors import InconclusiveError
from tests.helpers.engine_runs import DECODERS, SCALINGS, difference, scaled, settings, tiny
from tests.helpers.tiny_modules import MODULES, tiny_module

PROMPT = tuple((11 * i) % 240 + 3 for i in range(28))
REQUESTS = (Request(0, PROMPT), Request(1, PROMPT[:9]), Request(2, PROMPT[:1]))


@pytest.mark.parametrize("family", DECODERS)
def test_batch_cache_chunks_order_and_replay(family: str) -> None:
    """Longer than the windows of Mistral, Gemma 2 and Gemma 3, and decoded past them."""
    model = tiny(family)
    together = engine.record(model, REQUESTS, settings(new_tokens=4))
    plain = engine.record(model, REQUESTS, settings(new_tokens=4, batch_size=1), fuse=False)
    assert difference(together, plain) is None
    assert (
        difference(together, engine.record(model, REQUESTS, settings(new_tokens=4, prefill_chunk=7))) is None
    )
    backwards = engine.record(model, REQUESTS[::-1], settings(new_tokens=4))
    backwards.sequences.reverse()
    assert difference(together, backwards) is None
    drawn = [Replay(s.id, s.prompt, s.generated) for s in together.sequences]
    assert difference(together, engine.replay(model, drawn, settings(new_tokens=4))) is None


@pytest.mark.parametrize("kind", sorted(SCALINGS))
def test_rope_scalings_inside_the_original_length(kind: str) -> None:
    model = scaled(kind)
    together = engine.record(model, REQUESTS, settings())
    assert difference(together, engine.record(model, REQUESTS, settings(batch_size=1), fuse=False)) is None
    assert any(buffer.name.endswith("inv_freq") for buffer in together.buffers)
    if kind in ("dynamic", "longrope"):
        with pytest.raises(InconclusiveError, match=f"RoPE type {kind} depends on the length: 129 exceeds"):
            engine.record(model, [Request(0, PROMPT * 4 + PROMPT[:12])], settings())


@pytest.mark.parametrize("name", MODULES)
def test_modules_with_their_inputs(name: str) -> None:
    model = tiny_module(name)
    inputs = model.example_inputs or {}
    found = engine.score_module(model, inputs, settings(new_tokens=0))
    assert difference(found, engine.score_module(model, inputs, settings(new_tokens=0), fuse=False)) is None


def test_padding_on_either_side_gives_the_same_rows() -> None:
    right, left = (tiny_module(name) for name in ("bert", "bert, left padding"))
    a, b = (engine.score_module(m, m.example_inputs or {}, settings(new_tokens=0)) for m in (right, left))
    assert difference(a, b) is None
