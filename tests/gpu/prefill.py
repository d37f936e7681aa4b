"""Time of a whole model's prefill on one GPU: ours, and LayerCast (16-bit weights, upcast in each linear).

``python -m tests.gpu.prefill [LAYERS]``: the shape of Llama-3-8B with seeded random bfloat16 weights, 2,048
tokens. Medians of three, after one to compile.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
import transformers

from repro_audit import engine
from repro_audit.engine import Request
from tests.helpers.engine_runs import loaded, settings

TOKENS = 2048
SHAPE = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}


def seconds(run: Callable[[], object]) -> float:
    """Median of three, after one."""
    times = []
    for _ in range(4):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def upcast(module: torch.nn.Linear) -> Callable[[torch.Tensor], torch.Tensor]:
    """LayerCast's linear: the weight becomes float32 when it is needed."""
    return lambda x: torch.nn.functional.linear(x, module.weight.float())


def main(layers: int) -> None:
    """One line."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    config = transformers.LlamaConfig(num_hidden_layers=layers, **SHAPE)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        module = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)
    torch.set_default_dtype(torch.float32)
    prompt = tuple((7919 * i) % 128000 for i in range(TOKENS))
    model, how = loaded(module, kind="hf"), settings("logits", 1, device="cuda:0")
    ours = seconds(lambda: engine.record(model, [Request(0, prompt)], how))
    every = settings("layers", 1, device="cuda:0")
    recorded = seconds(lambda: engine.record(model, [Request(0, prompt)], every))
    for child in module.modules():
        if isinstance(child, torch.nn.Linear):
            child.forward = upcast(child)  # type: ignore[method-assign]
        elif hasattr(child, "variance_epsilon") or isinstance(child, torch.nn.Embedding):
            child.float()
    tokens = torch.tensor([prompt], device="cuda")
    with torch.inference_mode():
        cast = seconds(lambda: module(input_ids=tokens, logits_to_keep=1))
    print(f"prefill of {TOKENS} tokens, Llama-3-8B shape, {layers} layers, {torch.cuda.get_device_name()}")
    print(f"ours {ours * 1e3:.0f} ms, layers recorded {recorded * 1e3:.0f} ms, LayerCast {cast * 1e3:.0f} ms")
    print(f"LayerCast / ours {cast / ours:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 32)
