"""Every kernel compiles for every target the project names, to IEEE instructions and no contraction.

In CI each kernel's first specialisation is compiled for all six targets and the others for one each, in turn;
``REPRO_COMPILE=all`` compiles everything for everything.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import pytest

pytest.importorskip("triton")

from repro_kernels.gpu.runtime import Build

from tests.gpu.compiled import TARGETS, builds, inspect, plan, problem_at

EVERYTHING = os.environ.get("REPRO_COMPILE") == "all"
PLAN = plan(EVERYTHING)


@pytest.fixture(scope="module")
def problems() -> list[str]:
    """What is wrong with each entry of the plan, compiled on every core."""
    check = functools.partial(problem_at, everything=EVERYTHING)
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(check, range(len(PLAN)), chunksize=8))


@pytest.mark.parametrize("target", TARGETS)
def test_compiled_code_is_ieee(target: int, problems: list[str]) -> None:
    found = {
        build.name: what
        for (build, where), what in zip(PLAN, problems, strict=True)
        if where == target and what
    }
    assert found == {}


def test_every_kernel_is_compiled_for_every_target() -> None:
    kernels = {build.kernel for build in builds()}
    assert len(kernels) > 20
    for target in TARGETS:
        assert {build.kernel for build, where in PLAN if where == target} == kernels


HEADER = ".target sm_80\n"


@pytest.mark.parametrize(
    ("ptx", "llir", "fma", "expected"),
    [
        ("ex2.approx.f32 %f1, %f2;", "", True, "an approximation: .approx"),
        ("fma.rn.ftz.f32 %f1;", "", True, "subnormals flushed to zero: .ftz"),
        ("mma.sync.aligned.m16n8k8;", "", True, "a tensor core: mma"),
        ("wgmma.mma_async.sync;", "", True, "a tensor core: wgmma"),
        ("tcgen05.mma.cta_group;", "", True, "a tensor core: tcgen05"),
        ("atom.global.add.f32 %f1;", "", True, "a float atomic: atom.global.add.f32"),
        ("red.global.add.noftz.bf16 [%rd1];", "", True, "a float atomic: red.global.add.noftz.bf16"),
        ("add.f32 %f1, %f2, %f3;", "", True, "a rounding left open: add.f32"),
        ("div.full.f32 %f1;", "", True, "division that is not IEEE: div.full"),
        ("fma.rn.f32 %f1;", "fmul float %1", True, "1 fused multiply-adds, 0 written"),
        ("fma.rn.f32x2 %f1;", "call @llvm.fma.f32(", True, "2 fused multiply-adds, 1 written"),
        ("fma.rn.f64 %f1;", "call @llvm.fma.f64(", False, "1 fused multiply-adds, 1 written"),
        ("", "fmul contract float %1", True, "arithmetic that LLVM may change"),
        ("fma.rn.f32x2 %f1;\nadd.rn.f32;\nmul.rn.f32;\ndiv.rn.f32;", "@llvm.fma.v2f32(", True, ""),
        ("atom.global.min.s64;\nadd.s32;\nfma.rn.f32;", "@llvm.fma.f32(", True, ""),
    ],
)
def test_the_rules_notice(ptx: str, llir: str, fma: bool, expected: str) -> None:
    assert inspect(HEADER + ptx, llir, 80, fma) == expected


def test_another_target_is_noticed() -> None:
    assert inspect(HEADER, "", 90, True) == "not compiled for sm_90"


def test_builds_name_kernel_and_types() -> None:
    assert all(isinstance(build, Build) and "(" in build.name for build in builds())
