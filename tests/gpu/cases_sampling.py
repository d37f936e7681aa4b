"""Drawing tokens: 200,000 Philox draws, every processor, ties, what cannot be drawn from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from repro_kernels.spec.philox import uniform

from tests.gpu.cases import Kernels, case
from tests.gpu.hostile import error, values

Results = Sequence[torch.Tensor]
_SEEDS = (0, 1, 2**32 - 1, 2**63 + 5, 2**64 - 1)
_PROCESSORS: tuple[dict[str, float], ...] = (
    {},
    {"top_k": 5},
    {"top_p": 0.6},
    {"top_k": 40, "top_p": 0.9},
    {"top_k": 1},
    {"top_p": 1e-9},
)


def _draws(kernels: Kernels, row: torch.Tensor, count: int, temperature: float) -> torch.Tensor:
    found = [
        kernels.sampling.sample(
            row, temperature=temperature, seed=seed, position=position, sequence_id=2**40 + position, **how
        )
        for how in _PROCESSORS
        for position, seed in zip(range(count), _SEEDS, strict=False)
    ]
    return torch.tensor(found, device=row.device)


def _uniforms(kernels: Kernels, seed: int, positions: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """On the GPU the kernel; on the CPU the specification, one draw after the other."""
    if hasattr(kernels.sampling, "uniforms"):
        return kernels.sampling.uniforms(seed, positions, ids)
    pairs = zip(positions.tolist(), ids.tolist(), strict=True)
    return torch.tensor([uniform(seed, p, i % 2**64) for p, i in pairs])


def _tokens(kernels: Kernels, row: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """The token of one row for every u: on the CPU c > RN(u * c_last) as the specification writes it."""
    if hasattr(kernels.sampling, "draw"):
        return kernels.sampling.draw(row[None], u)
    sums = kernels.reduce.cumsum(row, 0)
    return torch.searchsorted(sums, u * sums[-1], right=True)


@case("sampling: small draws", small=True)
def small(kernels: Kernels, device: torch.device) -> Results:
    return [_draws(kernels, values((19,), 1).to(device), 1, 0.7)]


@case("sampling: small Philox", small=True)
def small_philox(kernels: Kernels, device: torch.device) -> Results:
    positions = torch.tensor([0, 1, 7, 2**31, 2**32 - 1], device=device)
    ids = torch.tensor([0, 3, 2**40 + 1, 2**63 - 1, -1], device=device)
    return [_uniforms(kernels, seed, positions, ids) for seed in _SEEDS]


@case("sampling: greedy ties", small=True)
def greedy(kernels: Kernels, device: torch.device) -> Results:
    rows = [values((300,), seed, kind="small") for seed in range(4)]
    rows += [torch.zeros(5), torch.tensor([-0.0, 0.0]), torch.full((3,), float("-inf")), rows[0].bfloat16()]
    found = [
        kernels.sampling.sample(row.to(device), temperature=0, seed=0, position=0, sequence_id=0)
        for row in rows
    ]
    return [torch.tensor(found, device=device)]


@case("sampling: errors", small=True)
def errors(kernels: Kernels, device: torch.device) -> Results:
    nan, inf = torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("inf")])
    rows = {"nan": nan, "inf": inf, "none": -inf.abs() * inf[1], "tiny": torch.tensor([3e38, 1.0])}
    base = {"seed": 0, "position": 0, "sequence_id": 0}
    plain = torch.zeros(3)
    wanted = [
        (rows["nan"], {"temperature": 0}),
        (rows["nan"], {"temperature": 1}),
        (rows["inf"], {"temperature": 0}),
        (rows["inf"], {"temperature": 1}),
        (rows["none"], {"temperature": 1}),
        (rows["tiny"], {"temperature": 1e-3}),
        (plain, {"temperature": -1}),
        (plain, {"temperature": float("nan")}),
        (plain, {"temperature": 1, "top_k": -1}),
        (plain, {"temperature": 1, "top_p": 0.0}),
        (plain, {"temperature": 1, "position": 2**32}),
        (plain[:0], {"temperature": 1}),
        (plain[None], {"temperature": 1}),
    ]
    return [
        error(lambda row=row, how=how: kernels.sampling.sample(row.to(device), **{**base, **how})).to(device)
        for row, how in wanted
    ]


@case("sampling: 200,000 draws", small=False)
def many(kernels: Kernels, device: torch.device) -> Results:
    """Forty sequences of five thousand tokens: the uniform numbers, and the tokens they give."""
    positions = torch.arange(5000).repeat(40).to(device)
    ids = (torch.arange(40) * (2**57 + 12345)).repeat_interleave(5000).to(device)
    row = kernels.softmax.softmax(values((257,), 3).to(device), 0)
    found = []
    for seed in _SEEDS[-2:]:
        u = _uniforms(kernels, seed, positions, ids)
        found += [u, _tokens(kernels, row, u)]
    return found


@case("sampling: logits", small=False)
def logits(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for n in (1, 2, 1023, 1025, 49152, 151936):
        row = values((n,), n) * 4
        masked = row.masked_fill(values((n,), n + 1) > 1, float("-inf"))
        masked[0] = 0.5
        for t in (row, row.bfloat16(), masked, torch.zeros(n)):
            found.append(_draws(kernels, t.to(device), 4, 0.8))
    return found


def _rows(kernels: Kernels, logits: torch.Tensor, temperatures: Sequence[float]) -> Results:
    """Tokens, the two best logits and the flag of every row, for every processor."""
    found = []
    positions = torch.arange(7, 7 + len(logits), device=logits.device)
    ids = positions * -(2**60) + 1
    for temperature in temperatures:
        for how in _PROCESSORS if temperature else ({},):
            flag = torch.zeros(1, dtype=torch.int32, device=logits.device)
            tokens, tops = kernels.sampling.sample_rows(
                logits,
                temperature=temperature,
                seed=2**64 - 5,
                positions=positions,
                ids=ids,
                flag=flag,
                **how,
            )
            found += [tops, flag] if int(flag) else [tokens, tops, flag]
    return found


@case("sampling: small rows", small=True)
def small_rows(kernels: Kernels, device: torch.device) -> Results:
    inf = float("inf")
    ties = torch.tensor([[-0.0, 0.0, -1.0], [-inf, -inf, -inf], [2.0, 3.0, 3.0], [-inf, 1.0, -inf]])
    bad = torch.tensor([[1.0, inf, 0.0], [0.0, 1.0, 2.0]])
    nan = torch.tensor([[1.0, float("nan"), 5.0]])
    found: list[torch.Tensor] = []
    for t in (
        values((3, 19), 1),
        values((2, 40), 2).bfloat16(),
        values((2, 1), 3),
        ties,
        ties[:, :2],
        bad,
        nan,
    ):
        found += _rows(kernels, t.to(device), (0.0, 0.7) if t is not ties else (0.0,))
        found.append(kernels.sampling.top_two(t.to(device)))
    return found


@case("sampling: rows of logits", small=False)
def rows_of_logits(kernels: Kernels, device: torch.device) -> Results:
    found: list[torch.Tensor] = []
    for n in (1023, 1025, 8192, 8193, 49152, 128256):
        rows = values((3, n), n) * 4
        rows[1].masked_fill_(values((n,), n + 1) > 1, float("-inf"))
        rows[2] = 0.5
        for t in (rows, rows.half()):
            found += _rows(kernels, t.to(device), (0.0, 0.8))
    return found


def _sums(kernels: Kernels, rows: torch.Tensor) -> torch.Tensor:
    """On the GPU by blocks; on the CPU one addition after the other."""
    if hasattr(kernels.sampling, "ascending_sums"):
        return kernels.sampling.ascending_sums(rows)
    return kernels.reduce.cumsum(rows.float(), 1)


def _ascents(n: int) -> list[torch.Tensor]:
    """Rows that sum up through many exponents, half-way cases, subnormal numbers, and to infinity."""
    spread = values((3, n), n).abs()
    ties = torch.full((2, n), 1.0)
    ties[0, 0], ties[1, 0] = 2.0**24, 2.0**24 + 2
    ties[1, 1::3] = 3.0
    tiny = torch.arange(1, n + 1, dtype=torch.int32).view(torch.float32)[None]
    growing = torch.exp2(torch.arange(n) % 250 - 125.0)[None]
    even = torch.full((1, n), 1.0 / n)
    return [spread, ties, tiny, growing, even, growing * 2.0**126, spread * 0, ties.bfloat16()]


@case("sampling: small sums", small=True)
def small_sums(kernels: Kernels, device: torch.device) -> Results:
    return [_sums(kernels, rows.to(device)) for n in (1, 2, 90) for rows in _ascents(n) if n > 1]


@case("sampling: sums", small=False)
def sums(kernels: Kernels, device: torch.device) -> Results:
    return [_sums(kernels, rows.to(device)) for n in (2047, 2048, 2049, 128256) for rows in _ascents(n)]
