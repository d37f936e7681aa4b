"""Attention of an 8B model's heads, 32 over 8 of depth 128, batch 1, in float32: prefill and decode."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from repro_kernels.cpu import attention as cpu_attention

from repro_audit.bench import baselines
from repro_audit.bench.inputs import SCALES, refresher, require_alike, require_bits, sets_needed
from repro_audit.bench.roofline import Roofline, Work
from repro_audit.bench.rows import OURS, Row, of_race
from repro_audit.bench.timing import Contender, race
from repro_audit.errors import InconclusiveError

HEADS, KEY_HEADS, DEPTH = 32, 8, 128
CASES: dict[str, tuple[tuple[str, int, int], ...]] = {
    "cuda": (("prefill 2048", 2048, 2048), ("decode, 512 keys", 1, 512), ("decode, 2048 keys", 1, 2048)),
    "cpu": (("prefill 256", 256, 256), ("decode, 512 keys", 1, 512)),
}
"""Kind of device -> (name, queries, keys); the queries are the last ones."""

_QUERIES = 4


def measure(case: tuple[str, int, int], device: str, roofline: Roofline | None, rounds: int) -> Iterator[Row]:
    """The rows of one case.

    Raises:
        InconclusiveError: a sampled query and head has other bits than the CPU's kernel gives, or the
            kernel found a value that is not finite.
    """
    name, queries, keys = case
    causal = queries > 1
    pairs = sum(range(keys - queries + 1, keys + 1))
    numbers = 2 * HEADS * queries * DEPTH + 2 * KEY_HEADS * keys * DEPTH
    sets = sets_needed(4 * numbers, roofline.cache if roofline else None)
    shapes = ((HEADS, queries), (KEY_HEADS, keys), (KEY_HEADS, keys))
    wide = [[torch.empty(1, h, s, DEPTH, device=device) for h, s in shapes] for _ in range(sets)]
    half = [[t.to(torch.bfloat16) for t in some] for some in wide]
    positions = torch.arange(keys - queries, keys, device=device)[None]
    flag = torch.zeros(1, dtype=torch.int32, device=device)
    attend = attention_of(device)

    def ours(index: int) -> torch.Tensor:
        q, k, v = wide[index]
        return attend(q, k, v, scale=DEPTH**-0.5, out_dtype=torch.float32, q_positions=positions, flag=flag)

    refresh = refresher([t for some in wide for t in some], [t for some in half for t in some])
    with torch.inference_mode():
        for turn, scale in enumerate(SCALES):
            refresh(turn)
            for index in (0, sets - 1):
                found = ours(index)
                _check(f"attention, {name}, inputs x {scale:g}", found, wide[index], positions)
        contenders, works = {OURS: Contender(ours)}, {OURS: _work(4, numbers, pairs, "fp32")}
        for stack in baselines.attentions(device):
            held = wide if stack.dtype == torch.float32 else half

            def theirs(
                index: int,
                call: Callable[..., torch.Tensor] = stack.call,
                held: list[list[torch.Tensor]] = held,
            ) -> torch.Tensor:
                return call(*held[index], causal)

            require_alike(f"{stack.name}, {name}", theirs(0), ours(0))
            contenders[stack.name] = Contender(theirs)
            works[stack.name] = _work(stack.dtype.itemsize, numbers, pairs, stack.unit)
        times = race(contenders, device=device, sets=sets, rounds=rounds, refresh=refresh)
    if flag.item():
        raise InconclusiveError(f"attention, {name}: a row was not finite", hint="run repro-audit doctor")
    yield from of_race("attention", name, times, works, roofline)


def attention_of(device: str) -> Callable[..., torch.Tensor]:
    """Our attention of a kind of device."""
    if device == "cpu":
        return cpu_attention.attention
    from repro_kernels.gpu import attention

    return attention.attention


def _work(size: int, numbers: int, pairs: int, unit: str) -> Work:
    return Work(size * numbers, 2 * HEADS * DEPTH * pairs, unit)


def _check(what: str, found: torch.Tensor, inputs: list[torch.Tensor], positions: torch.Tensor) -> None:
    """A group of heads at a few queries."""
    q, k, v = inputs
    group, queries = HEADS // KEY_HEADS, q.shape[2]
    some = torch.arange(0, queries, max(1, queries // _QUERIES), device=q.device)
    some[-1] = queries - 1
    for head in (0, KEY_HEADS - 1):
        rows = slice(head * group, (head + 1) * group)
        expected = cpu_attention.attention(
            q[:, rows, some].cpu(),
            k[:, head : head + 1].cpu(),
            v[:, head : head + 1].cpu(),
            scale=DEPTH**-0.5,
            out_dtype=torch.float32,
            q_positions=positions[:, some].cpu(),
        )
        require_bits(what, found[:, rows, some], expected)
