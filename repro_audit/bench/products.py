"""Matrix products, ``x [M, K] . w [N, K]^T`` with float32 activations and bfloat16 weights."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import torch
from repro_kernels.cpu import gemm as cpu_gemm
from repro_kernels.spec import dot

from repro_audit.bench import baselines
from repro_audit.bench.inputs import SCALES, refresher, require_alike, require_bits, sets_needed
from repro_audit.bench.roofline import Roofline, Work
from repro_audit.bench.rows import OURS, Row, of_race
from repro_audit.bench.timing import Contender, race
from repro_audit.errors import InconclusiveError

SHAPES: dict[str, dict[str, tuple[tuple[int, int, int], ...]]] = {
    "cuda": {
        "gemm": (
            (4096, 4096, 4096),
            (512, 4096, 4096),
            (2048, 28672, 4096),
            (2048, 4096, 14336),
            (100, 1000, 1000),
        ),
        "gemv": (
            (1, 4096, 4096),
            (1, 28672, 4096),
            (1, 4096, 14336),
            (2, 4096, 4096),
            (4, 4096, 4096),
            (8, 4096, 4096),
        ),
        "skinny": ((32, 6144, 4096), (32, 4096, 14336)),
    },
    "cpu": {
        "gemm": ((512, 2048, 2048), (128, 2048, 2048)),
        "gemv": ((1, 2048, 2048),),
        "skinny": ((16, 2048, 2048),),
    },
}
"""Kind of device -> area -> (M, N, K)."""

_ROWS = 8
_COLUMNS = 64
_SPECIFIED = 2


def measure(
    area: str, shape: tuple[int, int, int], device: str, roofline: Roofline | None, rounds: int
) -> Iterator[Row]:
    """The rows of one shape: ours and every baseline that exists here.

    Raises:
        InconclusiveError: a product has other bits than the CPU's kernel, or the specification, gives.
    """
    m, n, k = shape
    work = Work(bytes=2 * n * k + 4 * m * k + 4 * m * n, fmas=m * n * k)
    sets = sets_needed(2 * n * k + 4 * m * k, roofline.cache if roofline else None)
    generator = torch.Generator(device).manual_seed(1)
    xs = [torch.empty(m, k, device=device) for _ in range(sets)]
    halves = [torch.empty(m, k, device=device, dtype=torch.bfloat16) for _ in range(sets)]
    ws = [torch.empty(n, k, device=device, dtype=torch.bfloat16) for _ in range(sets)]
    for w in ws:
        w.normal_(generator=generator)
    refresh = refresher(xs, halves)
    ours = linear_of(device)
    with torch.inference_mode():
        rows, columns = _sampled(m, n, device)
        held = [ws[0].cpu(), *(w[columns].cpu() for w in ws[1:])]
        for turn, scale in enumerate(SCALES):
            refresh(turn)
            _check(
                f"{area} {m} x {n} x {k}, inputs x {scale:g}",
                ours,
                xs,
                ws,
                held=held,
                sampled=(rows, columns),
            )
        operands = [baselines.Operands(x, h, w, w.float()) for x, h, w in zip(xs, halves, ws, strict=True)]
        contenders = {OURS: Contender(lambda i: ours(xs[i], ws[i]))}
        works = {OURS: work}
        for stack in baselines.products(device):
            require_alike(f"{stack.name} {m} x {n} x {k}", stack.call(operands[0]), ours(xs[0], ws[0]))
            contenders[stack.name] = Contender(lambda i, call=stack.call: call(operands[i]))  # type: ignore[misc]
            works[stack.name] = Work(n * k * stack.weight_bytes, m * n * k, stack.unit)
        times = race(contenders, device=device, sets=sets, rounds=rounds, refresh=refresh)
    yield from of_race(area, f"{m} x {n} x {k}", times, works, roofline)


def linear_of(device: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Our product of a kind of device."""
    if device == "cpu":
        return cpu_gemm.linear
    from repro_kernels.gpu import gemm

    return gemm.linear


def _sampled(m: int, n: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and columns to compare: up to twice as many as asked for, the first among them."""
    rows = torch.arange(0, m, max(1, m // _ROWS), device=device)
    return rows, torch.arange(0, n, max(1, n // _COLUMNS), device=device)


def _check(
    what: str,
    ours: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    xs: list[torch.Tensor],
    ws: list[torch.Tensor],
    *,
    held: list[torch.Tensor],
    sampled: tuple[torch.Tensor, torch.Tensor],
) -> None:
    """Compare some rows of the first set, in all columns, and those rows of the others in some columns.

    Args:
        what: named in a refusal.
        ours: the product.
        xs, ws: the input sets.
        held: in the CPU's memory: the first set's weights, and the sampled columns' weights of the others.
        sampled: rows and columns.
    """
    rows, columns = sampled
    check_specified(what, xs[0], ws[0], ours(xs[0], ws[0]))
    for index, (x, w, weights) in enumerate(zip(xs, ws, held, strict=True)):
        found = ours(x, w)
        some = found[rows] if index == 0 else found[rows][:, columns]
        require_bits(what, some, cpu_gemm.linear(x[rows].cpu(), weights))


def check_specified(what: str, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> None:
    """Some elements against the scalar specification.

    Raises:
        InconclusiveError: one has other bits.
    """
    for index in range(_SPECIFIED):
        row, column = (index * 37) % x.shape[0], (index * 911) % w.shape[0]
        expected = struct.pack("<f", dot.dot(x[row].tolist(), w[column].float().tolist()))
        found = struct.pack("<f", y[row, column].item())
        if found != expected:
            raise InconclusiveError(
                f"{what} gives {found.hex()} where the specification says {expected.hex()}",
                hint="nothing was timed; run repro-audit doctor",
            )
