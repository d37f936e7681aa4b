"""Every case on a GPU against the CPU kernels, by integer views."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.cases import check, load_all

CASES = load_all()


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_gpu_gives_the_cpu_bits(name: str) -> None:
    assert check(CASES[name], torch.device("cuda")) == ""
