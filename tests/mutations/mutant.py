"""What a mutant is: a small wrong change to the sources, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """One replacement.

    Attributes:
        file: path from the root of the repository.
        old: text that stands there exactly once.
        new: what it becomes.
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """One wrong change.

    Attributes:
        name: unique, for people.
        edits: made together.
        tests: node ids from the root of the repository, without parameters; **each** must fail.
        kernels: stems of the C sources that the tests call; ``("*",)`` for all of them, nothing for none.
        isa: instruction set to compile for; empty for the best of this machine.
        quick: among those that run on every change.
    """

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    kernels: tuple[str, ...] = ()
    isa: str = ""
    quick: bool = False
