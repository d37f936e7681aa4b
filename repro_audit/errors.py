"""The one error tree: the class carries the exit code, the message says what, where and what to do next.

Exit codes are those of the verdict table in :mod:`repro_audit.verdict`.
"""

from __future__ import annotations

from typing import ClassVar

from repro_audit.verdict import Verdict


class ReproAuditError(Exception):
    """An expected failure with one sentence for a person.

    Args:
        message: what is wrong, and where.
        hint: what to do next; shown after the message.
    """

    verdict: ClassVar[Verdict] = Verdict.CRASH

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def exit_code(self) -> int:
        """The process exit code that this error asks for."""
        return self.verdict.exit_code

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(ReproAuditError):
    """Bad arguments or configuration; a missing, unreadable or unwritable path; disk full (exit 2)."""

    verdict = Verdict.USAGE


class UntrustedError(ReproAuditError):
    """A signature is missing, invalid or by no trusted key, or a manifest or trace is malformed (exit 4)."""

    verdict = Verdict.UNTRUSTED


class InconclusiveError(ReproAuditError):
    """Cannot be decided: something lies outside the contract (exit 5)."""

    verdict = Verdict.INCONCLUSIVE
