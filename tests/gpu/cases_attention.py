"""Cases of attention and softmax: shapes around tiles and segments, masks, windows, caches, NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tests.gpu.cases import Kernels, Run, add, case, error_of
from tests.gpu.cases_products import BF16, F16, F32, draw


def _positions(batch: int, queries: int, keys: int, device: torch.device) -> torch.Tensor:
    """The last `queries` of `keys` positions, one fewer in each further batch entry."""
    first = keys - queries
    rows = [torch.arange(queries) + max(0, first - entry) for entry in range(batch)]
    return torch.stack(rows).to(torch.int64).to(device)


def _attention(
    label: str, sizes: Sequence[int], dtype: torch.dtype = F32, *, small: bool = False, **how: Any
) -> None:
    batch, group, key_heads, queries, keys, depth, width = sizes

    def run(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
        flavour = how.get("flavour", "normal")
        q = draw((batch, group * key_heads, queries, depth), 31, dtype, flavour=flavour, device=device)
        k = draw((batch, key_heads, keys, depth), 32, dtype, flavour=flavour, device=device)
        v = draw((batch, key_heads, keys, width), 33, dtype, device=device)
        options: dict[str, Any] = {}
        if how.get("causal") or how.get("window"):
            options["q_positions"] = _positions(batch, queries, keys, device)
            options["window"] = how.get("window")
        if how.get("lengths"):
            ends = [max(0, keys - 3 * entry) for entry in range(batch)]
            options["k_length"] = torch.tensor(ends, device=device)
            for entry, end in enumerate(ends):  # what lies behind a sequence's end is anything
                k[entry, :, end:] = float("nan")
                v[entry, :, end:] = float("nan")
        if how.get("mask"):
            options["mask"] = draw((1, 1, queries, keys), 34, device=device) > -0.5
        if how.get("cache"):  # views of a longer cache, [B, S, heads, D] in memory
            k, v = (_in_cache(t) for t in (k, v))
        out = how.get("out", dtype)
        cap = how.get("softcap")
        return [kernels.attention.attention(q, k, v, scale=0.3, out_dtype=out, softcap=cap, **options)]

    add(f"attention: {label}", run, small=small)


def _in_cache(t: torch.Tensor) -> torch.Tensor:
    batch, heads, keys, width = t.shape
    room = torch.full((batch, keys + 5, heads, width), float("nan"), dtype=t.dtype, device=t.device)
    view = room[:, 2 : 2 + keys].transpose(1, 2)
    view.copy_(t)
    return view


_attention("one key", (1, 1, 1, 1, 1, 1, 1), small=True)
_attention("few", (2, 2, 1, 1, 5, 7, 6), small=True)
_attention("causal", (1, 2, 1, 2, 4, 8, 8), small=True, causal=True)
_attention("window", (1, 1, 1, 3, 6, 8, 8), small=True, window=2)
_attention("decode over a segment", (1, 3, 1, 1, 131, 16, 16), small=True, causal=True)
_attention("mask and lengths", (2, 1, 1, 2, 12, 8, 8), small=True, mask=True, lengths=True)
_attention("soft cap", (1, 1, 1, 2, 6, 8, 8), BF16, small=True, softcap=2.5)
_attention("bf16", (1, 2, 1, 1, 9, 8, 8), BF16, small=True, causal=True)
_attention("fp16 out", (1, 1, 1, 1, 9, 8, 8), F16, small=True)

for _dtype, _name in ((F32, "fp32"), (BF16, "bf16"), (F16, "fp16")):
    for _keys in (127, 128, 129, 255, 256, 257, 1000):
        _attention(f"decode {_name} {_keys}", (2, 4, 2, 1, _keys, 64, 64), _dtype, causal=True, cache=True)
    for _queries in (2, 15, 16, 17, 33, 64, 65, 130, 257):
        _attention(f"prefill {_name} {_queries}", (2, 2, 2, _queries, _queries, 64, 64), _dtype, causal=True)
        _attention(
            f"window {_name} {_queries}",
            (1, 3, 1, _queries, _queries + 40, 80, 80),
            _dtype,
            window=37,
            cache=True,
        )
    _attention(f"lengths {_name}", (3, 2, 2, 20, 300, 128, 128), _dtype, causal=True, lengths=True)
    _attention(f"mask {_name}", (2, 1, 3, 70, 140, 96, 32), _dtype, mask=True)
    _attention(f"soft cap {_name}", (1, 2, 1, 40, 140, 256, 256), _dtype, causal=True, softcap=30.0)
    _attention(f"to fp32 from {_name}", (1, 2, 1, 40, 140, 64, 64), _dtype, causal=True, out=F32)
for _depth in (1, 3, 130, 200):
    _attention(f"depth {_depth}", (1, 2, 2, 33, 70, _depth, _depth + 1), causal=True)
for _rows in (1, 3, 5, 11):  # up to 44 rows of a key head: forms for a few
    _attention(f"few rows {_rows}", (2, 4, 2, _rows, 700, 128, 128), causal=True, lengths=True)
    _attention(f"few rows {_rows} window", (1, 3, 1, _rows, 700, 80, 200), BF16, window=300, cache=True)
    _attention(f"few rows {_rows} mask", (1, 8, 1, _rows, 400, 256, 64), F16, mask=True, softcap=20.0)
_attention("few rows, a long cache", (1, 8, 1, 1, 9000, 128, 128), causal=True)
_attention("flavour tiny", (1, 1, 2, 33, 300, 64, 64), flavour="tiny")
_attention("flavour subnormal", (1, 1, 2, 33, 300, 64, 64), flavour="subnormal")
_attention("no queries", (1, 1, 1, 0, 4, 8, 8), small=True)
_attention("no keys", (1, 1, 1, 3, 0, 8, 8), small=True)
_attention("long prompt", (1, 2, 1, 700, 700, 64, 64), causal=True)


@case("attention: a negative scale", small=False)
def _negative(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    q, k, v = (draw((1, 2, n, 32), 46 + n, device=device) for n in (1, 200, 200))
    return [kernels.attention.attention(q, k, v, scale=-0.5, out_dtype=F32)]


@case("attention: a row of a prefill is the row decoded alone", small=False)
def _decoded(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    q, k, v = (draw((1, h, 300, 64), 35 + h, device=device) for h in (4, 2, 2))
    at = torch.arange(300, device=device).unsqueeze(0)
    how: dict[str, Any] = {"scale": 0.125, "out_dtype": F32}
    whole = kernels.attention.attention(q, k, v, q_positions=at, **how)
    for i in (0, 1, 127, 128, 129, 255, 256, 299):
        row = slice(i, i + 1)
        keys = slice(0, i + 1)
        one = kernels.attention.attention(
            q[:, :, row], k[:, :, keys], v[:, :, keys], q_positions=at[:, row], **how
        )
        same = one.contiguous().view(torch.int32) == whole[:, :, row].contiguous().view(torch.int32)
        assert bool(same.all()), f"position {i}"
    return [whole]


def _error(label: str, *, small: bool = True, **spoiled: float) -> Run:
    @case(f"attention: {label}", small=small)
    def run(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
        tensors = {name: draw((1, 2, 5, 8), 40, F32, device=device) for name in ("q", "k", "v")}
        for name, value in spoiled.items():
            tensors[name][0, 1, 3, 2] = value
        at = torch.arange(5, device=device).unsqueeze(0)
        return [
            error_of(
                lambda: kernels.attention.attention(
                    *tensors.values(), scale=1.0, out_dtype=F32, q_positions=at
                )
            )
        ]

    return run


_error("a query that is not finite", small=False, q=float("nan"))
_error("a key that is not finite", small=False, k=float("inf"))
_error("a value that is not finite", v=float("-inf"))
_error("a score that overflows", small=False, q=3e38, k=3e38)


@case("attention: what nothing attends to may be anything")
def _unread(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
    q, k, v = (draw((1, 1, n, 8), 44 + n, F32, device=device) for n in (2, 6, 6))
    k[:, :, 3] = float("nan")
    v[:, :, 3] = float("inf")
    mask = torch.ones(2, 6, dtype=torch.bool, device=device)
    mask[:, 3] = False
    mask[1] = False
    return [kernels.attention.attention(q, k, v, scale=0.5, out_dtype=F32, mask=mask)]


def _softmax(
    label: str, shape: Sequence[int], dim: int, dtype: torch.dtype = F32, *, small: bool, **how: Any
) -> None:
    def run(kernels: Kernels, device: torch.device) -> list[torch.Tensor]:
        x = draw(shape, 50, dtype, device=device, specials=how.get("specials", 0.0))
        x = x * how.get("factor", 1.0)
        s = kernels.softmax
        mask = draw(shape, 51, device=device) > 0 if how.get("mask") else None
        return [s.softmax(x, dim, out_dtype=how.get("out"), mask=mask), s.log_softmax(x, dim)]

    add(f"attention: softmax {label}", run, small=small)


_softmax("rows", (3, 20), -1, small=False)
_softmax("columns", (20, 2), 0, BF16, small=True)
_softmax("masked", (2, 20), -1, F16, small=True, mask=True, out=F32)
_softmax("specials", (2, 130), -1, small=True, specials=0.01)
_softmax("empty", (0, 5), -1, small=True)
for _n in (1, 127, 128, 129, 511, 512, 513, 4096, 50257):
    _softmax(f"of {_n}", (3, _n), -1, small=False, factor=5.0)
    _softmax(f"of {_n} bf16", (3, _n), -1, BF16, small=False, mask=True)
_softmax("of specials", (40, 300), -1, small=False, specials=0.002)
_softmax("in the middle", (4, 140, 6), 1, small=False)
_softmax("of huge values", (3, 300), -1, small=False, factor=1e30)
