"""The point table: names, order, edges and weights from the model alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from repro_audit import engine
from repro_audit.errors import InconclusiveError
from repro_audit.trace.record import Edge
from tests.helpers.engine_runs import loaded, tiny


def test_layers_of_a_llama() -> None:
    points = engine.required_points(tiny("llama"), "layers")
    assert [point.name for point in points] == [
        "model.embed_tokens",
        *(
            f"model.layers.{layer}.{part}"
            for layer in range(2)
            for part in ("k_cache", "v_cache", "self_attn", "mlp", "residual")
        ),
        "model.norm",
        "logits",
    ]
    assert {point.name for point in points if point.domain == "kv"} == {
        f"model.layers.{layer}.{part}_cache" for layer in range(2) for part in "kv"
    }
    attention = points[8]
    assert attention.name == "model.layers.1.self_attn"
    assert attention.inputs == (Edge(5), Edge(6, "causal"), Edge(7, "causal"))
    assert "model.layers.1.self_attn.o_proj.weight" in attention.weights
    assert "model.rotary_emb.inv_freq" in attention.weights
    assert points[0].weights == ("model.embed_tokens.weight",)


def test_every_parameter_is_read_by_a_point_at_every_level() -> None:
    model = tiny("qwen2")
    for level in ("layers", "ops"):
        read = {name for point in engine.required_points(model, level) for name in point.weights}
        assert {name for name, _ in model.module.named_parameters()} <= read


def test_at_ops_a_weight_has_one_reader() -> None:
    readers: dict[str, list[str]] = {}
    for point in engine.required_points(tiny("qwen3"), "ops"):
        for name in point.weights:
            readers.setdefault(name, []).append(point.name)
    assert readers["model.layers.0.self_attn.q_proj.weight"] == ["model.layers.0.self_attn.q_proj"]
    assert readers["model.layers.0.self_attn.q_norm.weight"] == ["model.layers.0.self_attn.q_norm"]
    assert readers["model.layers.1.mlp.down_proj.weight"] == ["model.layers.1.mlp"]
    assert readers["model.layers.1.self_attn.o_proj.weight"] == ["model.layers.1.self_attn"]
    several = {name for name, points in readers.items() if len(points) > 1}
    assert several <= {"model.rotary_emb.inv_freq", "model.embed_tokens.weight"}


def test_windows_and_parallel_residuals() -> None:
    (window, *_) = [
        edge
        for point in engine.required_points(tiny("mistral", sliding_window=16), "layers")
        for edge in point.inputs
        if edge.kind == "window"
    ]
    assert window.window == 16
    points = engine.required_points(tiny("gpt_neox", use_parallel_residual=True), "layers")
    mlp = next(point for point in points if point.name.endswith("0.mlp"))
    assert [points[edge.point].name for edge in mlp.inputs] == ["gpt_neox.embed_in"]


@pytest.mark.parametrize("family", ["gpt2", "gemma2", "mixtral", "phi3", "olmo2"])
def test_edges_point_backwards_and_every_point_is_used(family: str) -> None:
    for level in ("logits", "layers", "ops"):
        points = engine.required_points(tiny(family), level)
        assert points[-1].name == "logits"
        assert len({point.name for point in points}) == len(points)
        used = {edge.point for point in points for edge in point.inputs}
        assert used == set(range(len(points) - 1))
        assert all(edge.point < index for index, point in enumerate(points) for edge in point.inputs)


def test_the_table_does_not_depend_on_the_stored_type() -> None:
    for level in ("layers", "ops"):
        assert engine.required_points(tiny("llama"), level) == engine.required_points(
            tiny("llama", torch.bfloat16), level
        )


def test_a_model_that_is_no_decoder_is_refused_by_class() -> None:
    with pytest.raises(InconclusiveError, match="Linear is not built as a decoder"):
        engine.required_points(loaded(nn.Linear(2, 2), kind="hf"), "layers")
