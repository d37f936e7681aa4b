"""``python -m tests.gpu.tune_rows [SECONDS]``: forms of the few-row product, checked and timed on one GPU.

Forms are compiled in parallel processes, which also compare bits with the CPU kernel on hostile values; those
that fail are named and left out. Times are of calls in a CUDA graph, weights rotating over more than 200 MB,
beside cuBLAS in bfloat16 and LayerCast (weights upcast, then cuBLAS in float32).
"""

from __future__ import annotations

import functools
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch
from repro_kernels.gpu import rows

Form = tuple[int, ...]
SHAPES = ((4096, 4096), (28672, 4096), (4096, 14336), (6144, 4096), (128256, 4096), (1024, 4096))
FORMS: dict[int, tuple[Form, ...]] = {
    1: (
        (16, 1, 4, 128, 2, 3),
        (16, 1, 4, 64, 4, 3),
        (16, 1, 4, 64, 3, 4),
        (16, 2, 2, 128, 2, 3),
        (16, 1, 2, 128, 3, 4),
        (16, 2, 4, 64, 2, 3),
        (16, 1, 4, 128, 1, 6),
        (8, 1, 4, 64, 3, 3),
        (8, 1, 4, 128, 2, 2),
        (4, 1, 4, 64, 3, 3),
    ),
    2: (
        (16, 1, 4, 64, 3, 3),
        (16, 1, 4, 128, 2, 2),
        (16, 1, 2, 128, 2, 5),
        (16, 2, 2, 128, 2, 3),
        (16, 2, 4, 64, 2, 3),
    ),
    4: (
        (16, 1, 4, 64, 3, 3),
        (16, 2, 4, 64, 2, 2),
        (32, 2, 4, 64, 2, 3),
        (16, 2, 2, 64, 3, 3),
        (32, 2, 2, 64, 3, 4),
        (16, 2, 2, 128, 2, 2),
        (8, 4, 2, 64, 2, 3),
        (16, 2, 4, 64, 1, 4),
        (16, 1, 4, 128, 1, 4),
    ),
    8: (
        (32, 2, 4, 64, 2, 2),
        (16, 2, 4, 64, 2, 2),
        (32, 4, 2, 64, 2, 2),
        (16, 4, 2, 64, 2, 2),
        (32, 4, 4, 64, 2, 1),
        (16, 4, 4, 64, 2, 1),
        (8, 4, 4, 64, 2, 1),
        (8, 4, 8, 32, 2, 1),
        (8, 4, 2, 64, 2, 2),
        (32, 4, 1, 64, 3, 4),
        (32, 2, 1, 64, 3, 6),
        (16, 2, 2, 64, 3, 2),
        (16, 2, 4, 64, 1, 4),
        (32, 2, 4, 64, 1, 4),
        (32, 4, 2, 64, 1, 4),
        (32, 4, 4, 64, 1, 2),
        (8, 4, 4, 64, 1, 2),
    ),
}
"""Rows of activations -> forms, as the fields of ``rows.Form``."""


def milliseconds(calls: list[Callable[[], object]]) -> float:
    """Median time of one of several calls that run one after another in a CUDA graph."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    found = []
    for _ in range(8):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / len(calls))
    return statistics.median(found)


def product(form: Form, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> object:
    """One launch under a form; the compiled kernel."""
    rows.choose = lambda *_: rows.Form(*form)
    return rows.run(a, b, None, out, (1.0, 1.0))


def examine(m: int, form: Form) -> tuple[int, Form, str, str]:
    """Compile a form and compare bits with the CPU kernel: rows, form, what it uses, what is wrong."""
    from repro_kernels.cpu import gemm

    from tests.gpu.cases import compare
    from tests.gpu.cases_products import draw

    torch.set_num_threads(1)
    try:
        for n, k, specials in ((1104, 4096, 0.0), (336, 14336, 0.0001), (80, 1168, 0.001)):
            if k == 1168 and not form[4]:
                continue
            a = draw((m, k), 1, torch.float32, specials=specials)
            b = draw((n, k), 2, torch.bfloat16, specials=specials / 2)
            out = torch.full((m, n), 7.0, device="cuda")
            found = product(form, a.cuda(), b.cuda(), out)
            if k == 4096:
                used = f"{found.n_regs:3} regs {found.n_spills:2} spills {found.metadata.shared >> 10:3} KiB"
            if wrong := compare([out], [gemm.linear(a, b)]):
                return m, form, used, wrong
    except Exception as error:
        return m, form, "", f"{type(error).__name__}: {str(error)[:150]}"
    return m, form, used, ""


def rotating(n: int, k: int) -> list[torch.Tensor]:
    """Weights of more than 200 MB in all."""
    copies = max(2, -(-(230 << 20) // (2 * n * k)))
    return [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]


def times(m: int, n: int, k: int, forms: list[Form], until: float) -> dict[object, str]:
    """Each form's time on one shape, between cuBLAS and LayerCast; none after `until`."""
    weights = rotating(n, k)
    a, out = torch.randn(m, k, device="cuda"), torch.empty(m, n, device="cuda")
    half = a.bfloat16()
    turn = weights * (2 if n * k > 1 << 25 else 4)
    found: dict[object, str] = {}

    def entry(name: object, call: Callable[[torch.Tensor], object], over: list[torch.Tensor]) -> None:
        try:
            t = milliseconds([functools.partial(call, w) for w in over])
            found[name] = f"{1e3 * t:7.1f} ({2e-6 * n * k / t:4.0f})"
        except RuntimeError as error:
            found[name] = f"{type(error).__name__:14}"

    entry("cuBLAS bf16", lambda w: torch.matmul(half, w.t()), turn)
    if n * k < 1 << 28:
        entry("LayerCast", lambda w: torch.matmul(a, w.float().t()), weights)
    for form in forms:
        if time.monotonic() < until:
            entry(form, lambda w, form=form: product(form, a, w, out), turn)
    entry("cuBLAS again", lambda w: torch.matmul(half, w.t()), turn)
    return found


def main(seconds: float) -> None:
    """Examine every form, then print times until `seconds` have passed."""
    began = time.monotonic()
    used: dict[tuple[int, Form], str] = {}
    with ProcessPoolExecutor(16, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(examine, m, form) for m, forms in FORMS.items() for form in forms]
        for job in as_completed(jobs):
            m, form, what, wrong = job.result()
            if wrong:
                print(f"left out, {m} rows, {form}: {what} {wrong}", flush=True)
            else:
                used[m, form] = what
    torch.backends.cuda.matmul.allow_tf32 = False
    ready = time.monotonic() - began
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, ready after {ready:.0f} s")
    print("us (GB/s of weights) for N x K = " + ", ".join(f"{n}x{k}" for n, k in SHAPES))
    for m, forms in FORMS.items():
        good = [form for form in forms if (m, form) in used]
        columns = [times(m, n, k, good, began + seconds) for n, k in SHAPES]
        for name in columns[0]:
            label = name if isinstance(name, str) else ",".join(map(str, name)) + " " + used[m, name]
            print(f"{m} {label:46} " + " ".join(c.get(name, "") for c in columns), flush=True)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    with torch.inference_mode():
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
