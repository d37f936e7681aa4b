"""Masked by provenance: a masked entry gives +0 whatever its score; what no mask covers must be finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from repro_kernels.cpu import softmax as kernel

from repro_audit.engine import masks
from repro_audit.engine.context import audited
from repro_audit.engine.dispatch import ProfileMode
from repro_audit.engine.optable import table
from repro_audit.errors import InconclusiveError

LOW = torch.finfo(torch.float32).min
ALLOWED = torch.ones(4, 4, dtype=torch.bool).tril()


def run(compute: Callable[..., Any], *args: Any) -> Any:
    with audited(), ProfileMode(table(), {}):
        return compute(*args)


def additive(scores: Any) -> Any:
    return scores + torch.where(ALLOWED, torch.zeros(()), LOW)


def infinite(scores: Any) -> Any:
    return scores + torch.zeros(4, 4).masked_fill(~ALLOWED, float("-inf"))


def filled(scores: Any) -> Any:
    return scores.masked_fill(~ALLOWED, LOW)


def filled_in_place(scores: Any) -> Any:
    copy = scores.clone()
    copy.masked_fill_(~ALLOWED, float("-inf"))
    return copy


def chosen(scores: Any) -> Any:
    return torch.where(ALLOWED, scores, torch.full((), LOW))


def inverted(scores: Any) -> Any:
    return scores + (1.0 - ALLOWED.to(torch.float32)) * LOW


def triangular(scores: Any) -> Any:
    return scores + torch.full((4, 4), LOW).triu(1)


def by_slices(scores: Any) -> Any:
    mask = torch.full((1, 1, 4, 6), float("-inf"))
    mask[:, :, :, :4] = torch.where(ALLOWED, torch.zeros(()), LOW)
    return scores + mask[0, 0, :, :4]


def constant(scores: Any) -> Any:
    return torch.where(ALLOWED, scores, torch.tensor(LOW))


WAYS = [additive, infinite, filled, filled_in_place, chosen, inverted, triangular, by_slices, constant]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("score", [3.0, float("nan"), float("inf"), 3.0e38, -3.4e38])
def test_masked_entries_are_zero_whatever_the_score(way: Callable[..., Any], score: float) -> None:
    scores = torch.randn(4, 4)
    scores[0, 2] = scores[1, 3] = score
    result = run(lambda: torch.softmax(way(scores), dim=-1, dtype=torch.float32).to(torch.bfloat16))
    clean = torch.where(ALLOWED, scores, torch.zeros(()))
    expected = kernel.softmax(clean, -1, mask=ALLOWED).to(torch.bfloat16)
    assert (result.view(torch.int16) == expected.view(torch.int16)).all()
    assert (result.view(torch.int16)[~ALLOWED] == 0).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_an_unmasked_score_that_is_not_finite_stops_the_run(bad: float) -> None:
    scores = torch.randn(4, 4)
    scores[2, 1] = bad
    with pytest.raises(InconclusiveError, match="non-finite attention score"):
        run(lambda: torch.softmax(additive(scores), dim=-1))


def test_a_value_row_that_is_not_finite_stops_the_run() -> None:
    values = torch.randn(4, 8)
    values[1, 1] = float("inf")
    scores = torch.randn(4, 4)
    with pytest.raises(InconclusiveError, match="non-finite value row"):
        run(lambda: torch.softmax(additive(scores), dim=-1) @ values)


def test_a_scale_is_not_a_mask() -> None:
    scores = torch.randn(4, 4)
    plain = run(lambda: torch.softmax(scores * 3.0 + torch.full((), -5.0), dim=-1))
    assert (plain > 0).all()


def test_a_full_mask_times_zero_masks_nothing() -> None:
    scores = torch.randn(4, 4)
    result = run(lambda: torch.softmax(scores + torch.full((4, 4), LOW) * torch.zeros(4, 4), dim=-1))
    assert (result > 0).all()


def test_sdpa_masks_alike() -> None:
    q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    by_bool = run(lambda: attend(q, k, v, attn_mask=ALLOWED))
    by_float = run(lambda: attend(q, k, v, attn_mask=torch.where(ALLOWED, torch.zeros(()), LOW)))
    causal = run(lambda: attend(q, k, v, is_causal=True))
    steps = run(lambda: torch.softmax(additive(q @ k.transpose(-1, -2) * (1 / 8**0.5)), dim=-1) @ v)
    for other in (by_float, causal, steps):
        assert (by_bool.view(torch.int32) == other.contiguous().view(torch.int32)).all()


def test_what_is_masked_moves_to_another_device() -> None:
    mask = run(lambda: torch.tensor([0.0, -torch.inf, 0.0]).to("meta"))
    tag = masks.tag_of(mask)
    assert tag is not None and tag.device.type == "meta" and tag.shape == mask.shape
