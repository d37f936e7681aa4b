"""A result at a terminal: worst first, next command last, readable without colour at 80 columns."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from rich.console import Console
from rich.text import Text

from repro_audit.verdict import Finding, Result, Verdict

WIDTH = 80
_MAX_FINDINGS = 8
_GOOD = {Verdict.RECORDED, Verdict.VALID, Verdict.IDENTICAL, Verdict.REPRODUCED}
_BAD = {Verdict.DIVERGED, Verdict.UNTRUSTED, Verdict.CRASH}
_CELL_STYLES = {"O": "bold red", "x": "yellow", ".": "dim"}
_HEADINGS = {
    "trust": "Trust",
    "weights": "Weights that differ",
    "origin": "Where it began",
    "inputs": "Inputs",
    "tokens": "Tokens",
    "cache": "Cache",
    "scalar": "Constants",
    "structure": "Structure",
    "inherited": "Inherited",
    "environment": "This machine",
    "note": "Notes",
}


def render(result: Result) -> str:
    """The result as plain text, :data:`WIDTH` columns, no colour."""
    buffer = io.StringIO()
    write(result, Console(file=buffer, width=WIDTH, no_color=True, highlight=False, force_terminal=False))
    return buffer.getvalue()


def write(result: Result, console: Console) -> None:
    """Print the result to a rich console; what a terminal would obey is written out, not obeyed."""
    result = _printable(result)
    style = (
        "bold green" if result.verdict in _GOOD else "bold red" if result.verdict in _BAD else "bold yellow"
    )
    _line(console, Text.assemble((result.verdict.value, style), "  ", result.summary))
    if result.facts:
        console.print()
        width = min(22, max(len(name) for name, _ in result.facts))
        for name, value in result.facts:
            _hanging(console, Text(f"  {name:<{width}}  ", style="dim"), value)
    for kind, findings in groupby(result.findings, key=lambda finding: finding.kind):
        _findings(console, kind, list(findings))
    if result.counts:
        console.print()
        _hanging(
            console, Text("  counts  ", style="dim"), ", ".join(f"{name} {n:,}" for name, n in result.counts)
        )
    for name, rows in result.matrix:
        _heat_map(console, name, rows)
    if result.next_command:
        console.print()
        console.print(Text.assemble(("Next: ", "bold"), result.next_command), soft_wrap=True)


def _printable(result: Result) -> Result:
    """The result with every unprintable character as its escape: names and texts may be hostile."""
    return replace(
        result,
        command=_plain(result.command),
        summary=_plain(result.summary),
        findings=tuple(
            replace(
                finding,
                message=_plain(finding.message),
                details=tuple((_plain(name), _plain(value)) for name, value in finding.details),
            )
            for finding in result.findings
        ),
        facts=tuple((_plain(name), _plain(value)) for name, value in result.facts),
        counts=tuple((_plain(name), count) for name, count in result.counts),
        matrix=tuple((_plain(name), tuple(map(_plain, rows))) for name, rows in result.matrix),
        next_command=_plain(result.next_command),
    )


def _plain(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _line(console: Console, text: Text) -> None:
    console.print(text, width=min(console.width, 100))


def _hanging(console: Console, label: Text, value: str) -> None:
    """A label and a value whose further lines stand under its first."""
    room = max(20, min(console.width, 100) - label.cell_len)
    lines = Text(value).wrap(console, room)
    for index, line in enumerate(lines):
        prefix = label if index == 0 else Text(" " * label.cell_len)
        console.print(Text.assemble(prefix, line), soft_wrap=True)


def _findings(console: Console, kind: str, findings: list[Finding]) -> None:
    console.print()
    console.print(Text(_HEADINGS.get(kind, kind.capitalize()), style="bold"))
    for finding in findings[:_MAX_FINDINGS]:
        _hanging(console, Text(f"  {finding.code}  "), finding.message)
        for name, value in finding.details:
            _hanging(console, Text(f"         {name}: ", style="dim"), value)
    if len(findings) > _MAX_FINDINGS:
        console.print(Text(f"  and {len(findings) - _MAX_FINDINGS:,} more; -f json lists all", style="dim"))


def _heat_map(console: Console, name: str, rows: tuple[str, ...]) -> None:
    """Layers down, tokens across; tokens share a cell where the line is too short, the worst one showing."""
    split = [row.rpartition(" ")[::2] for row in rows]
    if not split:
        return
    labels = max(len(label) for label, _ in _ranges(split)) + 2
    room = max(10, min(console.width, 100) - labels - 3)
    tokens = max(len(cells) for _, cells in split)
    per_cell = max(1, -(-tokens // room))
    scale = f", {per_cell} tokens a cell" if per_cell > 1 else ""
    console.print()
    console.print(Text(f"{name}: layers down, tokens 0-{tokens - 1} across{scale}", style="bold"))
    for label, cells in _ranges([(label, _squeeze(cells, per_cell)) for label, cells in split]):
        line = Text(f"  {label:<{labels}}")
        for cell in cells:
            line.append(cell, style=_CELL_STYLES.get(cell, ""))
        console.print(line, soft_wrap=True)
    legend = Text("  . identical   O origin   x inherited   (blank) not recorded", style="dim")
    console.print(legend, soft_wrap=True)


def _squeeze(cells: str, per_cell: int) -> str:
    """Each run of ``per_cell`` cells becomes its worst one."""
    chunks = (cells[start : start + per_cell] for start in range(0, len(cells), per_cell))
    return "".join(next((worst for worst in "Ox." if worst in chunk), " ") for chunk in chunks)


def _ranges(rows: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Neighbouring rows with equal cells as one row, its label naming the first and the last."""
    for cells, group in groupby(rows, key=lambda row: row[1]):
        names = [label for label, _ in group]
        yield (names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}", cells)
