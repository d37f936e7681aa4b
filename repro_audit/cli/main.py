"""The entry point: assembles the commands; heavy imports happen inside them, so help is instant."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Annotated, Any

import typer

from repro_audit import __version__
from repro_audit.cli import (  # noqa: F401  (importing a command registers it)
    bench,
    check,
    demo,
    diff,
    doctor,
    env,
    explain,
    kernels,
    keygen,
    run,
    schema,
    show,
    sign,
    verify,
)
from repro_audit.cli.app import abandon_stdout, app, complain, flag_only, os_sentence
from repro_audit.errors import ReproAuditError

__all__ = ["app", "main", "run_and_exit"]

# What typer raises on bad arguments: public since 0.28, before that the base of its public BadParameter.
_BAD_USAGE: type[Any] = getattr(typer, "TyperException", typer.BadParameter.__mro__[2])


def _patient_threads() -> None:
    """Let OpenMP threads that wait give up their core soon, before torch loads the runtime.

    By default they spin for milliseconds; beside any other busy process that makes decoding ten times slower.
    No bit depends on it, and a variable that the user set wins.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"repro-audit {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        flag_only("--version", "-V", is_eager=True, callback=_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Did this model, on this input, really compute this?  Record, sign and re-run a model bit for bit."""


def _crash_hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if "-v" in sys.argv or "--verbose" in sys.argv:
        sys.__excepthook__(kind, error, trace)
    complain(
        f"crashed: {kind.__name__}: {error}; this is a bug in repro-audit, "
        "please report it with the output of the same command with -v"
    )


def run_and_exit(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: without the program's name; None for ``sys.argv``.
    """
    _patient_threads()
    try:
        code = app(
            args=None if arguments is None else list(arguments),
            prog_name="repro-audit",
            standalone_mode=False,
        )
    except _BAD_USAGE as error:
        complain(f"{error.format_message().rstrip('.')}; see repro-audit --help")
        return 2
    except ReproAuditError as error:
        # From a callback, before any command began: the file of -c.
        complain(str(error))
        return error.exit_code
    except typer.Abort:
        return 130
    except BrokenPipeError:
        # While help was printed, which is no command's.
        abandon_stdout()
        return 2
    except OSError as error:
        complain(os_sentence(error))
        abandon_stdout()
        return 2
    return int(code or 0)


def _open_streams() -> None:
    """Python has no stream where the caller closed the descriptor; what is written there goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (as long as we run)


def main() -> None:
    """Console script: exit with the verdict's code; an unexpected exception is one sentence, exit 1."""
    _open_streams()
    try:
        code = run_and_exit()
    finally:
        # typer installs a hook of its own when it is called; what escapes it is a crash.
        sys.excepthook = _crash_hook
    sys.exit(code)


if __name__ == "__main__":
    main()
