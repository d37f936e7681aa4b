"""The table of operators against the code, the evidence, and the README made from it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from repro_kernels import registry
from repro_kernels.cpu import elementary
from repro_kernels.errors import UnsupportedError
from repro_kernels.registry import OPERATORS, Operator

TESTS = Path(__file__).parent


@pytest.mark.parametrize("row", OPERATORS.values(), ids=lambda row: row.name)
@pytest.mark.parametrize("backend", registry.BACKENDS)
def test_references_and_evidence_exist(row: Operator, backend: str) -> None:
    if backend == "gpu":
        pytest.importorskip("triton")
    function = registry.resolve(row.name, backend=backend)
    assert callable(function)
    assert function.__doc__, f"{row.name} on {backend} has no docstring"
    evidence = TESTS / row.evidence
    assert evidence.is_file()
    assert row.profile in registry.PROFILES


@pytest.mark.parametrize("row", OPERATORS.values(), ids=lambda row: row.name)
def test_the_gpu_takes_the_arguments_of_the_cpu(row: Operator) -> None:
    pytest.importorskip("triton")
    one, other = (inspect.signature(registry.resolve(row.name, backend=b)) for b in ("cpu", "gpu"))
    assert [(p.name, p.kind, p.default) for p in one.parameters.values()] == [
        (p.name, p.kind, p.default) for p in other.parameters.values()
    ]


def test_every_elementwise_name_has_a_row() -> None:
    missing = elementary.SUPPORTED - OPERATORS.keys()
    assert not missing
    unary = {row.name for row in OPERATORS.values() if row.cpu == "elementary:unary"}
    assert unary <= elementary.SUPPORTED


def test_the_readme_is_current() -> None:
    path = TESTS.parents[1] / "kernels" / "README.md"
    assert path.read_text(encoding="utf-8") == registry.readme(), "run `python -m repro_kernels.registry`"


def test_what_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="embedding_bag"):
        registry.resolve("embedding_bag")
    with pytest.raises(UnsupportedError, match="profile exact"):
        registry.resolve("linear", profile="exact")
    with pytest.raises(UnsupportedError, match="on cuda"):
        registry.resolve("linear", backend="cuda")


def test_the_table_needs_no_torch() -> None:
    code = (
        "import sys, repro_kernels.registry as r; "
        "r.resolve('philox', backend='spec'); r.resolve('softmax', backend='spec'); "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
