"""Whole models on a GPU give the records of the CPU: every digest, token and top logit of every family."""

from __future__ import annotations

import functools

import pytest
import torch

from repro_audit import engine
from repro_audit.engine import Replay, Request
from repro_audit.trace.record import RunRecord
from tests.helpers import tiny_models
from tests.helpers.engine_runs import DECODERS, SCALINGS, difference, loaded, scaled, settings, tiny
from tests.helpers.tiny_modules import MODULES, tiny_module

pytestmark = pytest.mark.gpu

PROMPT = tuple((7 * i) % 250 + 3 for i in range(45))
REQUESTS = (Request(4, PROMPT), Request(9, PROMPT[3:12]), Request(1, PROMPT[:1]))


@functools.cache
def on_cpu(family: str, dtype: torch.dtype, activations: str) -> RunRecord:
    return engine.record(tiny(family, dtype), REQUESTS, settings(activations=activations))


def on_gpu(
    family: str, dtype: torch.dtype = torch.bfloat16, fuse: bool = True, **values: object
) -> RunRecord:
    return engine.record(tiny(family, dtype), REQUESTS, settings(device="cuda:0", **values), fuse=fuse)


def poison() -> None:
    """Leave memory full of NaN to the allocator, of every size it keeps apart, on the stream at hand."""
    sizes = [1 << power for power in range(7, 21)]
    held = [torch.full((size,), float("nan"), device="cuda") for size in sizes for _ in range(24)]
    del held


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("family", DECODERS)
def test_family(family: str, fuse: bool) -> None:
    assert difference(on_cpu(family, torch.bfloat16, "fp32"), on_gpu(family, fuse=fuse)) is None


@pytest.mark.parametrize("family", DECODERS)
def test_family_in_bf16(family: str) -> None:
    expected = on_cpu(family, torch.bfloat16, "bf16")
    assert difference(expected, on_gpu(family, activations="bf16")) is None


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2", "mixtral"])
def test_family_in_fp16_and_operator_by_operator(family: str) -> None:
    expected = on_cpu(family, torch.bfloat16, "fp16")
    assert difference(expected, on_gpu(family, activations="fp16")) is None
    expected = on_cpu(family, torch.bfloat16, "bf16")
    assert difference(expected, on_gpu(family, activations="bf16", fuse=False)) is None


@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_weights_of_other_types(family: str, dtype: torch.dtype) -> None:
    assert difference(on_cpu(family, dtype, "fp32"), on_gpu(family, dtype)) is None


@pytest.mark.parametrize("values", [{"batch_size": 1}, {"batch_size": 2}, {"prefill_chunk": 5}])
def test_batches_and_chunks(values: dict[str, int]) -> None:
    assert difference(on_cpu("qwen3", torch.bfloat16, "fp32"), on_gpu("qwen3", **values)) is None


def test_a_replay_of_what_the_cpu_drew() -> None:
    drawn = engine.record(tiny("llama"), REQUESTS, settings(new_tokens=20, temperature=0.9))
    sequences = [Replay(s.id, s.prompt, s.generated) for s in drawn.sequences]
    again = engine.replay(tiny("llama"), sequences, settings(new_tokens=20, temperature=0.9, device="cuda:0"))
    assert difference(drawn, again) is None


def test_what_a_process_may_have_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32, reduced-precision sums, cuDNN's choices, a side stream, memory full of NaN: none may matter."""
    families = ("llama", "mixtral", "gpt2")
    torch.set_float32_matmul_precision("medium")
    for owner, name in (
        (torch.backends.cuda.matmul, "allow_tf32"),
        (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
        (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
        (torch.backends.cudnn, "allow_tf32"),
        (torch.backends.cudnn, "benchmark"),
    ):
        monkeypatch.setattr(owner, name, True)
    found = []
    try:
        # The allocator keeps the streams' memory apart.
        for stream in (torch.cuda.Stream(), torch.cuda.default_stream()):
            with torch.cuda.stream(stream):
                for family in families:
                    poison()
                    found.append((family, on_gpu(family)))
    finally:
        torch.set_float32_matmul_precision("highest")
    for family, record in found:
        assert difference(on_cpu(family, torch.bfloat16, "fp32"), record) is None


def test_fifty_repetitions_under_load() -> None:
    load = torch.randn(4096, 4096, device="cuda")
    stream, expected = torch.cuda.Stream(), on_cpu("llama", torch.bfloat16, "fp32")
    for _ in range(50):
        with torch.cuda.stream(stream):
            load @ load
        assert difference(expected, on_gpu("llama")) is None


@pytest.mark.parametrize("kind", sorted(SCALINGS))
def test_rope_scalings(kind: str) -> None:
    expected = engine.record(scaled(kind), REQUESTS, settings())
    assert difference(expected, engine.record(scaled(kind), REQUESTS, settings(device="cuda:0"))) is None


@pytest.mark.parametrize("name", ["mlp", *MODULES])
def test_modules_with_their_inputs(name: str) -> None:
    model = loaded(tiny_models.make_mlp()) if name == "mlp" else tiny_module(name)
    inputs = model.example_inputs or tiny_models.make_mlp_with_inputs()[1]
    expected = engine.score_module(model, inputs, settings(new_tokens=0))
    found = engine.score_module(model, inputs, settings(new_tokens=0, device="cuda:0"))
    assert difference(expected, found) is None
