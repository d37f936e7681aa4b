"""Which tiles a product is cut into, and how their kernel (``repro_kernels.gpu.outer``) is launched."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from triton.experimental.gluon import language as gl

from repro_kernels.gpu.outer import _outer
from repro_kernels.gpu.runtime import Build, launch
from repro_kernels.gpu.tiles import UNSPECIALISED


class Form(NamedTuple):
    """How a tile is shared out: 4 x 4 neighbours a thread, repeated until the tile is covered.

    Attributes:
        rows: rows of the tile.
        columns: its columns.
        warps: warps along rows and along columns.
        lanes: the axis that each bit of a lane's number counts along, lowest first. Where bit 0 counts
            columns and bit 1 rows, two lanes of every four read the same 16 bytes of an operand, and a load
            from shared memory takes two passes, not four.
        kept: running sums are in shared memory, not in registers.
        registers: at most this many a thread, or None.
        depth: contracted indices a step.
    """

    rows: int
    columns: int
    warps: tuple[int, int]
    lanes: str = "nmnmn"
    kept: bool = False
    registers: int | None = None
    depth: int = 16


class Speed(NamedTuple):
    """What a tile's kernel does on a multiprocessor, as measured on an H200.

    Attributes:
        programs: programs at a time.
        enough: with so many it is as fast as with all.
        rate: part of the peak rate of multiply-adds that it reaches with all.
    """

    programs: int
    enough: int
    rate: float


SPEEDS = {
    Form(128, 128, (4, 2)): Speed(1, 1, 0.63),
    Form(64, 128, (2, 2)): Speed(2, 2, 0.62),
    Form(32, 64, (1, 1), registers=255): Speed(8, 6, 0.54),
    Form(32, 32, (1, 1)): Speed(14, 8, 0.48),
    Form(16, 128, (1, 1), "nmnnn", registers=255, depth=8): Speed(8, 6, 0.40),
}
"""The tiles and their speeds; a choice of speed alone."""

PARTS = 1 << 25
"""At most this many partial sums are stored."""

_SPLITS = 64
"""At most so many programs share a tile's segments."""

_SECOND = 4000.0
"""Cycles that the launch of a second kernel costs."""

_BYTES = 1800.0
"""Bytes of partial sums that go to memory or back in a cycle."""


class Plan(NamedTuple):
    """How a product is cut: the tile, and how many of a tile's segments one program works through."""

    form: Form
    share: int


