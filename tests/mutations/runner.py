"""Runs mutants on a copy of the sources in a temporary folder; the tree that is tested stays as it is.

A C mutant is compiled for one instruction set, and only what changed: seconds. The copy's tests must all pass
before anything is changed; otherwise their failing would mean nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from repro_kernels.cpu import build, native

from tests.mutations.mutant import Edit, Mutant
from tests.mutations.plugin import REPORT_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("repro_audit", "kernels", "manifests", "tests", "docs", "README.md", "pyproject.toml")
CSRC = Path("kernels/repro_kernels/cpu/csrc")
TIMEOUT = 300
"""Seconds after which a copy's tests are given up, which no mutant may cause."""

_NOT_INHERITED = ("PYTEST_", "REPRO_")

KILLED, SURVIVED, BROKEN = "killed", "SURVIVED", "BROKEN"


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        mutant: which.
        verdict: :data:`KILLED`, :data:`SURVIVED`, or :data:`BROKEN` when its tests did not get to run.
        missed: listed tests that passed all the same; why, for a broken one.
        seconds: compilation and tests.
    """

    mutant: Mutant
    verdict: str
    missed: tuple[str, ...]
    seconds: float


class Workshop:
    """A copy of the sources with objects compiled from it.

    Args:
        folder: an empty folder of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self._objects = folder / "objects"
        self._objects.mkdir()
        self._folder = folder
        self._server: subprocess.Popen[str] | None = None
        ignore = shutil.ignore_patterns("__pycache__", "*.so", "*.tmp")
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.tree / name, ignore=ignore)
            else:
                shutil.copy(source, self.tree / name)

    def apply(self, edits: Iterable[Edit]) -> None:
        """Make the edits in the copy."""
        for edit in edits:
            path = self.tree / edit.file
            path.write_text(replaced(path.read_text(encoding="utf-8"), edit), encoding="utf-8")

    def restore(self, edits: Iterable[Edit]) -> None:
        """Take the edited files from the original again."""
        for edit in edits:
            shutil.copy(ROOT / edit.file, self.tree / edit.file)

    def compile(self, kernels: Sequence[str], isa: str) -> None:
        """The copy's shared object: the named sources for one instruction set, and nothing else.

        Unoptimised beyond -O1, for speed: the bits are the specification's at every level.
        """
        source_dir, library = self.tree / CSRC, self.tree / CSRC.parent / build.LIBRARY.name
        if not kernels:
            library.unlink(missing_ok=True)
            return
        stems = sorted(path.stem for path in source_dir.glob("*.c") if path.name != build.PORTABLE)
        chosen = stems if "*" in kernels else sorted(kernels)
        isa = isa or native.available()[-1]
        flags = [*build.FLAGS, "-O1", *build.VARIANTS[build.machine()][isa], f"-DRK_SUFFIX=_{isa}"]
        headers = b"".join(path.read_bytes() for path in sorted(source_dir.glob("*.h")))
        jobs, objects = [], []
        for stem in chosen:
            source = source_dir / f"{stem}.c"
            digest = hashlib.sha256(headers + source.read_bytes()).hexdigest()[:16]
            objects.append(self._objects / f"{stem}-{isa}-{digest}.o")
            if not objects[-1].exists():
                jobs.append([*flags, "-c", str(source), "-o", str(objects[-1])])
        # The variants that are not compiled do not exist on this "machine".
        only = self._objects / "only.c"
        only.write_text(
            f'#include "common.h"\nRK_EXPORT int rk_supported(void) {{ return {native.ISA_BITS[isa]}; }}\n',
            encoding="utf-8",
        )
        portable = [str(self._objects / f"{name}.o") for name in ("portable", "only")]
        plain = [*build.FLAGS, "-O1", f"-I{source_dir}"]
        stated = f"-DRK_SOURCE_HASH={build.source_hash(source_dir)}"
        renamed = "-Drk_supported=rk_supported_by_all"
        jobs.append([*plain, stated, renamed, "-c", str(source_dir / build.PORTABLE), "-o", portable[0]])
        jobs.append([*plain, "-c", str(only), "-o", portable[1]])
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            list(pool.map(_compile, jobs))
        library.unlink(missing_ok=True)
        _compile(["-shared", "-o", str(library), *map(str, objects), *portable, "-lm"])

    def test(self, ids: Sequence[str]) -> tuple[dict[str, str], str]:
        """Run tests of the copy: node id -> outcome, and what pytest said."""
        said, report = self._folder / "said.txt", self._folder / "report.json"
        for path in (said, report):
            path.unlink(missing_ok=True)
        options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "tests.mutations.plugin"]
        server = self._serving()
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps({"arguments": [*options, *ids], "said": str(said)}) + "\n")
        server.stdin.flush()
        ended, _, _ = select.select([server.stdout], [], [], TIMEOUT)
        if not ended or not server.stdout.readline():
            self.close()
            return {}, f"no end within {TIMEOUT} s, or the process died"
        words = said.read_text(errors="replace") if said.exists() else ""
        found: dict[str, str] = json.loads(report.read_text()) if report.exists() else {}
        return found, words

    def _serving(self) -> subprocess.Popen[str]:
        """The process that runs pytest, started if there is none."""
        if self._server is None:
            paths = os.pathsep.join((str(self.tree / "kernels"), str(self.tree)))
            kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.mutations.server"],
                cwd=self.tree,
                env={
                    **kept,
                    "PYTHONPATH": paths,
                    # Two edits within a second are one to the cache of compiled modules.
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "HF_HUB_OFFLINE": "1",
                    "USE_HUB_KERNELS": "NO",
                    REPORT_VARIABLE: str(self._folder / "report.json"),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        return self._server

    def close(self) -> None:
        """End the process that runs pytest, and what it started."""
        if self._server is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.communicate()
        self._server = None


def replaced(text: str, edit: Edit) -> str:
    """The text with the edit made.

    Raises:
        ValueError: the old text does not stand there exactly once.
    """
    if text.count(edit.old) != 1 or edit.old == edit.new:
        raise ValueError(f"{edit.file} holds {text.count(edit.old)} times, not once: {edit.old!r}")
    return text.replace(edit.old, edit.new)


def _compile(arguments: Sequence[str]) -> None:
    ran = subprocess.run([*build.compiler(), *arguments], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"the copy does not compile: {ran.stderr.strip()}")


def _belongs(node: str, listed: str) -> bool:
    return node == listed or node.startswith((f"{listed}[", f"{listed}::"))


def run(
    mutants: Sequence[Mutant], folder: Path, tell: Callable[[Outcome], None] = lambda _: None
) -> list[Outcome]:
    """Run mutants, one after the other.

    Args:
        mutants: which.
        folder: an empty folder of its own.
        tell: told of each as it is done.

    Raises:
        RuntimeError: the tests do not all pass before anything is changed, or a mutant does not compile.
    """
    with contextlib.closing(Workshop(folder)) as workshop:
        _require_passing(workshop, mutants)
        return [_run_one(workshop, mutant, tell) for mutant in mutants]


def _require_passing(workshop: Workshop, mutants: Sequence[Mutant]) -> None:
    settings = {(mutant.kernels, mutant.isa) for mutant in mutants}
    for kernels, isa in sorted(settings):
        ids = sorted({t for m in mutants if (m.kernels, m.isa) == (kernels, isa) for t in m.tests})
        workshop.compile(kernels, isa)
        found, said = workshop.test(ids)
        for listed in ids:
            outcomes = {outcome for node, outcome in found.items() if _belongs(node, listed)}
            if "passed" not in outcomes or "failed" in outcomes:
                raise RuntimeError(f"{listed} does not pass on the unchanged copy:\n{said[-4000:]}")


def _run_one(workshop: Workshop, mutant: Mutant, tell: Callable[[Outcome], None]) -> Outcome:
    started = time.monotonic()
    workshop.apply(mutant.edits)
    try:
        workshop.compile(mutant.kernels, mutant.isa)
        found, said = workshop.test(mutant.tests)
    finally:
        workshop.restore(mutant.edits)
    seconds = time.monotonic() - started
    missed = tuple(
        listed
        for listed in mutant.tests
        if not any(outcome == "failed" for node, outcome in found.items() if _belongs(node, listed))
    )
    if not found:
        outcome = Outcome(mutant, BROKEN, (said[-2000:],), seconds)
    else:
        outcome = Outcome(mutant, SURVIVED if missed else KILLED, missed, seconds)
    tell(outcome)
    return outcome
