"""Where results go: stdout is data, stderr is talk, files appear whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repro_audit.errors import UsageError
from repro_audit.manifest.files import require_writable, write_file
from repro_audit.verdict import Result

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = ("table", "json")
COLORS = ("auto", "always", "never")
TOGGLES = ("auto", "on", "off")


def choice(name: str, value: str, known: Sequence[str]) -> str:
    """``value``, refused by name unless it is one of ``known``."""
    if value not in known:
        raise UsageError(f"{name} {value!r} does not exist", hint=f"choose one of {', '.join(known)}")
    return value


@dataclass(frozen=True)
class Outputs:
    """What to render: the main format to stdout or a file, and any number of further reports.

    Attributes:
        format: one of :data:`FORMATS`.
        path: file for the main format instead of stdout.
        reports: (format, file) of ``--report FMT=PATH``.
        color: one of :data:`COLORS`.
        force: replace what exists.
    """

    format: str = "table"
    path: Path | None = None
    reports: tuple[tuple[str, Path], ...] = ()
    color: str = "auto"
    force: bool = False

    def check(self) -> None:
        """Refuse, before any work is done, report paths that cannot be written or would replace something."""
        paths = [*([self.path] if self.path else []), *(path for _, path in self.reports)]
        if len({path.absolute() for path in paths}) < len(paths):
            raise UsageError("two reports have the same path", hint="give each its own")
        for path in paths:
            require_writable(path, overwrite=self.force)

    @property
    def wants_data(self) -> bool:
        """True where a refusal should also be rendered as a result: a machine or a file asked for one."""
        return self.format != "table" or self.path is not None or bool(self.reports)

    def emit(self, result: Result) -> None:
        """Render the result everywhere it was asked for."""
        if self.path is None:
            if self.format == "table":
                from repro_audit.report import console

                console.write(result, stdout_console(self.color))
            else:
                sys.stdout.write(render(self.format)(result))
                sys.stdout.flush()
        for form, path in [*([(self.format, self.path)] if self.path else []), *self.reports]:
            write_text(path, render(form)(result), force=self.force)


def render(form: str) -> Callable[[Result], str]:
    """The pure function that renders a result in a format."""
    if form == "json":
        from repro_audit.report import json as report_json

        return report_json.render
    from repro_audit.report import console

    return console.render


def parse_reports(values: Sequence[str]) -> tuple[tuple[str, Path], ...]:
    """``FMT=PATH`` pairs.

    Raises:
        UsageError: a value without ``=`` or with a format that does not exist.
    """
    pairs = []
    for value in values:
        form, separator, path = value.partition("=")
        if not separator or not path:
            raise UsageError(f"--report {value!r} is not FMT=PATH", hint="write for example json=result.json")
        pairs.append((choice("report format", form, FORMATS), Path(path)))
    return tuple(pairs)


def write_text(path: Path, text: str, *, force: bool) -> None:
    """Write a whole file: a temporary name beside it, then a rename."""
    write_file(path, text.encode("utf-8"), overwrite=force)


def stderr_console(color: str) -> Console:
    """A rich console for talk."""
    return _console(color, stderr=True)


def stdout_console(color: str) -> Console:
    """A rich console for data that a person reads."""
    return _console(color, stderr=False)


def _console(color: str, *, stderr: bool) -> Console:
    from rich.console import Console

    if color == "never":
        return Console(stderr=stderr, no_color=True, highlight=False)
    force = True if color == "always" else None
    return Console(stderr=stderr, force_terminal=force, highlight=False)
