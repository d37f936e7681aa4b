"""Loading takes the memory of the weights, and little more."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_audit import models
from tests.helpers.tiny_models import tiny_folder

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def kilobytes(field: str) -> int:
    return next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith(field))


@pytest.mark.skipif(not CLEAR.exists(), reason="needs Linux's peak RSS counter")
def test_peak_is_the_weights(tmp_path):
    models.load(str(tiny_folder(tmp_path / "warm")))
    big = {"vocab_size": 12000, "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16}
    folder = tiny_folder(tmp_path / "m", shards=2, fp32_norms=True, num_hidden_layers=2, **big)
    CLEAR.write_text("5")
    before = kilobytes("VmRSS")
    model = models.load(str(folder))
    weights = sum(parameter.nbytes for parameter in model.module.parameters()) / 1024
    assert weights > 100_000
    assert kilobytes("VmHWM") - before <= 1.2 * weights
