"""The generated blocks of README.md: ``python tests/docs/blocks.py`` writes them, a test compares them.

A block stands between ``<!-- NAME -->`` and the next ``<!-- end -->``. ``help`` and ``exit-codes`` come from
the program itself; ``demo-transcript`` is what ``repro-audit demo`` printed (``--demo`` runs it again);
``numbers`` is what ``repro-audit bench -o docs/bench/NAME.json`` wrote.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from repro_audit.bench.report import duration
from repro_audit.bench.rows import OURS

README = Path(__file__).resolve().parents[2] / "README.md"
MEASURED = README.parent / "docs" / "bench"
_BLOCK = "<!-- {name} -->\n{body}<!-- end -->"


def blocks() -> dict[str, str]:
    """Name -> body of every block that needs no run."""
    found = {"exit-codes": exit_codes(), "help": help_text()}
    files = sorted(MEASURED.glob("*.json"))
    if files:
        found["numbers"] = "\n".join(numbers(json.loads(path.read_text(encoding="utf-8"))) for path in files)
    return found


def numbers(document: dict[str, Any]) -> str:
    """One benchmark as Markdown: where it ran, and a line per case."""
    facts = document["environment"]
    names = ("gpu.driver", "gpu.cuda", "package.torch", "package.triton", "package.transformers", "threads")
    versions = [f"{name.rpartition('.')[2]} {facts[name]}" for name in names if name in facts]
    machine = facts.get("gpu.name", facts["cpu.model"])
    lines = [
        f"{machine} ({', '.join(versions)}), {document['date']}, `repro-audit bench`, model "
        f"`{document['settings']['model'].removeprefix('shape:')}`:",
        "",
        "| what | repro-audit | of its bound | time of others / ours |",
        "|---|---|---|---|",
    ]
    cases: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in document["rows"]:
        cases.setdefault((row["area"], row["case"]), []).append(row)
    for (area, case), rows in cases.items():
        ours = next((row for row in rows if row["stack"] == OURS), None)
        if ours is None or ours["seconds"] is None:
            continue
        others = [f"{row['stack']} {row['ratio']:.2f}" for row in rows if row["ratio"] is not None]
        bound = f"{100 * ours['fraction']:.0f} % {ours['bound']}" if ours["fraction"] is not None else ""
        lines.append(f"| {area}: {case} | {duration(ours['seconds'])} | {bound} | {', '.join(others)} |")
    peaks = [
        f"{row['stack']} {row['peakBytes'] / 2**30:.1f} GiB"
        for row in document["rows"]
        if row["area"] == "decode" and row["peakBytes"]
    ]
    if peaks:
        lines += ["", f"Most memory in use while decoding: {', '.join(peaks)}."]
    return "\n".join(lines) + "\n"


def exit_codes() -> str:
    """The exit-code table as Markdown."""
    from repro_audit.verify.explain import EXIT_CODES

    rows = "".join(f"| {code} | {verdict} | {meaning} |\n" for code, verdict, meaning in EXIT_CODES)
    return f"| exit | verdict | meaning |\n|---|---|---|\n{rows}"


def help_text() -> str:
    """``repro-audit --help`` at 80 columns, as a console block."""
    from repro_audit.cli.main import run_and_exit

    out = io.StringIO()
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        with contextlib.redirect_stdout(out):
            run_and_exit(["--help"])
    finally:
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns
    return f"```console\n$ repro-audit --help\n{out.getvalue().rstrip()}\n```\n"


def demo_transcript() -> str:
    """What the demo prints on this machine, as a console block."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "repro_audit.cli.main", "demo"],
            cwd=folder,
            env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    return "```console\n$ repro-audit demo\n" + "\n".join(lines).rstrip() + "\n```\n"


def read(text: str, name: str) -> str | None:
    """The body of a block, or None if the text has no such block."""
    found = re.search(_BLOCK.format(name=re.escape(name), body="(.*?)"), text, re.DOTALL)
    return found.group(1) if found else None


def replace(text: str, name: str, body: str) -> str:
    """The text with the body of a block replaced."""
    pattern = re.compile(_BLOCK.format(name=re.escape(name), body=".*?"), re.DOTALL)
    return pattern.sub(lambda _: _BLOCK.format(name=name, body=body), text, count=1)


def main() -> None:
    """Write the blocks into README.md."""
    text = README.read_text(encoding="utf-8")
    found = blocks()
    if "--demo" in sys.argv:
        found["demo-transcript"] = demo_transcript()
    for name, body in found.items():
        text = replace(text, name, body)
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
