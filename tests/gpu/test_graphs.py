"""A launch from a CUDA graph gives the bits of an eager one, also with other values in the same buffers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from repro_kernels.ops import elementary, fused, gemm, norm, reduce, softmax

from tests.gpu.cases import compare
from tests.gpu.hostile import values

pytestmark = pytest.mark.gpu

Step = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]

STEPS: dict[str, Step] = {
    "linear, one row": lambda x, w: (gemm.linear(x[:1], w),),
    "linear, rows": lambda x, w: (gemm.linear(x, w, out_dtype=torch.bfloat16),),
    "matmul": lambda x, w: (gemm.matmul(x, w.float().t()),),
    "block": lambda x, w: (
        fused.rms_norm_module(x, w[0], 1e-5),
        fused.swiglu(x, x.flip(0)),
        norm.layer_norm(x, [x.shape[-1]], w[0], w[1]),
        softmax.softmax(x, -1),
        softmax.log_softmax(x, -1),
    ),
    "sums and functions": lambda x, w: (
        reduce.sum(x, 1),
        reduce.mean(x, 1, True),
        elementary.unary("exp", x),
        elementary.unary("gelu", x),
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_graph_gives_the_eager_bits(name: str) -> None:
    step, w = STEPS[name], values((96, 200), 1, torch.bfloat16)
    held, weight = values((9, 200), 2).cuda(), w.cuda()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.inference_mode():
        with torch.cuda.stream(stream):
            step(held, weight)  # compiles
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = step(held, weight)
        for seed in (3, 4):
            x = values((9, 200), seed)
            held.copy_(x)
            graph.replay()
            assert compare(results, step(x.cuda(), weight)) == ""
