"""Without a GPU: small cases in Triton's interpreter, made exact, have the bits of the CPU."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.gpu import cases

_SMALL = sorted(name for name, case in cases.load().items() if case.small)


@functools.cache
def _interpreted(area: str) -> Mapping[str, str]:
    """Case -> difference, for the cases of one area, from one process: Triton decides at import."""
    names = [name for name in _SMALL if _area(name) == area]
    command = [sys.executable, "-m", "tests.gpu.interpreter", *names]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    found = {line["case"]: line["difference"] for line in lines}
    return {name: found.get(name, f"did not finish: {result.stderr[-2000:]}") for name in names}


def _area(name: str) -> str:
    return cases.CASES[name].function.__module__


@pytest.mark.parametrize("name", _SMALL)
def test_the_interpreter_has_the_bits_of_the_cpu(name: str) -> None:
    found = _interpreted(_area(name))[name]
    assert not found, found
