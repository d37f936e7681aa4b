"""``repro-audit explain``: what a finding code or an exit code means."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Annotated

import typer

from repro_audit.cli.app import Common, command
from repro_audit.cli.output import write_text
from repro_audit.errors import UsageError
from repro_audit.verdict import Result
from repro_audit.verify.explain import CODES, EXIT_CODES


@command("explain")
def explain(
    common: Common,
    code: Annotated[
        str | None, typer.Argument(help="RA401, or an exit code; without it, the list.", show_default=False)
    ] = None,
) -> Result | None:
    """What a finding code or an exit code means and what to do about it."""
    entries = _entries()
    if code is not None:
        if code.upper() not in entries:
            raise UsageError(f"{code} is no finding or exit code", hint="repro-audit explain lists them")
        entries = {code.upper(): entries[code.upper()]}
    if common.outputs.format == "json":
        text = json.dumps(entries, indent=2) + "\n"
    elif code is None:
        text = "".join(f"{name:>5}  {entry['title']}\n" for name, entry in entries.items())
    else:
        text = "".join(map(_paragraphs, entries.items()))
    if common.outputs.path is not None:
        write_text(common.outputs.path, text, force=common.outputs.force)
    else:
        sys.stdout.write(text)
    return None


def _entries() -> dict[str, dict[str, str]]:
    """Code -> title, meaning and the rest, as text; exit codes first."""
    found = {str(code): {"title": title, "meaning": meaning} for code, title, meaning in EXIT_CODES}
    for entry in CODES.values():
        leads = entry.verdict.value if entry.verdict is not None else "nothing by itself"
        found[entry.code] = {
            "title": entry.title,
            "meaning": entry.meaning,
            "remedy": entry.remedy,
            "decides": leads,
        }
    return found


def _paragraphs(item: tuple[str, dict[str, str]]) -> str:
    code, entry = item
    lines = [f"{code}: {entry['title']}\n"]
    for name, value in entry.items():
        if name != "title":
            lines.append(textwrap.fill(f"{name}: {value}", 80, initial_indent="  ", subsequent_indent="    "))
    return "\n".join(lines) + "\n"
