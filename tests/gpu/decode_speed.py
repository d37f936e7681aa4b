"""Time of a decode step, eager and from a graph: ``python -m tests.gpu.decode_speed [layers]``.

Random bfloat16 weights of Llama-3-8B's shape, a prompt of 512 tokens, batch 1 and 8, greedy and sampled. The
host's share is what it does between two waits for the device.
"""

from __future__ import annotations

import sys
import time
import traceback
from contextlib import ExitStack
from itertools import pairwise
from statistics import median
from typing import Any
from unittest import mock

import torch
import transformers

from repro_audit import engine
from repro_audit.engine import Request, generate
from repro_audit.models.loaded import LoadedModel
from repro_audit.progress import NullObserver
from repro_audit.settings import Decoding, RunSettings

DEVICE = "cuda:0"


def model(layers: int) -> LoadedModel:
    """The decoder, made on the device."""
    config = transformers.LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rope_theta=500000.0,
        tie_word_embeddings=False,
    )
    with torch.device("meta"):
        module = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    module.to_empty(device=DEVICE)
    torch.manual_seed(0)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(False)
        if "norm" in name:
            parameter.fill_(1.0)
        else:
            parameter.normal_(0, 0.02)
    return LoadedModel(kind="hf", name="shape", module=module, tensors=(), config_digest="", root="")


class Clock(NullObserver):
    """When steps were done."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def advance(self, n: int = 1) -> None:
        self.times.append(time.perf_counter())


def measure(loaded: LoadedModel, name: str, *, eager: bool, rows: int, decoding: Decoding, level: str) -> Any:
    """Print milliseconds per step, and the host's part of them."""
    waited: list[tuple[float, float]] = []
    wait = torch.cuda.Event.synchronize

    def timed(event: Any) -> None:
        begin = time.perf_counter()
        wait(event)
        waited.append((begin, time.perf_counter()))

    prompts = [Request(i, tuple((7 * j + i) % 100000 + 3 for j in range(512))) for i in range(rows)]
    clock = Clock()
    settings = RunSettings(decoding, level=level, device=DEVICE)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch.cuda.Event, "synchronize", timed))
        if eager:
            stack.enter_context(mock.patch.object(generate, "device_of", lambda opened: None))
        begin = time.perf_counter()
        record = engine.record(loaded, prompts, settings, observer=clock)
    steps = [b - a for a, b in pairwise(clock.times)]
    late = steps[len(steps) // 2 :]
    host = [b[0] - a[1] for a, b in pairwise(waited)]
    text = f"host {1000 * median(host[len(host) // 2 :]):6.3f}" if host else "host      -"
    print(
        f"{name:28} rows {rows} {level:7} {1000 * median(late):7.3f} ms/step "
        f"(max {1000 * max(late):7.3f}) {text} first {1000 * (clock.times[0] - begin):7.0f} "
        f"replayed {record.schedule.get('replayed_steps')}/{record.schedule['steps']} "
        f"peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB",
        flush=True,
    )
    return record


CONFIGURATIONS: tuple[tuple[str, int, int, str, dict[str, Any]], ...] = (
    ("greedy", 1, 48, "layers", {}),
    ("greedy", 1, 48, "logits", {}),
    ("greedy", 1, 48, "ops", {}),
    ("greedy", 8, 32, "layers", {}),
    ("temperature 0.8", 1, 24, "layers", {"temperature": 0.8, "seed": 1}),
    ("top-p 0.9", 1, 24, "layers", {"temperature": 0.8, "seed": 1, "top_p": 0.9}),
)


def main() -> None:
    """Everything, a failure not stopping the rest."""
    begin = time.perf_counter()
    loaded = model(int(sys.argv[1]) if len(sys.argv) > 1 else 32)
    print(f"model made in {time.perf_counter() - begin:.1f} s", flush=True)
    for name, rows, tokens, level, how in CONFIGURATIONS:
        found = []
        for eager in (False, True):
            # The first twelve tokens say whether the two agree.
            decoding = Decoding(12 if eager else tokens, **how)
            named = f"{name}, {'eager' if eager else 'graph'}"
            try:
                found.append(measure(loaded, named, eager=eager, rows=rows, decoding=decoding, level=level))
            except Exception:
                print(traceback.format_exc()[-1500:], flush=True)
        if len(found) == 2:
            pairs = zip(*(record.sequences for record in found), strict=True)
            print("same tokens:", all(a.generated[:12] == b.generated for a, b in pairs), flush=True)


if __name__ == "__main__":
    main()
