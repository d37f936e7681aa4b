"""On a GPU: every case has the bits of the CPU."""

from __future__ import annotations

import pytest
import torch

from tests.gpu import cases

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", sorted(cases.load()))
def test_a_gpu_has_the_bits_of_the_cpu(name: str) -> None:
    found = cases.difference(cases.run(name, "gpu", torch.device("cuda", 0)), cases.expected(name))
    assert not found, found
