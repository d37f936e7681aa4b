"""check, diff, show, and all they need run where torch cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

#: The checkout's packages before installed ones, and what the caller's own path offers.
PATH = [ROOT, ROOT / "kernels", *filter(None, [os.environ.get("PYTHONPATH")])]

PROGRAM = """
import sys
for name in ("torch", "transformers", "safetensors", "tokenizers"):
    sys.modules[name] = None
from pathlib import Path
import repro_audit.manifest.attest, repro_audit.manifest.build, repro_audit.manifest.private
import repro_audit.manifest.omsroot, repro_audit.trace.tracefile
from repro_audit.manifest.keys import load_public
from repro_audit.verify.check import check
from repro_audit.verify.diff import diff
from repro_audit.verify.show import show
folder = Path(sys.argv[1])
key = load_public(str(folder / "keys" / "runner.pub"))
plain = folder / "vectors" / "valid" / "plain.manifest.json"
for result in (check([plain], [key]), diff([plain, plain], [key]), show(plain, [key])):
    print(result.verdict.value)
"""


def test_no_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT / "manifests")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATH))},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["VALID", "IDENTICAL", "VALID"]
