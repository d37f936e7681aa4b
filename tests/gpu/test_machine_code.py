"""Compiled kernels as they go on record: digests that follow the code alone, listed once, per run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from repro_kernels.gpu import compiled as compiled_module
from repro_kernels.gpu import rows, runtime, softmax, tiling
from repro_kernels.gpu.compiled import LONGEST, code_digest, describe, sections

from repro_audit import engine
from repro_audit.engine import Request
from tests.helpers.engine_runs import settings, tiny

PRINT = """
import sys
from repro_kernels.gpu import runtime, softmax
from repro_kernels.gpu.compiled import describe
made = runtime.compile_for(softmax.BUILDS[0], 90)
print(*describe(made), made.asm["ptx"].count("/softmax.py"), sep="\\n")
"""


def made_up(name: str = "_rows", code: bytes = b"code", **constants: Any) -> Any:
    """What Triton returns from a launch, as far as a record reads it."""
    signature = {"x": "*bf16", "n": "i32", **dict.fromkeys(constants, "constexpr")}
    source = SimpleNamespace(
        fn=SimpleNamespace(__module__="repro_kernels.gpu.rows", __name__=name),
        signature=signature,
        constants={(2 + index,): value for index, value in enumerate(constants.values())},
        attrs={(0,): [["tt.divisibility", 16]]},
    )
    metadata = SimpleNamespace(target=SimpleNamespace(backend="cuda", arch=90), num_warps=4, num_stages=3)
    return SimpleNamespace(src=source, metadata=metadata, asm={"cubin": code})


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Launches of made-up kernels; yields the function that launches one."""
    monkeypatch.setattr(runtime, "require", lambda device: None)
    runtime.forget()

    def launch(kernel: Any) -> Any:
        class Jit:
            def __getitem__(self, grid: object) -> Any:
                return lambda *arguments, **named: kernel

        return runtime.launch(Jit(), 1, torch.zeros(1))

    yield launch
    runtime.forget()


def test_each_kernel_once_and_anew_in_each_run(launched: Any) -> None:
    one, other = made_up(BLOCK=64), made_up("_tail", b"other", BLOCK=64)
    assert launched(one) is one
    for kernel in (other, one, one, None):
        launched(kernel)
    assert [kernel.name for kernel in runtime.compiled()] == ["gpu.rows._rows", "gpu.rows._tail"]
    runtime.forget()
    assert runtime.compiled() == ()
    launched(other)
    (found,) = runtime.compiled()
    assert found == describe(other)


def test_what_a_kernel_was_specialised_to() -> None:
    class Odd:
        pass

    found = describe(made_up(BLOCK=64, LAYOUT=(1, 2), f=len, odd=Odd()))
    assert found.name == "gpu.rows._rows" and found.target == "sm_90"
    assert found.specialisation.startswith(
        "x: *bf16 ((tt.divisibility 16)), n: i32, BLOCK=64, LAYOUT=(1 2), f=len, odd=<"
    )
    assert " at 0x" not in found.specialisation
    assert found.specialisation.endswith("; num_warps=4, num_stages=3")
    assert describe(made_up(BLOCK=128)).specialisation != describe(made_up(BLOCK=64)).specialisation
    long = [describe(made_up(text="x" * 5000 + end)).specialisation for end in "ab"]
    assert long[0] != long[1] and all(len(text) <= LONGEST for text in long)


def test_a_digest_follows_the_code_not_its_place(tmp_path: Path) -> None:
    """The cubin holds the paths of the sources; the digest must be the same from another folder."""
    home = Path(compiled_module.__file__).parents[1]
    shutil.copytree(home, tmp_path / "repro_kernels", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    said = []
    for number, root in enumerate((home.parent, tmp_path)):
        done = subprocess.run(
            [sys.executable, "-c", PRINT],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(root), *sys.path]),
                "TRITON_CACHE_DIR": str(tmp_path / f"cache{number}"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines())
    assert said[0] == said[1]
    assert len(said[0][3]) == 64 and said[0][2] == "sm_90"


@pytest.mark.parametrize("module", [rows, tiling, softmax])
def test_kernels_of_either_language_are_described(module: Any) -> None:
    build = module.BUILDS[0]
    found = describe(runtime.compile_for(build, 90))
    assert found.name == f"{build.kernel.__module__.removeprefix('repro_kernels.')}.{build.kernel.__name__}"
    assert found.specialisation.isprintable() and "num_warps=" in found.specialisation


@pytest.mark.gpu
def test_a_run_lists_what_it_launched() -> None:
    requests = [Request(0, tuple(range(3, 40)))]
    runs = [engine.record(tiny(), requests, settings(new_tokens=n, device="cuda:0")) for n in (4, 4, 1)]
    capability = "sm_{}{}".format(*torch.cuda.get_device_capability())
    assert {kernel.target for kernel in runs[0].kernels} == {capability}
    assert runs[0].kernels == runs[1].kernels
    assert len({kernel.name for kernel in runs[0].kernels}) > 5
    fewer, more = set(runs[2].kernels), set(runs[0].kernels)
    assert fewer - more == set() and more - fewer != set()
    assert all(kernel.specialisation.isprintable() for kernel in more)


def test_one_bit_of_the_code_changes_the_digest() -> None:
    cubin = runtime.compile_for(softmax.BUILDS[0], 90).asm["cubin"]
    held = dict(sections(cubin))
    expected = code_digest(cubin)
    for name, changes in ((".text._softmax", True), (".nv.constant0._softmax", True), (".debug_line", False)):
        data = held[name]
        at = cubin.index(data) + len(data) // 2
        flipped = cubin[:at] + bytes([cubin[at] ^ 1]) + cubin[at + 1 :]
        assert (code_digest(flipped) != expected) == changes, name
    assert code_digest(b"not ELF") != code_digest(b"not elf")
