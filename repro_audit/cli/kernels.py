"""``repro-audit kernels``: what the profile specifies, and how much of PyTorch's core set that covers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from repro_audit.cli.app import Common, command, option
from repro_audit.cli.output import choice, write_text
from repro_audit.verdict import Result

_ACTIONS = ("list",)
_LISTS = ("aten110",)


@command("kernels")
def kernels(
    common: Common,
    action: Annotated[str, typer.Argument(help="list.", show_default=False)],
    coverage: Annotated[
        str | None, option("--coverage", metavar="LIST", help="Class of every operator: aten110.")
    ] = None,
) -> Result | None:
    """The operators that the profile specifies; with --coverage, the class of every operator of a list."""
    choice("action", action, _ACTIONS)
    if coverage is not None:
        choice("coverage", coverage, _LISTS)
    data = _specified() if coverage is None else _covered()
    if common.outputs.format == "json":
        text = json.dumps(data, indent=2) + "\n"
    else:
        text = _lines(data)
    if common.outputs.path is not None:
        write_text(common.outputs.path, text, force=common.outputs.force)
    else:
        sys.stdout.write(text)
    return None


def _specified() -> dict[str, Any]:
    """The registry of ``repro_kernels``; no torch."""
    from repro_kernels.registry import OPERATORS

    names = ("operator", "profile", "definition")
    rows = [dict(zip(names, (op.name, op.profile, op.definition), strict=True)) for op in OPERATORS.values()]
    return {"operators": len(rows), "rows": rows}


def _covered() -> dict[str, Any]:
    from repro_audit.engine import aten110

    return aten110.as_data()


def _lines(data: dict[str, Any]) -> str:
    """A table without ornament, and below it the counts."""
    rows = [[str(value) for value in row.values()] for row in data["rows"]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    text = "".join(_line(row, widths) for row in rows)
    if "percent" not in data:
        return f"{text}\n{data['operators']} operators\n"
    covered = data["exact"] + data["specified"]
    return (
        f"{text}\n{covered} of {data['operators']} ({data['percent']} %): {data['exact']} exact, "
        f"{data['specified']} specified; {data['refused']} refused\n"
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip() + "\n"
