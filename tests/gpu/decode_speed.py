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
from tests.helpers.engine_runs import difference

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
    """When steps were done; ten of them are profiled, if asked."""

    def __init__(self, *, profiled: bool = False) -> None:
        self.times: list[float] = []
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        self.profiled = profiled

    def advance(self, n: int = 1) -> None:
        self.times.append(time.perf_counter())
        if self.profiled and len(self.times) == 12:
            self.profile.start()
        if self.profiled and len(self.times) == 22:
            self.profile.stop()

    def kernels(self) -> None:
        """Print the kernels of a profiled step."""
        rows = [(e.self_device_time_total / 10000, e.count / 10, e.key) for e in self.profile.key_averages()]
        total = sum(row[0] for row in rows)
        print(f"kernels of a step: {total:.3f} ms, {sum(row[1] for row in rows):.0f} launches")
        for spent, count, key in sorted(rows, reverse=True)[:18]:
            print(f"  {spent:8.4f} ms {count:6.1f} x  {key[:70]}", flush=True)


def measure(
    loaded: LoadedModel,
    name: str,
    *,
    eager: bool,
    rows: int,
    decoding: Decoding,
    level: str,
    profiled: bool = False,
) -> Any:
    """Print milliseconds per step, and the host's part of them."""
    waited: list[tuple[float, float]] = []
    wait = torch.cuda.Event.synchronize

    def timed(event: Any) -> None:
        begin = time.perf_counter()
        wait(event)
        waited.append((begin, time.perf_counter()))

    prompts = [Request(i, tuple((7 * j + i) % 100000 + 3 for j in range(512))) for i in range(rows)]
    clock = Clock(profiled=profiled)
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
    if profiled:
        clock.kernels()
    return record


CONFIGURATIONS: tuple[tuple[str, int, int, str, dict[str, Any]], ...] = (
    ("greedy", 1, 32, "layers", {}),
    ("greedy", 1, 32, "logits", {}),
    ("greedy", 1, 32, "ops", {}),
    ("greedy", 8, 32, "layers", {}),
    ("temperature 0.8", 1, 32, "logits", {"temperature": 0.8, "seed": 1}),
    ("top-p 0.9", 1, 32, "logits", {"temperature": 0.8, "seed": 1, "top_p": 0.9}),
)


def main() -> None:
    """Everything, a failure not stopping the rest."""
    begin = time.perf_counter()
    loaded = model(int(sys.argv[1]) if len(sys.argv) > 1 else 32)
    print(f"model made in {time.perf_counter() - begin:.1f} s", flush=True)
    for name, rows, tokens, level, how in CONFIGURATIONS:
        found = []
        for way in ("graph", "eager", "profiled")[: 2 + ("profile" in sys.argv)]:
            try:
                record = measure(
                    loaded,
                    f"{name}, {way}",
                    eager=way == "eager",
                    rows=rows,
                    decoding=Decoding(tokens, **how),
                    level=level,
                    profiled=way == "profiled",
                )
            except Exception:
                print(traceback.format_exc()[-1500:], flush=True)
            else:
                found.append(record)
        if len(found) > 1:
            print("difference:", difference(*found[:2]), flush=True)


if __name__ == "__main__":
    main()
