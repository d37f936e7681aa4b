"""Global state: what an audited run sets, and that all of it is put back, on every thread, after an error
too.
"""

from __future__ import annotations

import os

import pytest
import torch

from repro_audit.engine.context import audited


def state() -> tuple[object, ...]:
    return (
        torch.get_default_dtype(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.backends.mha.get_fastpath_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_grad_enabled(),
        os.environ.get("USE_HUB_KERNELS"),
    )


def test_everything_is_undone_even_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USE_HUB_KERNELS", "MAYBE")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_autocast_enabled("cuda", True)
    try:
        before = state()
        with pytest.raises(KeyboardInterrupt), audited():
            assert state() != before
            assert torch.is_inference_mode_enabled()
            assert not torch.is_autocast_enabled("cuda")
            assert os.environ["USE_HUB_KERNELS"] == "NO"
            raise KeyboardInterrupt
        assert state() == before
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.use_deterministic_algorithms(False)


def test_flush_to_zero_is_off_on_every_thread_and_comes_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    subnormal = torch.full((1 << 20,), 1e-40)
    count = subnormal.numel()
    try:
        torch.set_flush_denormal(True)
        flushed = int((subnormal * 0.5).count_nonzero())
        assert flushed < count
        with audited():
            assert int((subnormal * 0.5).count_nonzero()) == count
        assert int((subnormal * 0.5).count_nonzero()) == flushed
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)
