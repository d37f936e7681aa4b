"""Coverage of the 110 operators that a kernel benchmark would draw from PyTorch's core ATen set.

The core ATen operators are those that PyTorch tags ``core``: what every other operator decomposes into. Of
the 164 in PyTorch 2.13, :data:`LEFT_OUT` names the groups that compute nothing a kernel benchmark would ask
for; 110 remain, from abs to where. Their class is read off the operator table, so no row can be silent.
``python -m repro_audit.engine.aten110`` writes docs/operators.md; tests/unit/engine/test_aten110.py holds
both to PyTorch and to what the engine does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from repro_audit.engine import exactops, optable

LEFT_OUT: dict[str, str] = {
    "private to PyTorch's own decompositions": "names that begin with an underscore",
    "backward passes": "names that end in _backward",
    "sizes of symbolic shapes": "names that begin with sym_",
    "random numbers": "native_dropout rand randn randperm",
    "views, copies and uninitialised memory": (
        "alias as_strided clone copy diagonal empty empty_strided expand permute resize_ select "
        "select_scatter slice slice_scatter split_with_sizes squeeze unsqueeze view"
    ),
    "constants": "fill full full_like scalar_tensor",
    "a result whose shape depends on values": "nonzero",
    "one-dimensional forms of two-dimensional pooling": "adaptive_avg_pool1d avg_pool1d",
}
"""Why an operator is not in the list -> which."""

_NAMES = (
    "abs acos acosh add addmm amax amin any arange argmax argmin asin asinh atan atan2 atanh avg_pool2d "
    "avg_pool3d bitwise_and bitwise_not bitwise_or bitwise_xor bmm cat ceil clamp col2im constant_pad_nd "
    "convolution cos cosh cumsum div elu embedding eq erf exp expm1 flip floor fmod gather ge gelu "
    "grid_sampler_2d gt hardtanh index index_put index_select isinf isnan le leaky_relu log log10 log1p "
    "log2 logical_and logical_not logical_or logical_xor lt masked_scatter max max_pool2d_with_indices "
    "max_pool3d_with_indices maximum mean min minimum mm mul native_group_norm native_layer_norm ne neg "
    "pow prod reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu remainder repeat "
    "replication_pad2d replication_pad3d round rsqrt scatter scatter_add scatter_reduce sigmoid sign sin "
    "sinh sort sqrt sub sum tan tanh topk trunc upsample_bilinear2d upsample_nearest2d var where"
)
OPERATORS: tuple[str, ...] = tuple(_NAMES.split())
"""The 110, in alphabetical order."""

_LIMITS = {
    "convolution": "transposed convolution is refused",
    "index_put": "accumulate=True on floats is refused: index_add has an order",
}
_COMPOSED = {"var.dim": "var.correction"}
"""Overloads that PyTorch itself turns into another of the table."""


class Covered(NamedTuple):
    """One operator of the list.

    Attributes:
        operator: its ATen name.
        classed: ``exact`` (PyTorch's kernel gives the specified bits, or moves, compares and counts alone),
            ``specified`` (a kernel of ``repro_kernels``) or ``refused`` (a run that meets it stops by name).
        kernel: what computes it, ``torch`` or the kernel's name; "" if refused.
        note: what is refused nevertheless, or why all is.
    """

    operator: str
    classed: str
    kernel: str
    note: str


class Summary(NamedTuple):
    """How many operators are exact, specified and refused, and the share that is not refused, in percent."""

    exact: int
    specified: int
    refused: int
    percent: float


def core_overloads(operator: str) -> list[str]:
    """The overloads of an operator that PyTorch tags ``core``, without those that write to ``out``."""
    packet = getattr(torch.ops.aten, operator)
    tagged = [name for name in packet.overloads() if torch.Tag.core in getattr(packet, name).tags]
    return sorted(name for name in tagged if name != "out")


def coverage() -> tuple[Covered, ...]:
    """The class of every operator of the list; one that is refused in any overload counts as refused."""
    return tuple(_covered(operator) for operator in OPERATORS)


def summary(rows: Iterable[Covered]) -> Summary:
    """Counts over some rows."""
    classes = [row.classed for row in rows]
    exact, specified, refused = (classes.count(name) for name in ("exact", "specified", "refused"))
    return Summary(exact, specified, refused, round(100 * (exact + specified) / len(classes), 1))


def _covered(operator: str) -> Covered:
    found = [_overload(operator, name) for name in core_overloads(operator)]
    refused = [row for row in found if row.classed == "refused"]
    best = refused or [row for row in found if row.classed == "specified"] or found
    return Covered(operator, best[0].classed, best[0].kernel, best[0].note or _LIMITS.get(operator, ""))


def _overload(operator: str, overload: str) -> Covered:
    name = _COMPOSED.get(f"{operator}.{overload}", f"{operator}.{overload}")
    packet, _, which = name.partition(".")
    row = optable.table().get(getattr(getattr(torch.ops.aten, packet), which))
    if row is None or row.classed == "refused":
        return Covered(operator, "refused", "", "not specified by profile fp32")
    if row.run is exactops.integer_only:
        if operator.startswith("bitwise_"):
            return Covered(operator, "exact", row.kernel, "integers and bools, as in PyTorch")
        return Covered(operator, "refused", "", "on floats; on integers it is exact")
    classed = "specified" if row.classed == "specified" else "exact"
    return Covered(operator, classed, row.kernel, "")


def document() -> str:
    """docs/operators.md."""
    rows = coverage()
    counts = summary(rows)
    covered = counts.exact + counts.specified
    share = (
        f"**{covered} of {len(rows)} ({counts.percent} %)** are covered: {counts.exact} exact, "
        f"{counts.specified} specified; {counts.refused} refused."
    )
    table = [f"| {r.operator} | {r.classed} | {_code(r.kernel)} | {r.note} |" for r in rows]
    groups = [f"- {reason}: {_names(which)}" for reason, which in LEFT_OUT.items()]
    header = ["| operator | class | kernel | note |", "|---|---|---|---|"]
    return "\n".join([_INTRODUCTION, share, "", *header, *table, "", _SELECTION, *groups, ""])


_INTRODUCTION = """\
# Operators

What profile `fp32` says about the operators that a kernel benchmark would draw from PyTorch's core ATen
set, from abs to where. `repro-audit kernels list --coverage aten110` prints the same table. It is read off
the operator table (`repro_audit/engine/optable.py`) that every run goes through; what is not in that one is
refused by name, with the module that called it. `repro-audit kernels list` prints the kernels themselves.

**Exact**: PyTorch's own kernel gives the specified bits, or only moves, compares or counts. **Specified**:
a kernel of `repro_kernels`. **Refused**: a run that meets the operator stops with exit code 5; an operator
with one refused core overload counts as refused.
"""
_SELECTION = """\
## Which 110, and why

PyTorch 2.13 tags 164 operators as core ATen: what every other operator decomposes into. Benchmarks of
generated kernels (KernelGenBench, for one) take 110 ATen operators. This list is no choice of ours:
it is every core operator but the groups that compute nothing on given values.
"""


def _names(which: str) -> str:
    return which if which.startswith("names") else ", ".join(_code(name) for name in which.split())


def _code(name: str) -> str:
    return f"`{name}`" if name else ""


def as_data() -> dict[str, Any]:
    """The coverage as JSON data."""
    rows = coverage()
    counts = summary(rows)
    return {
        "coverage": "aten110",
        "profile": "fp32",
        "operators": len(rows),
        **counts._asdict(),
        "rows": [row._asdict() for row in rows],
    }


if __name__ == "__main__":
    target = Path(__file__).parents[2] / "docs" / "operators.md"
    target.write_text(document(), encoding="utf-8")
    sys.stdout.write(f"{target}\n")
