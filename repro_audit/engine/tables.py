"""The type of a row of the operator table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """How one operator runs.

    Attributes:
        classed: ``exact`` (PyTorch's own kernel gives the specified bits), ``specified`` (a kernel of the
        profile),
            ``structural`` (moves, compares or counts, no arithmetic on floats), ``refused`` or
            ``decomposed``.
        kernel: what computes it, for the coverage record: ``torch`` or the name in ``repro_kernels``.
        run: ``run(mode, func, args, kwargs)``, called with the mode off.
        params: what the row does with a stored parameter: ``value`` reads it as the activation type,
        ``stored`` hands
            the file's tensor to the kernel, ``view`` stays lazy, ``through`` passes it on,
            ``written`` refuses it as the target.
        scalars: whether float scalars among the arguments are recorded.
        tags: how mask tags travel (:data:`repro_audit.engine.masks.RULES`), or ``""``: they end here.
    """

    classed: str
    kernel: str
    run: Callable[..., Any]
    params: str = "value"
    scalars: bool = True
    tags: str = ""
