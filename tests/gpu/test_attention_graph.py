"""Attention with a flag: what sets it, and one CUDA graph for every length up to its bucket."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from repro_kernels.gpu import attention

from tests.gpu.cases import compare
from tests.gpu.cases_products import draw

pytestmark = pytest.mark.gpu

DTYPES = (torch.float32, torch.bfloat16)


def cache(batch: int, keys: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, and views of a longer cache, [B, S, heads, D] in memory."""
    device = torch.device("cuda")
    q = draw((batch, 8, 1, 64), 61, dtype, device=device)
    k, v = (draw((batch, keys + 3, 2, 64), 62 + n, dtype, device=device) for n in range(2))
    return q, k[:, :keys].transpose(1, 2), v[:, :keys].transpose(1, 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [None, 200])
def test_one_graph_serves_every_length(dtype: torch.dtype, window: int | None) -> None:
    q, k, v = cache(3, 512, dtype)
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    ends = torch.full((3,), 400, dtype=torch.int64, device="cuda")
    at = (ends - 1)[:, None].contiguous()
    how: dict[str, Any] = {"scale": 0.125, "out_dtype": dtype, "window": window}
    with torch.inference_mode():
        attention.attention(q, k, v, q_positions=at, k_length=ends, flag=flag, **how)  # compiles
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = attention.attention(q, k, v, q_positions=at, k_length=ends, flag=flag, **how)
        for lengths in ([400, 1, 129], [512, 128, 127], [256, 300, 511], [400, 1, 129]):
            now = torch.tensor(lengths, device="cuda")
            ends.copy_(now)
            at.copy_((now - 1)[:, None])
            graph.replay()
            for entry, end in enumerate(lengths):  # alone, without a flag, a bucket or a length
                one = slice(entry, entry + 1)
                alone = attention.attention(
                    q[one], k[one, :, :end], v[one, :, :end], q_positions=at[one], **how
                )
                assert compare([out[one].contiguous()], [alone.contiguous()]) == "", (lengths, entry)
        assert flag.item() == 0


@pytest.mark.parametrize("rows", [1, 60])
@pytest.mark.parametrize("where", ["q", "k", "v", "behind the end"])
def test_the_flag_is_set_by_what_is_not_finite(where: str, rows: int) -> None:
    device = torch.device("cuda")
    q = draw((1, 2, rows, 32), 71, device=device)
    k, v = (draw((1, 2, 300, 32), 72 + n, device=device) for n in range(2))
    ends = torch.tensor([280], device=device)
    flag = torch.zeros(1, dtype=torch.int32, device=device)
    how: dict[str, Any] = {"scale": 0.125, "out_dtype": torch.float32, "k_length": ends, "flag": flag}
    with torch.inference_mode():
        attention.attention(q, k, v, **how)
        assert flag.item() == 0
        spoiled = {"q": q[0, 1, -1], "k": k[0, 1, 279], "v": v[0, 1, 200], "behind the end": k[0, 1, 280]}
        spoiled[where][5] = float("nan")
        attention.attention(q, k, v, **how)
        assert flag.item() == (where != "behind the end")
