"""Shared by all tests: no network, and ``tests.helpers`` importable from anywhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["USE_HUB_KERNELS"] = "NO"
# Last, so that an installed package is what is tested.
sys.path.append(str(Path(__file__).resolve().parent.parent))
