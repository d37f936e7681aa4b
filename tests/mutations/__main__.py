"""``python -m tests.mutations [--quick] [NAME...]``: what becomes of mutants; exit code 1 if one lives."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from repro_kernels.cpu import native

from tests.mutations.mutants import MUTANTS
from tests.mutations.runner import KILLED, Outcome, run


def main() -> int:
    """Run the chosen mutants, all of them by default."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to run; all of them without")
    parser.add_argument("--quick", action="store_true", help="only those that run on every change")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        parser.error(f"no mutant is called {sorted(unknown)[0]}")
    chosen = [
        mutant
        for mutant in MUTANTS
        if (not arguments.names or mutant.name in arguments.names) and (mutant.quick or not arguments.quick)
    ]
    beyond = [mutant for mutant in chosen if mutant.isa and mutant.isa not in native.available()]
    for mutant in beyond:
        print(f"skipped: {mutant.name} needs {mutant.isa}, which this machine lacks")
    chosen = [mutant for mutant in chosen if mutant not in beyond]
    print("| mutant | verdict | tests that fail | s |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        outcomes = run(chosen, Path(folder), _tell)
    alive = [outcome for outcome in outcomes if outcome.verdict != KILLED]
    print(f"\n{len(outcomes) - len(alive)} of {len(outcomes)} mutants killed")
    for outcome in alive:
        print(f"{outcome.verdict} {outcome.mutant.name}:", *outcome.missed, sep="\n  ")
    return 1 if alive else 0


def _tell(outcome: Outcome) -> None:
    mutant = outcome.mutant
    print(f"| {mutant.name} | {outcome.verdict} | {len(mutant.tests)} | {outcome.seconds:.0f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
