"""Any module on given inputs: tokens and samples, padding that never reaches the model, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from repro_audit import engine
from repro_audit.errors import InconclusiveError, UsageError
from tests.helpers.engine_runs import difference, loaded, settings


def bert() -> Any:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        vocab_size=50,
        max_position_embeddings=64,
    )
    return loaded(BertModel(config).eval())


IDS = torch.tensor([[3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14]])


def padded(left: int, right: int) -> dict[str, torch.Tensor]:
    """Sequence 0 of four tokens and sequence 1 of six, padded on either side with nonsense."""
    width = left + 6 + right
    ids, mask = torch.full((2, width), 33), torch.zeros(2, width, dtype=torch.int64)
    ids[0, left : left + 4], mask[0, left : left + 4] = IDS[0, :4], 1
    ids[1, left : left + 6], mask[1, left : left + 6] = IDS[1], 1
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("level", ["logits", "layers", "ops"])
def test_padding_never_reaches_the_model(level: str) -> None:
    model = bert()
    plain = engine.score_module(model, padded(0, 0), settings(level))
    for left, right in ((0, 5), (3, 0), (2, 4)):
        assert difference(plain, engine.score_module(model, padded(left, right), settings(level))) is None
    assert [len(sequence.prompt) for sequence in plain.sequences] == [4, 6]


def test_tokens_and_whole_outputs() -> None:
    record = engine.score_module(bert(), padded(0, 0), settings("layers"))
    domains = {point.name: point.domain for point in record.points}
    assert domains == {
        "embeddings": "tok",
        "encoder": "tok",
        "pooler": "sample",
        "output.last_hidden_state": "tok",
        "output.pooler_output": "sample",
    }
    kinds = {point.name: [edge.kind for edge in point.inputs] for point in record.points}
    assert kinds["encoder"] == ["all"]
    assert kinds["output.last_hidden_state"] == ["row"]
    assert record.sequences[0].rows[0].digests.shape == (4, 32)
    assert record.sequences[0].rows[2].digests.shape == (1, 32)


def test_samples() -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    ).eval()
    model = loaded(module)
    images = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    record = engine.score_module(model, {"input": images}, settings())
    assert {point.domain for point in record.points} == {"sample"}
    assert record.sequences[0].rows[0].digests.shape == (5, 32)
    alone = engine.score_module(model, {"input": images[2:3]}, settings())
    for point, rows in alone.sequences[0].rows.items():
        assert (rows.digests[0] == record.sequences[0].rows[point].digests[2]).all()


def test_record_and_replay_take_a_module_on_its_own_inputs() -> None:
    model = loaded(nn.Linear(4, 3).eval(), example_inputs={"input": torch.randn(2, 4)})
    record = engine.record(model, [], settings())
    assert difference(record, engine.replay(model, [], settings())) is None
    assert record.points == engine.required_points(model, "ops")


def test_a_module_that_runs_twice_has_two_points() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.layer(x))

    record = engine.score_module(loaded(Twice().eval()), {"x": torch.randn(2, 4)}, settings())
    assert [point.name for point in record.points] == ["layer", "layer#2", "output"]
    assert record.points[1].inputs[0].point == 0


def test_encoder_layers_take_the_path_of_ordinary_operators() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(50, 32)
            self.encode = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.encode(self.embed(input_ids))

    torch.manual_seed(0)
    record = engine.score_module(loaded(Tagger().eval()), {"input_ids": IDS}, settings())
    attention = next(point for point in record.points if point.name == "encode.self_attn")
    assert [edge.kind for edge in attention.inputs] == ["all"]


def test_bfloat16_activations() -> None:
    model = loaded(nn.Linear(4, 3).eval())
    record = engine.score_module(model, {"input": torch.randn(2, 4)}, settings(activations="bf16"))
    assert {rows.header.dtype for rows in record.sequences[0].rows.values()} == {"bfloat16"}


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table


def test_refused() -> None:
    gap = padded(0, 2)
    gap["attention_mask"][1, 2] = 0
    with pytest.raises(InconclusiveError, match="sequence 1 has a gap"):
        engine.score_module(bert(), gap, settings())
    nothing = padded(0, 0)
    nothing["attention_mask"][0] = 0
    with pytest.raises(UsageError, match="sequence 0 has no real position"):
        engine.score_module(bert(), nothing, settings())
    with pytest.raises(UsageError, match="needs inputs"):
        engine.score_module(bert(), {}, settings())
    with pytest.raises(InconclusiveError, match="buffer table is not stored"):
        engine.score_module(loaded(Hidden().eval()), {"x": torch.randn(2, 4)}, settings())