@functools.lru_cache(4096)
def choose(m: int, n: int, segments: int, batches: int, processors: int) -> Plan:
    """The tile and split that a model of the time prefers; a choice of speed alone.

    A multiprocessor adds up to 128 products a cycle where enough programs share it (`Speed`); programs run in
    waves; partial sums cost their way through memory and a second launch.

    Args:
        m: rows of the product.
        n: its columns.
        segments: segments of its contracted axis, at least 1.
        batches: products.
        processors: multiprocessors of the device.
    """
    best, least = None, math.inf
    for form, speed in SPEEDS.items():
        rows, columns = -(-m // form.rows), -(-n // form.columns)
        count = rows * columns * batches
        room = processors * speed.programs
        sums = segments * count * form.rows * form.columns
        for share in sorted({segments, *(-(-segments // groups) for groups in range(2, _SPLITS + 1))}):
            if share < segments and sums > PARTS:
                continue
            waves, rest = divmod(count * -(-segments // share), room)
            last = max(-(-rest // processors), speed.enough) if rest else 0
            cycles = (waves * speed.programs + last) * share * form.rows * form.columns / speed.rate
            if share < segments:
                cycles += _SECOND + sums * 8 / _BYTES
            if cycles < least:
                best, least = Plan(form, share), cycles
    assert best is not None
    return best


def outputs(form: Form) -> tuple[Any, Any]:
    """The layout of a tile's outputs, and one of shared memory in which each thread's lie side by side."""
    size = [4, 4]
    along: tuple[list[list[int]], list[list[int]]] = ([[1, 0], [2, 0]], [[0, 1], [0, 2]])
    lanes: list[list[int]] = []
    warps: list[list[int]] = []

    def double(axis: int, into: list[list[int]]) -> None:
        into.append([size[0], 0] if axis == 0 else [0, size[1]])
        size[axis] *= 2

    for letter in form.lanes:
        double("mn".index(letter), lanes)
    for axis in (1, 0):
        while size[axis] * form.warps[axis] < (form.rows, form.columns)[axis]:
            double(axis, along[axis])
    for axis in (1, 0):
        while size[axis] < (form.rows, form.columns)[axis]:
            double(axis, warps)
    shape = [form.rows, form.columns]
    registers = along[1] + along[0]  # all of a row first: consecutive multiply-adds share a register
    kept = gl.SharedLinearLayout(registers[:2] + lanes + registers[2:] + warps)
    return gl.DistributedLinearLayout(registers, lanes, warps, [], shape), kept


def _operand(rows: int, form: Form, along_rows: bool) -> Any:
    """How [rows, depth] is loaded: 8 contracted indices a thread, or 4 neighbouring rows."""
    warps = form.warps[0] * form.warps[1]
    if along_rows:
        across = min(32, rows // 4)
        return gl.BlockedLayout([4, 1], [across, 32 // across], [1, warps], [0, 1])
    deep = min(warps, form.depth // 8)
    return gl.BlockedLayout([1, 8], [32, 1], [warps // deep, deep], [1, 0])


@functools.cache
def layouts(form: Form, left_rows: bool, right_rows: bool) -> dict[str, Any]:
    """Constexprs and options; `left_rows`: neighbours in memory are rows, not contracted indices."""
    acc, kept = outputs(form)
    named = {
        "BM": form.rows,
        "BN": form.columns,
        "BK": form.depth,
        "ACC": acc,
        "LEFT": _operand(form.rows, form, left_rows),
        "RIGHT": _operand(form.columns, form, right_rows),
        "LEFT_ROWS": left_rows,
        "RIGHT_ROWS": right_rows,
        "KEPT": kept if form.kept else None,
        "num_warps": form.warps[0] * form.warps[1],
    }
    return named if form.registers is None else {**named, "maxnreg": form.registers}


def run(
    form: Form,
    grid: tuple[int, int],
    tensors: tuple[torch.Tensor, ...],
    numbers: tuple[int, ...],
    factors: tuple[float, float],
    bias: bool,
    split: bool,
) -> Any:
    """Launch the tiles of one product.

    Args:
        form: the tile.
        grid: tiles of the batch, and programs that share a tile's segments.
        tensors: a, b, bias (or any), out, parts.
        numbers: the kernel's integers, in its order, K and strides in elements.
        factors: alpha, beta.
        bias: whether the bias is read.
        split: whether partial sums are stored instead of results.

    Returns:
        The compiled kernel.
    """
    own = list(numbers)
    k, start = own[2:4]
    a_m, a_k = own[12:14]
    b_n, b_k = own[17:19]
    unit = 8 if start == 0 and a_k == b_k == 1 and not (k % 8 or a_m % 8 or b_n % 8) else 1
    fit = 2 if start == 0 and k % (2 * form.depth) == 0 else 1 if unit == 8 else 0
    own[2], own[12], own[17] = k // unit, a_m // unit, b_n // unit
    return launch(
        _outer, grid, *tensors, *own, *factors, BIAS=bias, SPLIT=split, FIT=fit, UNIT=unit, GROUP=8,
        **layouts(form, a_k != 1 and a_m == 1, b_k != 1 and b_n == 1),
    )  # fmt: skip


def _builds() -> Iterator[Build]:
    kinds = (  # left, right, out; neighbours along rows; FIT, UNIT; SPLIT
        ("*fp32", "*bf16", "*fp32", False, 2, 8, False),
        ("*bf16", "*fp16", "*bf16", False, 1, 8, True),
        ("*fp16", "*fp32", "*fp16", True, 0, 1, False),
        ("*bf16", "*bf16", "*bf16", True, 2, 1, True),
        ("*fp32", "*fp32", "*fp32", False, 0, 1, True),
    )
    pointers = ("a", "b", "bias", "out", "parts")
    for form in SPEEDS:
        for left, right, out, along_rows, fit, unit, split in kinds:
            ones: dict[str, Any] = {"a_m": 1, "b_n": 1} if along_rows else {"a_k": 1, "b_k": 1}
            how = layouts(form, along_rows, along_rows)
            options: dict[str, Any] = {key: how[key] for key in ("num_warps", "maxnreg") if key in how}
            fixed = {key: value for key, value in how.items() if key not in options}
            integers = [a for a in _outer.arg_names[5:34] if a not in ones and a != "c_n"]
            steps = [a for a in integers if a[0] in "abco" and a[1:] in "012"]
            yield Build(
                _outer,
                {
                    **dict(zip(pointers, (left, right, "*fp32", out, "*fp32"), strict=True)),
                    **dict.fromkeys(integers, "i32"),
                    "alpha": "fp32",
                    "beta": "fp32",
                },
                {
                    **ones,
                    "c_n": 1,
                    "BIAS": not split,
                    "SPLIT": split,
                    "FIT": fit,
                    "UNIT": unit,
                    "GROUP": 8,
                    **fixed,
                },
                options,
                (*pointers, *([a for a in integers if a not in UNSPECIALISED] if fit == 2 else steps)),
            )


BUILDS = tuple(_builds())
"""Every tile, along contracted indices and along rows, whole and masked."""
