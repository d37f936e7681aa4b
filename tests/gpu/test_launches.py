"""How a kernel is launched does not show: streams, CUDA graphs, contents of memory, torch's switches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from repro_kernels.cpu import gemm as cpu
from repro_kernels.errors import UnsupportedError

from tests.gpu.cases import compare
from tests.gpu.cases_products import BF16, F32, draw

ROWS = (1, 3, 20, 200)


def _linears(device: str) -> Callable[[], list[torch.Tensor]]:
    """Products through every kernel form: by rows, in tiles, with shared segments."""
    from repro_kernels.gpu import gemm

    w = draw((300, 1000), 61, BF16, device=device)
    xs = [draw((m, 1000), 62 + m, F32, device=device) for m in ROWS]
    return lambda: [(gemm if device == "cuda" else cpu).linear(x, w) for x in xs]


@pytest.mark.gpu
def test_a_stream_of_its_own() -> None:
    call, expected = _linears("cuda"), _linears("cpu")()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        found = call()
    stream.synchronize()
    assert compare(found, expected) == ""


@pytest.mark.gpu
def test_a_graph_replays_the_same_bits() -> None:
    call, expected = _linears("cuda"), _linears("cpu")()
    call()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        found = call()
    for t in found:
        t.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert compare(found, expected) == ""


@pytest.mark.gpu
def test_contents_of_fresh_memory() -> None:
    call, expected = _linears("cuda"), _linears("cpu")()
    for value in (float("nan"), float("inf"), -0.0, 3e38):
        torch.cuda.empty_cache()
        poison = [torch.full((1 << n,), value, device="cuda") for n in range(8, 26)]
        del poison
        assert compare(call(), expected) == ""


@pytest.mark.gpu
def test_switches_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    call, expected = _linears("cuda"), _linears("cpu")()
    matmul = torch.backends.cuda.matmul
    monkeypatch.setattr(matmul, "allow_tf32", True)
    monkeypatch.setattr(matmul, "allow_bf16_reduced_precision_reduction", True)
    assert compare(call(), expected) == ""


@pytest.mark.gpu
def test_operands_on_two_devices_are_refused() -> None:
    from repro_kernels.gpu import gemm

    with pytest.raises(UnsupportedError, match="an operation across cpu and cuda:0"):
        gemm.linear(torch.ones(2, 3, device="cuda"), torch.ones(4, 3))


def test_a_cpu_is_refused_by_the_gpu_kernels() -> None:
    pytest.importorskip("triton")
    from repro_kernels.gpu import gemm

    with pytest.raises(UnsupportedError, match="a GPU kernel on cpu"):
        gemm.linear(torch.ones(2, 3), torch.ones(4, 3))


def test_an_old_gpu_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from repro_kernels.gpu import runtime

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    with pytest.raises(UnsupportedError, match=r"Tesla T4, compute capability 7\.5 \(use --device cpu\)"):
        runtime.require(torch.device("cuda", 99))
