"""The invariances at the sizes where kernels change their ways: rows of a product, batch sizes, prompt
lengths, padding, repetitions. Every test runs on the CPU and, marked ``gpu``, on a GPU against the CPU.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from repro_kernels.ops import attention, gemm

from repro_audit import engine
from repro_audit.engine import Request, points, score
from repro_audit.models.loaded import LoadedModel
from repro_audit.trace.record import RunRecord
from tests.helpers.engine_runs import difference, loaded, settings, tiny
from tests.helpers.tiny_modules import tiny_module

DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)]
everywhere = pytest.mark.parametrize("device", DEVICES)
ROWS = (*range(1, 65), 65, 128, 255, 256, 257, 2048)
BATCHES = (1, 2, 7, 16, 32, 33, 45)
LENGTHS = (1, 15, 16, 17, 63, 64, 65, 255, 256, 257)
PADDING = (1, 7, 64)
TOKENS = tuple((37 * i + i * i) % 300 + 3 for i in range(max(LENGTHS)))
F32, BF16 = torch.float32, torch.bfloat16
NAN = float("nan")


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    kind = torch.int32 if a.dtype == F32 else torch.int16
    return a.dtype == b.dtype and torch.equal(a.view(kind).cpu(), b.view(kind).cpu())


@everywhere
@pytest.mark.parametrize("k", [576, 577])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_rows_of_a_linear(device: str, k: int, dtype: torch.dtype) -> None:
    x, w = drawn(max(ROWS), k, seed=1).to(dtype), drawn(72, k, seed=2).to(BF16)
    bias = drawn(72, seed=3).to(BF16)
    expected = gemm.linear(x, w, bias)
    assert same(expected[:1], gemm.linear(x[:1], w, bias))
    x, w, bias = x.to(device), w.to(device), bias.to(device)
    differing = [m for m in ROWS if not same(gemm.linear(x[:m], w, bias), expected[:m])]
    assert differing == []


@functools.cache
def decoder(family: str) -> LoadedModel:
    """A tiny decoder with room for every length."""
    more = {"n_positions": 512} if family == "gpt2" else {"max_position_embeddings": 512}
    return replace(tiny(family, BF16, **more), context_length=512)


def first(record: RunRecord, count: int) -> RunRecord:
    """The record of the first sequences alone."""
    return replace(record, sequences=record.sequences[:count])


@functools.cache
def alone(family: str, requests: tuple[Request, ...], new_tokens: int) -> RunRecord:
    """On the CPU, one sequence after the other, no kernel fused."""
    how = settings(new_tokens=new_tokens, batch_size=1)
    return engine.record(decoder(family), requests, how, fuse=False)


MANY = tuple(Request(100 + i, TOKENS[i : i + i // 2 + 1]) for i in range(max(BATCHES)))


@everywhere
def test_batch_sizes(device: str) -> None:
    """Each sequence's rows alone and among others; those of 17 positions and more pass the window."""
    family = "mistral"
    expected = alone(family, MANY, 2)
    differing = {}
    for size in BATCHES:
        how = settings(new_tokens=2, batch_size=size, device=device)
        found = engine.record(decoder(family), MANY[:size], how)
        differing[size] = difference(first(expected, size), found)
    assert differing == dict.fromkeys(BATCHES)


PREFIXES = tuple(Request(n, TOKENS[:n]) for n in LENGTHS)


@everywhere
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gpt2"])
def test_prompt_lengths_chunks_and_order(device: str, family: str) -> None:
    """Prompts past every window, decoded past it; whole, in chunks and token by token; in another order."""
    expected, model = alone(family, PREFIXES, 3), decoder(family)
    packed = family in ("llama", "mistral")
    found = {}
    for chunk in (0, 16, 100) if packed else (100,):
        how = settings(new_tokens=3, batch_size=4, prefill_chunk=chunk, device=device)
        made = engine.record(model, PREFIXES[::-1] if chunk else PREFIXES, how)
        made.sequences.sort(key=lambda sequence: sequence.id)
        found[chunk] = difference(expected, made)
    ends = [index for index, n in enumerate(LENGTHS) if n == 65 or (n == 257 and packed)]
    single = settings(new_tokens=3, prefill_chunk=1, device=device)
    tokens = engine.record(model, [PREFIXES[index] for index in ends], single)
    picked = replace(expected, sequences=[expected.sequences[index] for index in ends])
    found["token by token"] = difference(picked, tokens)
    assert found == dict.fromkeys(found)


@everywhere
def test_shared_prefixes(device: str) -> None:
    """Every prompt begins the longest one, and so do its rows."""
    record = engine.record(decoder("mistral"), PREFIXES, settings(new_tokens=0, device=device))
    longest = record.sequences[-1]
    for length, sequence in zip(LENGTHS, record.sequences, strict=True):
        for index, rows in sequence.rows.items():
            assert len(rows.digests) == length
            assert (rows.digests == longest.rows[index].digests[:length]).all(), record.points[index].name


