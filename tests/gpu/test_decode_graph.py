"""Decoding from CUDA graphs gives the record of the CPU and of eager steps: rows, tokens, logits, counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from repro_audit import engine
from repro_audit.engine import Request, decode_graph, generate
from repro_audit.errors import InconclusiveError
from repro_audit.models.loaded import LoadedModel
from repro_audit.settings import Decoding, RunSettings
from repro_audit.trace.record import RunRecord
from tests.helpers.engine_runs import difference, scaled, settings, tiny

pytestmark = pytest.mark.gpu

PROMPT = tuple((7 * i) % 250 + 3 for i in range(45))
REQUESTS = (Request(2**64 - 4, PROMPT), Request(9, PROMPT[3:12]), Request(1, PROMPT[:1]))
BF16 = torch.bfloat16


def replayed(
    monkeypatch: pytest.MonkeyPatch, model: LoadedModel, requests: tuple[Request, ...] = REQUESTS, **how: Any
) -> int:
    """How many steps of a run were replayed; its record is that of eager steps and of the CPU."""
    decoding = Decoding(**{"max_new_tokens": 12, "seed": 2**64 - 1, **how.pop("decoding", {})})
    on_cpu = engine.record(model, requests, RunSettings(decoding, **how))
    found = engine.record(model, requests, RunSettings(decoding, device="cuda:0", **how))
    with monkeypatch.context() as patch:
        patch.setattr(generate, "device_of", lambda opened: None)
        eager = engine.record(model, requests, RunSettings(decoding, device="cuda:0", **how))
    assert difference(on_cpu, found) is None
    same_coverage(eager, found)
    assert difference(eager, found) is None
    assert found.cache_faults == ()
    assert eager.schedule["replayed_steps"] == 0
    assert eager.schedule["steps"] == found.schedule["steps"]
    return found.schedule["replayed_steps"]


def same_coverage(eager: RunRecord, found: RunRecord) -> None:
    for name in ("operators", "modules", "scalars", "constants", "buffers"):
        assert getattr(found, name) == getattr(eager, name), name


@pytest.mark.parametrize("activations", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "family",
    ["llama", "mistral", "qwen2", "qwen3", "smollm3", "phi3", "gemma", "granite", "olmo2", "starcoder2"],
)
def test_families(monkeypatch: pytest.MonkeyPatch, family: str, activations: str) -> None:
    assert replayed(monkeypatch, tiny(family, BF16), level="ops", activations=activations) == 9


@pytest.mark.parametrize(
    "values", [{}, {"top_k": 5}, {"top_p": 0.6}, {"top_k": 40, "top_p": 0.9}, {"temperature": 3.0}]
)
def test_sampled(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]) -> None:
    assert replayed(monkeypatch, tiny("llama"), decoding={"temperature": 0.9, **values}) == 9


@pytest.mark.parametrize("size", [1, 2, 3])
def test_batches_whose_sequences_stop_one_by_one(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    drawn = [s.generated for s in engine.record(tiny(), REQUESTS, settings(new_tokens=12)).sequences]
    stops = (drawn[1][3], drawn[0][6])
    assert replayed(monkeypatch, tiny(), decoding={"stop_token_ids": stops}, batch_size=size) > 5


def test_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_graph, "LEAST_BUCKET", 16)
    requests = (Request(0, PROMPT[:1]), Request(1, PROMPT[5:6]))
    assert replayed(monkeypatch, tiny("mistral"), requests, decoding={"max_new_tokens": 70}) > 55


def test_a_mixture_of_experts_decodes_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replayed(monkeypatch, tiny("mixtral", BF16), level="ops") == 0


@pytest.mark.parametrize("kind", ["llama3", "yarn", "dynamic"])
def test_rope_scalings(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    assert replayed(monkeypatch, scaled(kind)) in (0, 9)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_named_as_on_the_cpu(value: float) -> None:
    drawn = engine.record(tiny(), REQUESTS[:1], settings(new_tokens=12)).sequences[0].generated
    said = []
    for device in ("cpu", "cuda:0"):
        model = tiny()
        module: Any = model.module
        # Layer 0's attention meets it when the token is fed, in a replayed step.
        module.get_input_embeddings().weight.data[drawn[7]] = value
        with pytest.raises(InconclusiveError) as error:
            engine.record(model, REQUESTS[:1], settings(new_tokens=12, device=device))
        said.append(str(error.value))
    assert said[0] == said[1]


def test_memory_that_runs_out_at_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: object, step: object) -> object:
        raise torch.OutOfMemoryError("pretended")

    expected = engine.record(tiny(), REQUESTS, settings(new_tokens=8))
    monkeypatch.setattr(decode_graph.Device, "capture", refused)
    found = engine.record(tiny(), REQUESTS, settings(new_tokens=8, device="cuda:0"))
    assert difference(expected, found) is None
    assert found.schedule["replayed_steps"] == 0


def test_a_capture_that_breaks_leaves_the_device_usable() -> None:
    device = decode_graph.Device("cuda:0")
    held = torch.ones(4, device="cuda")

    def waits() -> None:
        float(held.sum())

    for _ in range(2):
        with pytest.raises(RuntimeError):
            device.capture(waits)
    again = device.capture(lambda: held.add_(1))
    again()
    again()
    assert device.fetch(held.to(torch.uint8))().tolist() == [3] * 4
    assert (
        difference(*(engine.record(tiny(), REQUESTS, settings(device=d)) for d in ("cpu", "cuda:0"))) is None
    )
