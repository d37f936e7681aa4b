"""A window that starts inside a segment: the segments of keys stay at multiples of 128 of the position."""

from __future__ import annotations

import pytest
import torch
from kernel_support import assert_bits, tensor, values
from repro_kernels.cpu import attention
from repro_kernels.errors import NonFiniteError
from repro_kernels.spec import attention as spec

KEYS, DEPTH = 300, 5


@pytest.mark.parametrize(
    ("window", "positions"), [(100, [150, 220, 299]), (200, [230, 290, 299]), (40, [140])]
)
def test_segments_do_not_follow_the_window(window: int, positions: list[int]) -> None:
    q = tensor((1, 1, len(positions), DEPTH), seed=window)
    k, v = (tensor((1, 1, KEYS, DEPTH), seed=window + i) for i in (1, 2))
    got = attention.attention(
        q, k, v, scale=0.5, out_dtype=torch.float32, q_positions=torch.tensor([positions]), window=window
    )
    allowed = [
        [spec.may_attend(j, at, causal=True, window=window, key_length=None, mask=True) for j in range(KEYS)]
        for at in positions
    ]
    rows = [[values(row) for row in x[0, 0]] for x in (q, k, v)]
    want = spec.attention(*rows, scale=0.5, allowed=allowed)
    assert_bits(got, [element for row in want for element in row])


def test_an_overflowing_score_under_a_mask_stops_the_run() -> None:
    q, k = torch.full((1, 1, 1, DEPTH), 3e38), torch.full((1, 1, 4, DEPTH), 3e38)
    v, mask = torch.ones(1, 1, 4, DEPTH), torch.tensor([[[[True, False, True, True]]]])
    with pytest.raises(NonFiniteError, match="score"):
        attention.attention(q, k, v, scale=1.0, out_dtype=torch.float32, mask=mask)