def padded(tokens: tuple[int, ...], before: int, after: int) -> dict[str, torch.Tensor]:
    ids = torch.tensor([[0] * before + list(tokens) + [0] * after])
    mask = torch.tensor([[0] * before + [1] * len(tokens) + [0] * after])
    return {"input_ids": ids, "attention_mask": mask}


def uncached(family: str) -> LoadedModel:
    """The decoder's module as a ``python:`` model: Hugging Face's own forward pass, without a cache."""
    module: Any = decoder(family).module
    return loaded(module)


@everywhere
@pytest.mark.parametrize("name", ["bert", "llama", "gemma2"])
def test_padding_of_inputs(device: str, name: str) -> None:
    model = tiny_module(name) if name == "bert" else uncached(name)
    tokens = tuple(t % 99 for t in TOKENS[:33])
    how = settings(new_tokens=0, device=device)
    expected = engine.score_module(model, padded(tokens, 0, 0), settings(new_tokens=0))
    differing = {}
    for amount in PADDING:
        for sides in ((amount, 0), (0, amount), (amount, amount)):
            differing[sides] = difference(expected, engine.score_module(model, padded(tokens, *sides), how))
    assert differing == dict.fromkeys(differing)


@everywhere
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_padding_of_attention(device: str, dtype: torch.dtype) -> None:
    """Keys behind a sequence's end, NaN among them, and rows of padded queries change nothing."""
    q, k, v = (drawn(1, heads, 65, 16, seed=heads).to(dtype) for heads in (4, 2, 1))
    v = v.expand(1, 2, 65, 16)
    positions = torch.arange(65)[None]
    expected = attention.attention(q, k, v, scale=0.25, out_dtype=dtype, q_positions=positions)
    for amount in PADDING:
        pad = (0, 0, 0, amount)
        wide = [
            torch.nn.functional.pad(t, pad, value=b).to(device) for t, b in ((q, 1.0), (k, NAN), (v, NAN))
        ]
        where = torch.arange(65 + amount, device=device)[None].clamp(max=64)
        length = torch.tensor([65], device=device)
        found = attention.attention(*wide, scale=0.25, out_dtype=dtype, q_positions=where, k_length=length)
        assert same(found[:, :, :65], expected), amount


@everywhere
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gpt2"])
def test_cached_and_uncached(device: str, family: str) -> None:
    """Decoded from a cache, and by Hugging Face's own forward pass over all tokens without one."""
    made = engine.record(decoder(family), [Request(0, TOKENS[:40])], settings("logits", 9, device=device))
    tokens = (*TOKENS[:40], *made.sequences[0].generated[:-1])
    whole = engine.score_module(uncached(family), padded(tokens, 0, 0), settings("logits", 0, device=device))
    index = next(i for i, point in enumerate(whole.points) if point.name == "output.logits")
    rows, drawn_from = whole.sequences[0].rows[index], made.sequences[0].rows[0]
    assert rows.header == drawn_from.header
    assert (rows.digests[39:] == drawn_from.digests).all()


@everywhere
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3", "phi3", "gpt2", "bert"])
def test_eager_and_sdpa(device: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are run with eager attention; those whose text allows both give one record."""
    model = tiny_module("bert") if family == "bert" else uncached(family)
    inputs = padded(tuple(t % 99 for t in TOKENS[:40]), 0, 3)
    expected = engine.score_module(model, inputs, settings("layers", 0))
    monkeypatch.setattr(score, "eager", lambda module: points.eager(module, "sdpa"))
    found = engine.score_module(model, inputs, settings("layers", 0, device=device))
    called = {operator.operator for operator in found.operators}
    assert "aten.scaled_dot_product_attention.default" in called, called
    assert difference(expected, found) is None


@contextmanager
def load(device: str) -> Iterator[None]:
    """Other work on the same device for as long as the context is open."""
    over = threading.Event()
    square = torch.randn(256 if device == "cpu" else 4096, 256 if device == "cpu" else 4096, device=device)
    # A thread of its own has a stream of its own on a GPU.
    stream = None if device == "cpu" else torch.cuda.Stream(device)

    def work() -> None:
        with torch.cuda.stream(stream):
            while not over.is_set():
                square @ square
                # Asked, not waited for: while a step is watched, PyTorch refuses every thread's waiting.
                while stream is not None and not stream.query() and not over.is_set():
                    time.sleep(0.001)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()


@everywhere
def test_fifty_repetitions_under_load(device: str) -> None:
    requests = (Request(3, TOKENS[:40]), Request(8, TOKENS[5:12]))
    expected, model = alone("llama", requests, 3), decoder("llama")
    with load(device):
        found = [
            difference(expected, engine.record(model, requests, settings(new_tokens=3, device=device)))
            for _ in range(50)
        ]
    assert found == [None] * 50
