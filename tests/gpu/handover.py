"""The two steps of the elementary functions apart, in Triton's interpreter, by bits of the CPU kernels.

    TRITON_INTERPRET=1 python -m tests.gpu.handover [NAME ...]

First, what a first step leaves open goes to the second one: with that step's roundings replaced by a mark,
every argument of ``undecided.txt`` comes out as the mark. Then, with a margin so wide that nearly every value
is open, the second step alone gives the right bits. (A first step is right so far beyond its margin that no
feasible sample of its results shows whether the second one was taken.) Prints a line for each function; exits
with 1 if one fails.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl
from repro_kernels.cpu import elementary as cpu
from repro_kernels.gpu import elementary as gpu
from repro_kernels.gpu import elementary_core, hyperbolic, inverse_trigonometric, pow, trigonometric

from tests.gpu import exact_interpreter
from tests.gpu.cases import bits
from tests.gpu.cases_elementary import few_bits, pairs, undecided
from tests.gpu.hostile import values

ONE_STEP = ("sqrt", "reciprocal", "rsqrt")
MARK = 12345.0
WIDE = 25
"""A margin of 2^-25: at least half of all values have a boundary that near."""


@triton.jit
def _mark_pair(high, low):
    return (high * 0.0).to(tl.float32) + 12345.0


@triton.jit
def _mark_power(i, hh, hl):
    return (i * 0).to(tl.float32) + 12345.0


def _set(name: str, value: Any) -> None:
    for module in (elementary_core, hyperbolic, inverse_trigonometric, trigonometric, pow):
        if hasattr(module, name):
            setattr(module, name, value)


def handed_over(name: str, x: torch.Tensor) -> int:
    """How many arguments that must go to the second step do not."""
    if name == "pow":
        base, exponent = x.unflatten(0, (-1, 2)).unbind(1)
        result = gpu.pow(base, exponent)
    else:
        result = gpu.unary(name, x)
    return int((result.abs() != MARK).sum())


def arguments(name: str, count: int = 3000) -> torch.Tensor:
    """Arguments at which a second step is defined; the others are the first one's alone."""
    parts = [values((count,), 1, kind="bits"), 4 * values((count,), 2), 1 + values((count,), 3) * 2.0**-7]
    x = torch.cat([*parts, 40 * values((count,), 4), values((count,), 5) * 2.0**-12])
    if name in ("asin", "acos", "atan"):
        x = x[(x.abs() < 1) | ((name == "atan") & x.isfinite())]
    return x


def wrong_alone(name: str) -> int:
    """How many results of the second step differ from the CPU's."""
    if name != "pow":
        x = arguments(name)
        return int((bits(gpu.unary(name, x)) != bits(cpu.unary(name, x))).sum())
    base, exponent = pairs(5, 1000)
    few = few_bits(6, 300)
    whole = torch.full_like(few, 3.0)
    base, exponent = torch.cat([base, few, few]), torch.cat([exponent, whole, whole / 4])
    return int((bits(gpu.pow(base, exponent)) != bits(cpu.pow(base, exponent))).sum())


def main(names: list[str]) -> int:
    """Print what fails; 1 if anything does."""
    exact_interpreter.apply()
    gpu._BLOCK, gpu._POW_BLOCK = 4096, 4096  # fewer programs: a block's size is not part of a result
    chosen = names or [n for n in (*cpu.ELEMENTARY, "pow") if n not in ONE_STEP]
    kept, failed = (elementary_core.round_pair, pow._round_fixed), False
    left = {}
    _set("round_pair", _mark_pair), _set("_round_fixed", _mark_power)
    for name in chosen:
        left[name] = handed_over(name, undecided()[name])
    _set("round_pair", kept[0]), _set("_round_fixed", kept[1])
    _set("MARGIN", tl.constexpr(WIDE)), _set("MARGIN_POW", tl.constexpr(WIDE))
    for name in chosen:
        wrong = wrong_alone(name)
        failed |= bool(wrong or left[name])
        print(f"{name}: {left[name]} not handed over, {wrong} wrong in the second step", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
