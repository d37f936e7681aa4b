"""Errors of the kernels: one sentence each, which a caller may show to a person as it stands."""

from __future__ import annotations


class KernelError(Exception):
    """Base of every error that the kernels raise on purpose."""


class BuildMismatchError(KernelError):
    """The compiled kernels are missing, stale, unfit for this machine, or give wrong bits."""


class UnsupportedError(KernelError):
    """The profile does not specify this operation, or not with these arguments.

    Args:
        what: the operation and the argument that is not specified, e.g. ``"conv over 4 axes"``.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not specified by the profile")
        self.what = what


class NonFiniteError(KernelError):
    """An infinity or NaN stands where the profile requires finite values.

    Args:
        what: the tensor, e.g. ``"key"``, with the row where known.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"non-finite value in {what}")
        self.what = what
