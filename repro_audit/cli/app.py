"""What every command shares: common flags, configuration, one-sentence errors, exit codes.

A command is a plain function that takes :class:`Common` first and returns a
:class:`~repro_audit.verdict.Result` (rendered, and its verdict becomes the exit code) or None (it printed its
own data; exit 0).
"""

from __future__ import annotations

import errno
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from repro_kernels.errors import KernelError

from repro_audit.cli.config import env_name, load_config, unknown_environment
from repro_audit.cli.output import COLORS, FORMATS, TOGGLES, Outputs, choice, parse_reports
from repro_audit.errors import InconclusiveError, ReproAuditError
from repro_audit.verdict import Finding, Result, Verdict

if TYPE_CHECKING:
    from rich.console import Console

    from repro_audit.progress import Observer

app = typer.Typer(
    name="repro-audit",
    help="Did this model, on this input, really compute this?  Record, sign and re-run a model bit for bit.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: command -> option name without dashes -> parameter name: what -c and REPRO_AUDIT_* may set.
SETTINGS: dict[str, dict[str, str]] = {}

_LESS_MEMORY = "use a smaller --batch-size, --prefill-chunk or a machine with more memory"
_BISECT = {0: 0, Verdict.DIVERGED.exit_code: 1, Verdict.INTERRUPTED.exit_code: 130}


def option(*names: str, help: str, **more: Any) -> Any:
    """A typer option that can also be set by its REPRO_AUDIT_* variable and in the file of ``-c``."""
    long = next(name for name in names if name.startswith("--")).split("/")[0]
    return typer.Option(*names, help=help, envvar=env_name(long), show_envvar=False, **more)


def flag_only(*names: str, help: str, **more: Any) -> Any:
    """A typer option that works on the command line alone."""
    return typer.Option(*names, help=help, **more)


@dataclass(frozen=True)
class Common:
    """The common flags as given.

    Attributes:
        command: name of the command.
        outputs: where results go.
        quiet: no talk but errors.
        verbose: notes, and tracebacks on errors.
        progress: ``auto``, ``on`` or ``off``.
        exit_codes: ``verdict`` or ``bisect``.
        dry_run: say what would be done and do none of it.
    """

    command: str
    outputs: Outputs = field(default_factory=Outputs)
    quiet: bool = False
    verbose: bool = False
    progress: str = "auto"
    exit_codes: str = "verdict"
    dry_run: bool = False
    EXIT_CODES: ClassVar[tuple[str, ...]] = ("verdict", "bisect")

    def console(self) -> Console:
        """A console for talk."""
        from repro_audit.cli.output import stderr_console

        return stderr_console(self.outputs.color)

    @contextmanager
    def observer(self) -> Iterator[Observer]:
        """A progress observer for the duration of a block."""
        from repro_audit.progress import observing

        console = self.console()
        bars = self.progress == "on" or (self.progress == "auto" and console.is_terminal and not self.quiet)
        with observing(console, bars=bars, notes=not self.quiet) as observer:
            yield observer

    def say(self, text: str) -> None:
        """A line of talk on stderr."""
        if not self.quiet:
            self.console().print(text, markup=False, soft_wrap=True)

    def exit_code(self, verdict: Verdict) -> int:
        """The process exit code for a verdict, mapped for ``git bisect`` where asked."""
        code = verdict.exit_code
        return _BISECT.get(code, 125) if self.exit_codes == "bisect" else code


def _config_callback(context: typer.Context, value: str | None) -> str | None:
    if value is not None:
        context.default_map = load_config(Path(value), str(context.info_name), SETTINGS)
    return value


def _config_option() -> Any:
    help = "Settings: flag > REPRO_AUDIT_* > this file."
    return flag_only("--config", "-c", metavar="FILE", is_eager=True, callback=_config_callback, help=help)


def _common_parameters(*, dry_run: bool) -> list[inspect.Parameter]:
    """The parameters that the decorator appends to every command."""

    def parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    formats = "|".join(FORMATS)
    found = [
        parameter("format_", Annotated[str, option("--format", "-f", help=f"{formats}.")], "table"),
        parameter(
            "report", Annotated[list[str], option("--report", metavar="FMT=PATH", help="One more.")], []
        ),
        parameter(
            "force",
            Annotated[bool, flag_only("--force", "--overwrite", help="Replace existing files.")],
            False,
        ),
        parameter("config", Annotated[str | None, _config_option()], None),
        parameter(
            "exit_codes", Annotated[str, option("--exit-codes", help="verdict|bisect (0/1/125).")], "verdict"
        ),
        parameter("progress", Annotated[str, option("--progress", help="auto|on|off.")], "auto"),
        parameter("color", Annotated[str, option("--color", help="auto|always|never.")], "auto"),
        parameter("quiet", Annotated[bool, option("--quiet", "-q", help="Errors only.")], False),
        parameter("verbose", Annotated[bool, option("--verbose", "-v", help="Tracebacks on errors.")], False),
    ]
    if dry_run:
        found.append(
            parameter(
                "dry_run",
                Annotated[bool, flag_only("--dry-run", "-n", help="Check everything cheap, then stop.")],
                False,
            )
        )
    return found


def command(
    name: str, *, dry_run: bool = False, output: bool = True
) -> Callable[[Callable[..., Result | None]], Callable[..., Result | None]]:
    """Register a function as a command with the common flags.

    Args:
        name: what the user types.
        dry_run: the command has ``-n/--dry-run``.
        output: ``-o/--output`` means the file of the rendered result (``run`` gives it another meaning).
    """

    def decorate(function: Callable[..., Result | None]) -> Callable[..., Result | None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        extra = _common_parameters(dry_run=dry_run)
        if output:
            annotation = Annotated[
                str | None,
                option("--output", "-o", metavar="PATH", help="Write the result here, not to stdout."),
            ]
            extra.insert(
                1,
                inspect.Parameter(
                    "output", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
                ),
            )

        def wrapper(**values: Any) -> None:
            given = {parameter.name: values.pop(parameter.name, None) for parameter in extra}
            raise typer.Exit(_run(name, function, given, values))

        wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + extra
        )
        SETTINGS[name] = _settable([*own, *extra])
        summary = (inspect.getdoc(function) or "").split("\n\n", 1)[0]
        app.command(name, help=summary, short_help=summary.rstrip("."))(wrapper)
        return function

    return decorate


def _settable(parameters: list[inspect.Parameter]) -> dict[str, str]:
    """Option name without dashes -> parameter name, for options with an environment variable."""
    found = {}
    for parameter in parameters:
        for info in getattr(parameter.annotation, "__metadata__", ()):
            variable = getattr(info, "envvar", None)
            if isinstance(variable, str):
                found[variable.removeprefix(env_name("")).lower().replace("_", "-")] = parameter.name
    return found


def _run(
    name: str, function: Callable[..., Result | None], given: dict[str, Any], values: dict[str, Any]
) -> int:
    """Run a command; every expected failure becomes one sentence on stderr and its exit code."""
    common = Common(name, verbose=bool(given["verbose"]))
    try:
        common = _resolve(name, given)
        for variable in unknown_environment(SETTINGS):
            common.say(f"note: {variable} is not a setting and is ignored")
        common.outputs.check()
        try:
            result = _called(function, common, values)
        except ReproAuditError as error:
            _emit_refusal(common, error)
            raise
        if result is None:
            return 0
        common.outputs.emit(result)
        return common.exit_code(result.verdict)
    except ReproAuditError as error:
        if common.verbose:
            _traceback(error)
        complain(str(error))
        return common.exit_code(error.verdict)
    except KeyboardInterrupt:
        complain("interrupted; nothing was left half-written")
        return Verdict.INTERRUPTED.exit_code
    except BrokenPipeError:
        # Whoever read stdout has gone: not worth a sentence.
        abandon_stdout()
        return Verdict.USAGE.exit_code
    except OSError as error:
        if common.verbose:
            _traceback(error)
        complain(os_sentence(error))
        return common.exit_code(Verdict.USAGE)


def _called(function: Callable[..., Result | None], common: Common, values: dict[str, Any]) -> Result | None:
    """What the command returns; what kernels and memory refuse is a refusal like any other."""
    try:
        return function(common, **values)
    except KernelError as error:
        hint = "run repro-audit doctor for what this machine can do"
        raise InconclusiveError(str(error), hint=hint) from error
    except MemoryError as error:
        raise InconclusiveError("out of memory", hint=_LESS_MEMORY) from error
    except (RuntimeError, ImportError) as error:
        if _interrupted(error):
            raise KeyboardInterrupt from error
        # torch has no class of its own for this on the CPU.
        if "can't allocate memory" not in str(error):
            raise
        raise InconclusiveError("out of memory", hint=_LESS_MEMORY) from error


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: Python 3.11 wraps what __set_name__ raises, as while importing."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def abandon_stdout() -> None:
    """Let what was not written go nowhere, so that the flush at exit does not complain once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _emit_refusal(common: Common, error: ReproAuditError) -> None:
    """A refusal as a result, where a machine or a file asked for one; usage errors go to stderr alone."""
    if not common.outputs.wants_data or error.verdict in (Verdict.USAGE, Verdict.CRASH):
        return
    from repro_audit.verify.check import error_code

    finding = Finding(
        error_code(error), error.message, "trust" if error.verdict is Verdict.UNTRUSTED else "note"
    )
    common.outputs.emit(
        Result(common.command, error.verdict, error.message, (finding,), next_command=error.hint)
    )


def _resolve(name: str, given: dict[str, Any]) -> Common:
    path = given.get("output")
    return Common(
        command=name,
        outputs=Outputs(
            format=choice("format", given["format_"], FORMATS),
            path=Path(path) if path else None,
            reports=parse_reports(given["report"]),
            color=choice("color", given["color"], COLORS),
            force=bool(given["force"]),
        ),
        quiet=bool(given["quiet"]),
        verbose=bool(given["verbose"]),
        progress=choice("progress", given["progress"], TOGGLES),
        exit_codes=choice("exit codes", given["exit_codes"], Common.EXIT_CODES),
        dry_run=bool(given.get("dry_run")),
    )


def os_sentence(error: OSError) -> str:
    """What the operating system refused, as one sentence."""
    where = f" at {error.filename}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full{where}; free some space and run again (nothing was left half-written)"
    return f"{error.strerror or error}{where}; name a path that can be read and written"


def _traceback(error: BaseException) -> None:
    import traceback

    traceback.print_exception(error, file=sys.stderr)


def complain(sentence: str) -> None:
    """The one sentence on stderr."""
    # Names from files may hold what a terminal would obey.
    plain = "".join(c if c.isprintable() else " " for c in sentence)
    sys.stderr.write(f"repro-audit: {' '.join(plain.split())}\n")
