"""The sampler against its specification, and what it must refuse."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import dtypes, seeds, tensor, values
from repro_kernels.cpu import sampling as cpu
from repro_kernels.errors import NonFiniteError, UnsupportedError
from repro_kernels.spec import floats
from repro_kernels.spec import sampling as spec

DRAW = {"seed": 5, "position": 3, "sequence_id": 9}


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(1, 300),
    flavour=st.sampled_from(["normal", "integers"]),
    dtype=dtypes,
    seed=seeds,
    temperature=st.sampled_from([0.0, 0.3, 0.8, 1.0, 50.0]),
    k=st.integers(0, 40),
    p=st.sampled_from([1.0, 0.95, 0.5, 0.01]),
    key=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**32 - 1),
)
def test_draws(
    *,
    n: int,
    flavour: str,
    dtype: torch.dtype,
    seed: int,
    temperature: float,
    k: int,
    p: float,
    key: int,
    position: int,
) -> None:
    logits = tensor((n,), seed=seed, flavour=flavour, dtype=dtype)
    if n > 3:
        logits[seed % n] = -torch.inf
    options = {
        "temperature": temperature,
        "seed": key,
        "position": position,
        "sequence_id": seed,
        "top_k": k,
        "top_p": p,
    }
    assert cpu.sample(logits, **options) == spec.sample(values(logits), **options)


def test_a_real_vocabulary() -> None:
    logits = tensor((5000,), seed=1) * 3
    for p in (1.0, 0.9, 0.9999):
        options = {"temperature": 0.7, "top_p": p, **DRAW}
        assert cpu.sample(logits, **options) == spec.sample(values(logits), **options)


def test_flat_probabilities_need_more_than_a_first_look() -> None:
    logits = torch.zeros(3000)
    for p in (0.1, 0.5, 0.999):
        options = {"temperature": 1.0, "top_p": p, **DRAW}
        assert cpu.sample(logits, **options) == spec.sample([0.0] * 3000, **options)


def test_greedy_ties_go_to_the_lowest_id() -> None:
    assert cpu.sample(torch.tensor([-1.0, -0.0, 0.0]), temperature=0, **DRAW) == 1
    assert cpu.sample(torch.tensor([torch.inf, 1.0]), temperature=0, **DRAW) == 0
    assert cpu.sample(torch.tensor([1.0, 2.0]), temperature=0, top_k=1, **DRAW) == 1


def test_top_k_keeps_the_lowest_ids_at_its_edge() -> None:
    picked = {
        cpu.sample(torch.zeros(9), temperature=1, seed=1, position=i, sequence_id=0, top_k=3)
        for i in range(200)
    }
    assert picked == {0, 1, 2}


def test_top_p_keeps_the_shortest_prefix_that_reaches_it() -> None:
    assert spec.nucleus([0.25] * 4, 0.5) == {0, 1}
    assert spec.nucleus([0.1, 0.4, 0.4, 0.1], floats.rn32(0.81)) == {0, 1, 2}
    assert spec.nucleus([0.25] * 3, 1.0) == {0, 1, 2}
    picked = {
        cpu.sample(torch.zeros(4), temperature=1, seed=1, position=i, sequence_id=0, top_p=0.5)
        for i in range(99)
    }
    assert picked == {0, 1}


def test_the_draw_depends_on_seed_position_and_id() -> None:
    logits = torch.zeros(4096)
    base = {"temperature": 1.0, **DRAW}
    tokens = [
        cpu.sample(logits, **(base | change))
        for change in ({}, {"seed": 6}, {"position": 4}, {"sequence_id": 8})
    ]
    assert len(set(tokens)) == 4
    # equal probabilities are powers of two here, so the token is the draw itself
    from repro_kernels.spec.philox import uniform

    assert tokens[0] == int(uniform(5, 3, 9) * 4096)


def test_what_stops_a_run() -> None:
    for temperature in (0.0, 1.0):
        with pytest.raises(NonFiniteError, match="logits"):
            cpu.sample(torch.tensor([1.0, torch.nan]), temperature=temperature, **DRAW)
    for logits in ([torch.inf, 1.0], [-torch.inf, -torch.inf]):
        with pytest.raises(NonFiniteError, match="temperature"):
            cpu.sample(torch.tensor(logits), temperature=1, **DRAW)
    with pytest.raises(NonFiniteError, match="temperature"):
        cpu.sample(torch.tensor([1e30]), temperature=1e-20, **DRAW)


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -1},
        {"temperature": 1e-60},
        {"temperature": torch.inf},
        {"top_k": -1},
        {"top_p": 0},
        {"top_p": 1.5},
    ],
)
def test_what_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(UnsupportedError, match="sampling"):
        cpu.sample(torch.ones(3), **({"temperature": 1.0} | bad), **DRAW)


def test_one_row_only() -> None:
    for shape in ((), (0,), (1, 3)):
        with pytest.raises(ValueError, match="one row"):
            cpu.sample(torch.ones(shape), temperature=1, **DRAW)


def test_the_two_largest_of_each_row() -> None:
    inf, nan = float("inf"), float("nan")
    rows = {
        (3.0, 1.0, 3.0): (0, 2),
        (1.0, 2.0, 3.0): (2, 1),
        (-0.0, 0.0, -1.0): (0, 1),
        (-inf, -inf, -inf): (0, 1),
        (-inf, 1.0, -inf): (1, 0),
        (1.0, nan, inf): (1, 2),
    }
    for row, expected in rows.items():
        logits = torch.tensor([row, row])
        found = cpu.top_two(logits)
        assert found[:, :, 0].tolist() == [list(expected)] * 2
        bits = logits.view(torch.int32)[0, list(expected)].long() & 0xFFFFFFFF
        assert found[1, :, 1].tolist() == bits.tolist()
    assert cpu.top_two(torch.tensor([[5.0]])).tolist() == [[[0, 0x40A00000], [0, 0]]]


def test_rows_are_drawn_one_by_one() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    flag = torch.zeros(1, dtype=torch.int32)
    at, ids = torch.tensor([4, 5, 2**31]), torch.tensor([0, 2**63 - 1, -1])
    how = {"temperature": 0.7, "seed": 9, "top_k": 7, "top_p": 0.8}
    tokens, tops = cpu.sample_rows(logits, positions=at, ids=ids, flag=flag, **how)
    for row in range(3):
        one = cpu.sample(logits[row], position=int(at[row]), sequence_id=int(ids[row]) % 2**64, **how)
        assert int(tokens[row]) == one
    assert tops.tolist() == cpu.top_two(logits).tolist()
    assert not int(flag)
    logits[1, 3] = float("nan")
    cpu.sample_rows(logits, positions=at, ids=ids, flag=flag, **how)
    assert int(flag) == 1
