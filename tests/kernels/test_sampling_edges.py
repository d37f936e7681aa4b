"""Draws on the very edge: neighbours that a division joins, and a running sum that equals the threshold."""

from __future__ import annotations

import math

import numpy as np
import torch
from repro_kernels.cpu import sampling
from repro_kernels.spec import sampling as spec
from repro_kernels.spec.attention import softmax
from repro_kernels.spec.floats import add, mul
from repro_kernels.spec.philox import uniform


def test_temperature_divides() -> None:
    # Of neighbours that become equal the lower id stays; a product with 1/T joins other ones.
    rng = np.random.default_rng(5)
    low = rng.uniform(1, 2, 400).astype(np.float32)
    joined = 0
    for a in low:
        pair = [float(a), float(np.nextafter(a, np.float32(4)))]
        options = {"temperature": 3.0, "seed": 1, "position": 2, "sequence_id": 3, "top_k": 1}
        want = spec.sample(pair, **options)
        assert sampling.sample(torch.tensor(pair), **options) == want
        joined += want == 0
    assert 0 < joined < 400


def test_a_sum_that_equals_the_threshold_is_not_beyond_it() -> None:
    edges = 0
    for seed in range(6):
        u = uniform(seed, 0, 0)
        near = np.float32(math.log(u / (1 - u)))
        for step in range(-12, 13):
            logits = [float(near + np.float32(step) * np.spacing(near)), 0.0]
            y = softmax(logits)
            edges += y[0] == mul(u, add(y[0], y[1]))
            options = {"temperature": 1.0, "seed": seed, "position": 0, "sequence_id": 0}
            assert sampling.sample(torch.tensor(logits), **options) == spec.sample(logits, **options)
    assert edges


def test_greedy_ties_far_apart() -> None:
    # Wherever in the vocabulary they stand, and however it is searched.
    for places in ([3, 5], [700, 30_000], [511, 512], [0, 49_151]):
        logits = torch.zeros(49_152)
        logits[places] = 2.5
        options = {"temperature": 0.0, "seed": 0, "position": 0, "sequence_id": 0}
        assert sampling.sample(logits, **options) == places[0]
