"""``repro-audit explain``: what a finding code means."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from repro_audit.cli.app import Common, command
from repro_audit.errors import UsageError
from repro_audit.verdict import Finding, Result, Verdict
from repro_audit.verify.explain import CODES


@command("explain")
def explain(
    common: Common,
    code: Annotated[
        str | None, typer.Argument(help="RA401 and so on; without it, the list.", show_default=False)
    ] = None,
) -> Result | None:
    """What a finding code means and what to do about it."""
    if code is None:
        if common.outputs.wants_data:
            return Result(
                "explain", Verdict.VALID, f"{len(CODES)} finding codes", tuple(map(_finding, CODES))
            )
        for entry in CODES.values():
            sys.stdout.write(f"{entry.code}  {entry.title}\n")
        return None
    if code.upper() not in CODES:
        raise UsageError(f"{code} is no finding code", hint="repro-audit explain lists them")
    return Result(
        "explain",
        Verdict.VALID,
        f"{code.upper()}: {CODES[code.upper()].title}",
        facts=(("meaning", CODES[code.upper()].meaning), ("remedy", CODES[code.upper()].remedy)),
    )


def _finding(code: str) -> Finding:
    return Finding(code, CODES[code].title, "note", details=(("meaning", CODES[code].meaning),))
