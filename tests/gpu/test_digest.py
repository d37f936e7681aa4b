"""Row digests on a GPU: captured in a CUDA graph, without waiting, and through the recorder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from repro_kernels.cpu import digest as cpu

from repro_audit.trace.record import Point
from repro_audit.trace.recorder import Recorder, Span

pytestmark = pytest.mark.gpu

KEY = bytes(range(9, 41))
WIDTHS = (16, 576, 4096, 14336, 70000, 300001)


def drawn(seed: int) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(2, width, generator=source).bfloat16() for width in WIDTHS]


def test_a_graph_hashes_what_its_tensors_hold_then() -> None:
    from repro_kernels.gpu import digest

    held = [tensor.cuda() for tensor in drawn(0)]
    items = [(tensor, KEY, 1) for tensor in held]
    with torch.inference_mode():
        digest.digest_many(items)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            digest.digest_many(items)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = digest.digest_many(items)
        for seed in (1, 2):
            values = drawn(seed)
            for tensor, value in zip(held, values, strict=True):
                tensor.copy_(value)
            graph.replay()
            expected = cpu.digest_many([(value, KEY, 1) for value in values])
            for got, want in zip(found, expected, strict=True):
                assert (got.cpu().numpy() == want).all()


def test_tables_for_other_batches_do_not_disturb_a_graph() -> None:
    from repro_kernels.gpu import digest

    held = torch.randn(3, 5000, device="cuda")
    batch, tensors = digest.prepare([(held, KEY, 1), (held[:, :96], KEY, 1)])
    batch.run(tensors)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = batch.run(tensors)
    for size in range(1, 1500):  # more than are remembered
        digest.row_digests(held.view(-1)[: 4 * size].view(1, -1), KEY)
    graph.replay()
    expected = np.concatenate([cpu.row_digests(t, KEY) for t in (held.cpu(), held[:, :96].cpu())])
    assert (found.cpu().numpy() == expected).all()


def test_more_than_two_to_the_31_elements() -> None:
    from repro_kernels.gpu import digest

    rows = torch.zeros(2**31 // 4096 + 2, 4096, dtype=torch.uint8, device="cuda")
    rows[-1] += 3
    found = digest.row_digests(rows, KEY)
    assert (found[-1].cpu().numpy() == cpu.row_digests(rows[-1:].cpu(), KEY)).all()
    assert (found[:-1] == found[0]).all()
    assert (
        digest.row_digests(rows, KEY, row_dims=0).cpu().numpy()
        == cpu.row_digests(rows.cpu(), KEY, row_dims=0)
    ).all()


@pytest.mark.parametrize("width", [12, 4096])
def test_the_recorder_records_what_it_does_on_the_cpu(width: int) -> None:
    points = (Point("a", "tok"), Point("kv", "kv"))
    found = []
    for device in ("cpu", "cuda"):
        recorder = Recorder(points, 2, save_values=True)
        torch.manual_seed(3)
        for first in range(3):
            tensor, cached = torch.randn(120, width).to(device), torch.randn(2, 120, 64).to(device)
            spans = [Span(0, 60 * first, 0, 60), Span(1, 60 * first, 60, 120)]
            recorder.take(0, tensor, spans)
            recorder.take(1, cached.transpose(0, 1), spans)
            recorder.flush()
        found.append(recorder)
    for sequence in (0, 1):
        on_cpu, on_gpu = (recorder.rows(sequence) for recorder in found)
        assert on_cpu.keys() == on_gpu.keys()
        assert all((on_cpu[point].digests == on_gpu[point].digests).all() for point in on_cpu)
    values = [recorder.values() for recorder in found]
    assert all((values[0][name] == values[1][name]).all() for name in values[0])


def test_a_changed_cache_row_is_found_on_the_device() -> None:
    recorder = Recorder((Point("kv", "kv"),), 1)
    cache = torch.randn(8, 500, 128, device="cuda")
    rows = cache[:, :300].transpose(0, 1)
    recorder.take(0, rows[:299], [Span(0, 0, 0, 299)])
    recorder.flush()
    recorder.take(0, rows[299:], [Span(0, 299, 0, 1)])
    recorder.flush()
    assert recorder.changes([(0, 0, rows)]) == [[]]
    cache.view(torch.int32)[5, 17, 3] ^= 1
    cache.view(torch.int32)[0, 299, 127] ^= 1
    assert recorder.changes([(0, 0, rows)]) == [[17, 299]]
