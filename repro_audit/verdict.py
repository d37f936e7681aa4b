"""Verdicts, findings and the one Result that every report renders. Frozen dataclasses, no IO, no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum


class Verdict(Enum):
    """What a command concluded; the value is the word people read."""

    RECORDED = "RECORDED"
    VALID = "VALID"
    IDENTICAL = "IDENTICAL"
    REPRODUCED = "REPRODUCED"
    CRASH = "CRASH"
    USAGE = "USAGE"
    DIVERGED = "DIVERGED"
    UNTRUSTED = "UNTRUSTED"
    INCONCLUSIVE = "INCONCLUSIVE"
    POLICY = "POLICY"
    INTERRUPTED = "INTERRUPTED"

    @property
    def exit_code(self) -> int:
        """Process exit code of this verdict."""
        return _EXIT_CODES[self]


_EXIT_CODES = {
    Verdict.RECORDED: 0,
    Verdict.VALID: 0,
    Verdict.IDENTICAL: 0,
    Verdict.REPRODUCED: 0,
    Verdict.CRASH: 1,
    Verdict.USAGE: 2,
    Verdict.DIVERGED: 3,
    Verdict.UNTRUSTED: 4,
    Verdict.INCONCLUSIVE: 5,
    Verdict.POLICY: 6,
    Verdict.INTERRUPTED: 130,
}

#: Worst first: the verdict of many is the first of these that any of them reached.
_PRECEDENCE = (Verdict.UNTRUSTED, Verdict.DIVERGED, Verdict.INCONCLUSIVE, Verdict.POLICY)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that stands for all of them: 4 > 3 > 5 > 6 > 0.

    Raises:
        ValueError: if there is no verdict to stand for.
    """
    seen = list(verdicts)
    for verdict in _PRECEDENCE:
        if verdict in seen:
            return verdict
    if not seen:
        raise ValueError("no verdict among none")
    return seen[0]


@dataclass(frozen=True)
class Finding:
    """One thing a person should know: an origin, a weight that differs, a missing point, a warning.

    Attributes:
        code: rule code, ``RA001`` and so on; ``repro-audit explain CODE`` documents each.
        message: one sentence.
        kind: ``origin``, ``inherited``, ``weights``, ``inputs``, ``tokens``, ``cache``, ``scalar``,
            ``trust``, ``structure``, ``environment`` or ``note``.
        point: point name, where one is meant.
        sequence: index of the sequence in request order.
        position: 0-based token position from the sequence's first real token.
        details: further facts, name to text.
    """

    code: str
    message: str
    kind: str = "note"
    point: str | None = None
    sequence: int | None = None
    position: int | None = None
    details: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Result:
    """What a command found, ready to render in any format.

    Attributes:
        command: ``verify``, ``check``, ``diff``, ``run`` ...
        verdict: the conclusion.
        summary: one sentence.
        findings: worst first.
        facts: name to text, in the order a person should read them.
        matrix: per sequence, layers x positions of ``.`` (identical), ``O`` (origin), ``x`` (inherited).
        next_command: what to type next.
    """

    command: str
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    matrix: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())
    next_command: str = ""
