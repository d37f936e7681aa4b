"""How long a benchmark may take: what would begin later is left out, by name."""

from __future__ import annotations

import time
from collections.abc import Callable


class Budget:
    """Seconds from now on; None never ends.

    Attributes:
        said: the note of what is left out.
    """

    said = "skipped: the --budget is spent"

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds

    def spent(self) -> bool:
        """Whether nothing more may begin."""
        return self._end is not None and self._clock() >= self._end
