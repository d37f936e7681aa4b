"""Progress as an injected observer: the library reports stages and steps and never knows who draws them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console


class Observer(Protocol):
    """What the library tells whoever waits for it."""

    def stage(self, name: str, total: int | None = None) -> None:
        """A new stage begins; ``total`` is its number of steps, where that is known."""

    def advance(self, n: int = 1) -> None:
        """``n`` steps of the current stage are done."""

    def note(self, text: str) -> None:
        """Something worth a line: a fallback, an ignored key."""


class NullObserver:
    """Tells nobody."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Ignore the stage."""

    def advance(self, n: int = 1) -> None:
        """Ignore the steps."""

    def note(self, text: str) -> None:
        """Ignore the note."""


class NoteObserver(NullObserver):
    """Prints notes to a console and draws no bars."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def note(self, text: str) -> None:
        """Print the note."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class RichObserver:
    """Bars with rate and remaining time; a stage shorter than ``delay`` seconds draws nothing.

    Args:
        console: a rich console on stderr.
        delay: seconds that a stage may take before its bar appears.
    """

    def __init__(self, console: Console, *, delay: float = 0.5) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TaskID,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._console = console
        self._delay = delay
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._started = 0.0
        self._done = 0

    def start(self) -> None:
        """Take the terminal."""
        self._progress.start()

    def stop(self) -> None:
        """Give the terminal back, whatever happened."""
        self._progress.stop()

    def stage(self, name: str, total: int | None = None) -> None:
        """Replace the bar by that of a new stage."""
        from time import monotonic

        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=total, rate="", visible=self._delay <= 0)
        self._started = monotonic()
        self._done = 0

    def advance(self, n: int = 1) -> None:
        """Move the bar and refresh its rate."""
        from time import monotonic

        if self._task is None:
            return
        self._done += n
        elapsed = monotonic() - self._started
        rate = f"{self._done / elapsed:.1f}/s" if elapsed > 0 else ""
        self._progress.update(self._task, advance=n, rate=rate, visible=elapsed >= self._delay)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def observing(console: Console, *, bars: bool, notes: bool) -> Iterator[Observer]:
    """An observer for the duration of a block; the terminal is given back on every way out.

    Args:
        console: a rich console on stderr.
        bars: draw progress bars.
        notes: print notes, when no bars are drawn.
    """
    if not bars:
        yield NoteObserver(console) if notes else NullObserver()
        return
    observer = RichObserver(console)
    observer.start()
    try:
        yield observer
    finally:
        observer.stop()
