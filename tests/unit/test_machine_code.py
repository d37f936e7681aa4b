"""Compiled kernels on record: what is compared, what is expected to differ, and that neither decides."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from manifests import regenerate, synthetic
from repro_audit.manifest.dsse import seal
from repro_audit.manifest.parse import parse_manifest
from repro_audit.manifest.types import Manifest
from repro_audit.report import console
from repro_audit.report import json as as_json
from repro_audit.trace.record import CompiledKernel
from repro_audit.verdict import Result, Verdict
from repro_audit.verify.diff import diff
from repro_audit.verify.judge import verdict_of
from repro_audit.verify.machine_code import compare_machine_code
from repro_audit.verify.show import show

KERNELS = synthetic.KERNELS
GPU = {
    "device": "cuda:0",
    "gpu.vendor": "NVIDIA",
    "gpu.capability": "sm_90",
    "gpu.name": "H200",
    "gpu.kernels": "12" * 32,
    "package.triton": "3.6.0",
}
CPU = {"device": "cpu", "cpu.vendor": "A", "cpu.model": "B", "cpu.isa": "avx2", "kernels": "34" * 32}


def recorded(environment: dict[str, str] = GPU, kernels: tuple[CompiledKernel, ...] = KERNELS) -> Manifest:
    run = synthetic.make()
    run.environment, run.record.kernels = environment, kernels
    return parse_manifest(run.write()[0])


def test_they_are_read_as_they_were_written() -> None:
    assert recorded(kernels=KERNELS[::-1]).compiled == tuple(sorted(KERNELS))
    assert recorded(kernels=()).compiled == ()


def test_the_same_code() -> None:
    found, fact = compare_machine_code(recorded(), KERNELS[1:], GPU)
    assert found == []
    assert fact == "2 of 2 that ran on both sides are the same (3 recorded, 2 here)"


def test_other_code_on_one_class_is_named_and_decides_nothing() -> None:
    mine = (KERNELS[0], replace(KERNELS[2], sha256="77" * 32))
    (finding,), fact = compare_machine_code(recorded(), mine, {**GPU, "gpu.name": "H100"})
    assert (finding.code, finding.kind) == ("RA505", "environment")
    assert "1 compiled kernel(s)" in finding.message and KERNELS[2].name in finding.message
    ((_, detail),) = finding.details
    assert "efefefefefefefef recorded, 7777777777777777 here; sm_90; x: *fp32, LOG=False" in detail
    assert fact == "1 of 2 that ran on both sides are the same (3 recorded, 2 here)"
    assert verdict_of([finding], Verdict.REPRODUCED) is Verdict.REPRODUCED
    result = Result("verify", Verdict.REPRODUCED, "same", (finding,), (("compiled kernels", fact),))
    assert KERNELS[2].name in console.render(result)
    assert json.loads(as_json.render(result))["findings"][0]["code"] == "RA505"


def test_many_are_counted_and_some_are_shown() -> None:
    many = tuple(replace(KERNELS[0], name=f"gpu.k{n:02}") for n in range(20))
    mine = [replace(kernel, sha256="00" * 32) for kernel in many]
    (finding,), _ = compare_machine_code(recorded(kernels=many), mine, GPU)
    assert "20 compiled kernel(s)" in finding.message and finding.message.endswith("and 12 more")
    assert len(finding.details) == 8


def test_another_class_is_expected_to_differ() -> None:
    mine = [replace(kernel, sha256="00" * 32) for kernel in KERNELS]
    for here, why in (
        ({**GPU, "gpu.capability": "sm_80"}, "sm_90 there and sm_80 here"),
        ({**GPU, "package.triton": "3.9.0"}, "other Triton"),
        ({**GPU, "gpu.kernels": "00" * 32}, "other kernel sources"),
        (CPU, "cuda there and cpu here"),
    ):
        found, fact = compare_machine_code(recorded(), mine, here)
        assert found == []
        assert fact == f"3 recorded, 3 here: expected to differ, {why}"


def test_the_library_of_a_cpu() -> None:
    library = CompiledKernel("cpu", "avx2", "x86_64", "ab" * 32)
    manifest = recorded(CPU, (library,))
    assert compare_machine_code(manifest, (library,), CPU)[0] == []
    (finding,), _ = compare_machine_code(manifest, (replace(library, sha256="00" * 32),), CPU)
    assert finding.code == "RA505"
    other = (replace(library, specialisation="avx512"),)
    assert compare_machine_code(manifest, other, {**CPU, "cpu.isa": "avx512"})[0] == []


def test_a_record_that_lists_none() -> None:
    assert compare_machine_code(recorded(kernels=()), KERNELS, GPU) == ([], None)


def test_show_and_diff(tmp_path: Path) -> None:
    paths = []
    for name, kernels in (("a", KERNELS), ("b", (*KERNELS[:2], replace(KERNELS[2], sha256="00" * 32)))):
        run = synthetic.make()
        run.environment, run.record.kernels = GPU, kernels
        payload, trace = run.write()
        paths.append(tmp_path / f"{name}.manifest.json")
        paths[-1].write_bytes(seal(payload, regenerate.RUNNER))
        (tmp_path / f"{name}.trace.safetensors").write_bytes(trace)
    facts = dict(show(paths[0]).facts)
    assert facts["claimed: compiled kernels"] == "3 for sm_90, SHA-256 of each in the manifest"
    result = diff(paths)
    assert result.verdict is Verdict.IDENTICAL
    (fact,) = (value for name, value in result.facts if name.endswith("compiled kernels"))
    assert fact.startswith("2 of 3 that ran on both sides are the same")
