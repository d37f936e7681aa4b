"""The seven-shape probe on a GPU: every digest is the committed one, whole outputs included."""

from __future__ import annotations

import pytest
import torch
from repro_kernels import probe


@pytest.mark.gpu
@pytest.mark.parametrize("shape", probe.SHAPES, ids=probe.name)
def test_whole_output_on_a_gpu(shape: tuple[int, int, int]) -> None:
    found = probe.run(shape, torch.device("cuda"))
    assert probe.problems(found, shape) == []
