"""Building and loading the shared object: hostile compilers, stale objects, one OpenMP runtime."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repro_kernels.cpu import build, known_answer, native
from repro_kernels.errors import BuildMismatchError

MINIMAL = ("gemm.c", "gemm_row.h", "gemm_simd.h", "common.h", "portable.c")


@pytest.fixture
def few_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The matrix product alone, which compiles in seconds."""
    folder = tmp_path / "csrc"
    folder.mkdir()
    for name in MINIMAL:
        shutil.copy(build.SOURCE_DIR / name, folder)
    monkeypatch.setattr(build, "SOURCE_DIR", folder)
    monkeypatch.setattr(build.source_hash, "__defaults__", (folder, None))
    return folder


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


LOAD = """
import ctypes
from repro_kernels.cpu import known_answer, native
native.library()
loaded = ctypes.CDLL(PATH)
loaded.rk_source_hash.restype = ctypes.c_char_p
assert 2.0**-1074 * 1.0 > 0.0, "loading it switched subnormals off"
print(loaded.rk_source_hash().decode(), *(known_answer.compute(loaded, isa) for isa in native.available()))
"""


def test_hostile_flags_change_no_bit(
    few_sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "gcc -Ofast -ffast-math -march=native -flto -funroll-loops")
    monkeypatch.setenv("CFLAGS", "-Ofast -ffast-math -mfpmath=387")
    monkeypatch.setenv("LDFLAGS", "-Ofast -ffast-math")
    library = build.build(tmp_path / "out" / "kernels.so")
    assert build.is_current(library)
    found = run(LOAD.replace("PATH", repr(str(library))))
    assert found.returncode == 0, found.stderr
    digest, *answers = found.stdout.split()
    assert digest == build.source_hash()
    assert answers == [known_answer.ANSWER] * len(native.available())
    assert [path.name for path in library.parent.iterdir()] == [library.name]


def test_a_changed_source_makes_the_object_stale(few_sources: Path, tmp_path: Path) -> None:
    before = build.source_hash()
    library = tmp_path / "kernels.so"
    library.write_bytes(b"\x7fELF" + before.encode())
    assert build.is_current(library)
    with (few_sources / "gemm.c").open("a") as source:
        source.write("/* edited */\n")
    assert build.source_hash() != before
    assert not build.is_current(library)


def test_a_failing_compiler_leaves_nothing(few_sources: Path, tmp_path: Path) -> None:
    (few_sources / "gemm.c").write_text("this is no C\n")
    with pytest.raises(BuildMismatchError, match=r"(?s)compiling the kernels failed: gcc .*gemm\.c.*error"):
        build.build(tmp_path / "out" / "kernels.so", command=["gcc"])
    assert list((tmp_path / "out").iterdir()) == []


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    with pytest.raises(BuildMismatchError, match="no-such-compiler is not on the PATH; install GCC"):
        build.compiler()


def test_an_unknown_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(
        BuildMismatchError, match="runs on Linux on x86-64 and aarch64, not on linux on riscv64"
    ):
        build.machine()


STALE = """
from pathlib import Path
from repro_kernels.cpu import build, native
from repro_kernels.errors import BuildMismatchError
CHANGE
try:
    native.isa()
except BuildMismatchError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "build.source_hash = lambda: '0' * 64",
            "the compiled kernels are not those of the C sources: run `python -m",
        ),
        ("build.LIBRARY = Path('/nowhere/x.so')", "the compiled kernels are missing (x.so): run `python -m"),
        ("build.LIBRARY = Path(build.__file__)", "the compiled kernels cannot be loaded ("),
        (
            "build.LIBRARY = Path(__import__('_ctypes').__file__)",
            "the compiled kernels cannot be loaded (",
        ),
    ],
    ids=["stale", "missing", "not an object", "another object"],
)
def test_an_unfit_object_is_refused_with_one_sentence(change: str, message: str) -> None:
    found = run(STALE.replace("CHANGE", change))
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(message)
    assert len(found.stdout.splitlines()) == 1


@pytest.mark.parametrize("name", ["avx1024", "neon", "AVX2"])
def test_an_instruction_set_that_the_machine_lacks_is_refused(name: str) -> None:
    if name in native.available():
        pytest.skip(f"this machine has {name}")
    found = run(STALE.replace("CHANGE", ""), REPRO_KERNELS_ISA=name)
    assert found.stdout.startswith(f"REPRO_KERNELS_ISA={name}: this machine runs {native.available()[0]}")


@pytest.mark.parametrize(
    "imports",
    [
        "import torch\nfrom repro_kernels.cpu import native",
        "from repro_kernels.cpu import native\nnative.isa()\nimport torch",
    ],
    ids=["torch first", "kernels first"],
)
def test_one_openmp_runtime_in_the_process(imports: str) -> None:
    code = f"""
{imports}
from repro_kernels.cpu import gemm
x = torch.ones(64, 512)
assert (torch.mm(x, x.t()) == 512).all() and (gemm.matmul(x, x.t()) == 512).all()
print(len(native.openmp_runtimes()))
"""
    found = run(code, OMP_NUM_THREADS="2")
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "1"


def test_loading_needs_no_torch() -> None:
    found = run(
        "import sys; sys.modules['torch'] = None\nfrom repro_kernels.cpu import native; print(native.isa())"
    )
    assert found.stdout.strip() == native.available()[-1], found.stderr


def test_the_numbers_of_dtypes_are_those_of_the_header() -> None:
    header = (build.SOURCE_DIR / "common.h").read_text()
    assert f"enum {{ RK_F32 = {native.DTYPES['float32']}, RK_BF16 = {native.DTYPES['bfloat16']}, " in header
    assert f"RK_F16 = {native.DTYPES['float16']} }};" in header
