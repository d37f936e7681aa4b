"""Loaded into the pytest that runs on a copy: no shrinking, no chance, and a report a program can read."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import hypothesis
import pytest

REPORT_VARIABLE = "REPRO_MUTATIONS_REPORT"

# A failing example is enough: what the smallest one is does not matter here.
hypothesis.settings.register_profile(
    "mutations",
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.load_profile("mutations")

_outcomes: dict[str, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to judge a mutant by an installed package that is not mutated."""
    for name in ("repro_audit", "repro_kernels"):
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None or not Path(found.origin).is_relative_to(Path.cwd()):
            raise pytest.UsageError(f"{name} would not come from the copy")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the worst outcome of a test's phases."""
    before = _outcomes.get(report.nodeid)
    if before != "failed" and (report.outcome != "passed" or before is None):
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report."""
    Path(os.environ[REPORT_VARIABLE]).write_text(json.dumps(_outcomes))
