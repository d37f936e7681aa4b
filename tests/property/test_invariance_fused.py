"""Fused = unfused, for every family whose attention the engine takes over, and stored types under any
activation type.
"""

from __future__ import annotations

import pytest
import torch

from repro_audit import engine
from repro_audit.engine import Request, fused, texts
from repro_audit.models.loaded import LoadedModel
from tests.helpers.engine_runs import difference, settings, tiny

REQUESTS = (Request(5, tuple((5 * i) % 250 + 3 for i in range(37))), Request(7, (9, 8, 7)))
TYPES = [(torch.float32, "fp32"), (torch.bfloat16, "fp32"), (torch.bfloat16, "bf16"), (torch.float16, "bf16")]


@pytest.mark.parametrize("family", sorted(fused.FAMILIES))
def test_families(family: str) -> None:
    model = tiny(family, torch.bfloat16)
    assert fused.fuses_attention(model.module)
    eager = engine.record(model, REQUESTS, settings(), fuse=False)
    packed = engine.record(model, REQUESTS, settings(), fuse=True)
    assert difference(eager, packed) is None
    assert any(operator.kernel == "attention.attention" for operator in packed.operators)
    assert not any(operator.kernel == "attention.attention" for operator in eager.operators)
    assert {module.covered for module in packed.modules if module.kind == "attentions"} == {2}


@pytest.mark.parametrize(("stored", "activations"), TYPES)
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma"])
def test_types(family: str, stored: torch.dtype, activations: str) -> None:
    model = tiny(family, stored)
    eager = engine.record(model, REQUESTS, settings(activations=activations), fuse=False)
    packed = engine.record(model, REQUESTS, settings(activations=activations), fuse=True)
    assert difference(eager, packed) is None
    header = packed.sequences[0].rows[0].header.dtype
    assert header == {"fp32": "float32", "bf16": "bfloat16"}[activations]


@pytest.mark.parametrize("family", ["gemma2", "gpt2", "gpt_neox"])
def test_families_without_fused_attention_batch_alike(family: str) -> None:
    model = tiny(family)
    together = engine.record(model, REQUESTS, settings())
    assert not fused.fuses_attention(model.module)
    apart = [engine.record(model, [request], settings(prefill_chunk=4)) for request in REQUESTS]
    for index, one in enumerate(apart):
        together_one = engine.record(model, [REQUESTS[index]], settings())
        assert difference(one, together_one) is None
        assert one.sequences[0].generated == together.sequences[index].generated


def test_only_the_known_text_is_fused() -> None:
    from transformers.models.gemma2.modeling_gemma2 import Gemma2DecoderLayer
    from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as capped
    from transformers.models.llama.modeling_llama import (
        LlamaDecoderLayer,
        LlamaRMSNorm,
        eager_attention_forward,
    )

    other = type(
        "OtherRMSNorm", (torch.nn.Module,), {"forward": lambda self, hidden_states: hidden_states * 2}
    )
    assert texts.reads(LlamaRMSNorm.forward, texts.RMS_NORM)
    assert not texts.reads(other.forward, texts.RMS_NORM)
    assert texts.reads(eager_attention_forward, texts.ATTENTION)
    assert not texts.reads(capped, texts.ATTENTION)
    assert texts.reads(LlamaDecoderLayer.forward, texts.DECODER_LAYER)
    assert not texts.reads(Gemma2DecoderLayer.forward, texts.DECODER_LAYER)


def test_a_layer_with_an_unknown_part_is_dispatched() -> None:
    """A silent layer runs outside the table, so one part without a kernel must keep it inside."""

    def additions(model: LoadedModel) -> tuple[int, bool]:
        record = engine.record(model, REQUESTS[1:], settings("logits", 1))
        calls = {operator.operator: operator.calls for operator in record.operators}
        return calls["aten.add.Tensor"], "aten.view.default" in calls

    assert additions(tiny("llama")) == (4, False)
    changed = tiny("llama")
    for layer in changed.module.model.layers:
        layer.mlp.act_fn = torch.nn.GELU().eval()
    assert additions(changed) == (4, True)
