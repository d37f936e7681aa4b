"""Tests marked gpu are skipped, and counted, without a CUDA device; none of this folder runs without Triton."""

from __future__ import annotations

import importlib.util

import pytest
import torch

collect_ignore_glob: list[str] = [] if importlib.util.find_spec("triton") else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
