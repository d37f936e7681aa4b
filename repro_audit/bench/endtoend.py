"""A real model end to end against Hugging Face fp32 eager, and verification against generation."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from repro_audit import engine
from repro_audit.bench.timing import milliseconds
from repro_audit.errors import InconclusiveError
from repro_audit.models.loaded import LoadedModel
from repro_audit.models.quiet import quiet_transformers
from repro_audit.progress import NullObserver
from repro_audit.settings import Decoding, RunSettings
from repro_audit.trace.record import RunRecord

PREFILL, DECODE = 512, 64
VERIFY_PROMPT, VERIFY_DRAWN = 64, 256
_TEXT = (
    "A reproducible computation is one whose every bit can be computed again by someone else, "
    "on another machine, "
    "from a specification and not from a program. "
)
_NULL = NullObserver()


def measure_model(model: LoadedModel, rounds: int) -> Iterator[tuple[str, str]]:
    """Prefill 512 and decode 64: ours at ``layers`` and ``ops``, and Hugging Face fp32 eager, in turn.

    Raises:
        InconclusiveError: two runs of ours have other bits.
    """
    prompt = _prompt(model, PREFILL)
    theirs: list[float] = []
    ours: dict[str, list[float]] = {"layers": [], "ops": []}
    _hugging_face(model, prompt[:32], 2)
    first: dict[str, RunRecord] = {}
    for _ in range(rounds):
        theirs.append(_seconds(lambda: _hugging_face(model, prompt, DECODE - 1)))
        for level, taken in ours.items():
            record, seconds = _record(model, prompt, DECODE, level)
            _require_same(first.setdefault(level, record), record)
            taken.append(seconds)
    other = _median(theirs)
    yield f"Hugging Face fp32 eager, prefill {PREFILL} + decode {DECODE}", milliseconds(other)
    for level, taken in ours.items():
        mine = _median(taken)
        yield f"run --record {level}", f"{milliseconds(mine)}, speed {other / mine:.2f} of Hugging Face"
    yield "ops / layers", f"{_median(ours['ops']) / _median(ours['layers']):.2f}"


def measure_verification(model: LoadedModel, rounds: int) -> Iterator[tuple[str, str]]:
    """Verifying 64 + 256 tokens against generating them and against a plain prefill of that length."""
    prompt = _prompt(model, VERIFY_PROMPT)
    generating: list[float] = []
    prefilling: list[float] = []
    verifying: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        record, seconds = _record(model, prompt, VERIFY_DRAWN, "layers")
        generating.append(seconds)
        drawn = record.sequences[0].generated
        fed = (*prompt, *drawn)[:-1]
        prefilling.append(_record(model, fed, 0, "logits")[1])
        theirs.append(_seconds(lambda fed=fed: _hugging_face(model, fed, 0)))
        settings = _settings(len(drawn), "layers")
        started = time.perf_counter()
        again = engine.replay(
            model, [engine.Replay(0, tuple(prompt), drawn)], settings, observer=_NULL, row_salt=None
        )
        verifying.append(time.perf_counter() - started)
        _require_same(record, again)
    made, plain, checked = _median(generating), _median(prefilling), _median(verifying)
    yield f"generate {VERIFY_PROMPT} + {VERIFY_DRAWN}, --record layers", milliseconds(made)
    yield "plain prefill of that length (--record logits)", milliseconds(plain)
    yield "the same by Hugging Face fp32 eager", milliseconds(_median(theirs))
    yield (
        "verify (one teacher-forced prefill)",
        f"{milliseconds(checked)}, {checked / plain:.2f} of the prefill, {checked / made:.2f} of generating",
    )


def _prompt(model: LoadedModel, length: int) -> tuple[int, ...]:
    tokens: tuple[int, ...] = ()
    text = _TEXT
    while len(tokens) < length:
        text += _TEXT
        tokens = model.encode(text).token_ids
    return tokens[:length]


def _settings(drawn: int, level: str) -> RunSettings:
    return RunSettings(Decoding(drawn), level=level)


def _record(model: LoadedModel, prompt: tuple[int, ...], drawn: int, level: str) -> tuple[RunRecord, float]:
    started = time.perf_counter()
    record = engine.record(
        model, [engine.Request(0, tuple(prompt))], _settings(drawn, level), observer=_NULL, row_salt=None
    )
    return record, time.perf_counter() - started


def _hugging_face(model: LoadedModel, prompt: tuple[int, ...], drawn: int) -> None:
    """Greedy decoding with a cache, as ``generate`` does it, without its overhead."""
    module: Any = model.module
    with torch.inference_mode(), quiet_transformers(), warnings.catch_warnings():
        # The cache argument is about to be renamed; both names work in every version supported.
        warnings.simplefilter("ignore", FutureWarning)
        out = module(input_ids=torch.tensor([prompt]), use_cache=True)
        for _ in range(drawn):
            token = out.logits[:, -1:].argmax(-1)
            out = module(input_ids=token, past_key_values=out.past_key_values, use_cache=True)


def _require_same(a: RunRecord, b: RunRecord) -> None:
    for left, right in zip(a.sequences, b.sequences, strict=True):
        same = left.generated == right.generated and all(
            bool((left.rows[i].digests == right.rows[i].digests).all()) for i in left.rows
        )
        if not same:
            raise InconclusiveError(
                "two runs of the same thing have other bits", hint="run repro-audit doctor"
            )


def _seconds(call: Any) -> float:
    gc.collect()
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
