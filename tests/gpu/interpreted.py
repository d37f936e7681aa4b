"""Run the small cases in Triton's interpreter: ``TRITON_INTERPRET=1 python -m tests.gpu.interpreted
[PREFIX]``.

Prints one line per case that differs or fails, and ``N cases, F failed`` at the end.
"""

from __future__ import annotations

import os
import sys
import time
import traceback

os.environ["TRITON_INTERPRET"] = "1"

import torch

from tests.gpu import exact_interpreter
from tests.gpu.cases import check, load_all


def main(prefix: str = "", verbose: bool = False) -> int:
    """Run the cases whose name starts with `prefix`; the number that failed."""
    exact_interpreter.apply()
    chosen = [c for name, c in load_all().items() if c.small and name.startswith(prefix)]
    failed = 0
    for each in chosen:
        started = time.monotonic()
        try:
            problem = check(each, torch.device("cpu"))
        except (AssertionError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        failed += bool(problem)
        if problem or verbose:
            print(f"{each.name}: {problem or 'same bits'} ({time.monotonic() - started:.1f} s)", flush=True)
    print(f"{len(chosen)} cases, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2], verbose="-v" in sys.argv) != 0)
