"""transformers without its bars and load reports on stderr: what matters we check and say ourselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bars and everything below an error, and undo that afterwards."""
    from transformers.utils import logging as typed

    logging: Any = typed
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
