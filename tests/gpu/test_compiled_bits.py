"""The bits of the compiled elementwise kernels, without a GPU: their PTX, run by ``ptx_machine.py``.

The interpreter checks the kernels' Python text; this checks what Triton makes of it: binary64 constants,
signed and unsigned integers, selections, the branch to the second step.
"""

# ruff: noqa: E402 - triton is an optional dependency
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton")

import triton.language as tl
from repro_kernels.cpu import elementary as cpu
from repro_kernels.gpu import elementary, elementary_core, runtime, trigonometric
from repro_kernels.gpu.pow import pow_rn

from tests.gpu import cases_elementary as cases
from tests.gpu.ptx_machine import Machine

pytestmark = pytest.mark.skipif(runtime.INTERPRETED, reason="the kernels are interpreted, not compiled")

BUILDS = {b.constexprs.get("NAME", b.kernel.__name__): b for b in elementary.BUILDS}
PARAMETERS = {"elu": (1.5, 0.7, 1.3), "softplus": (0.9, 20.0), "hardtanh": (-1.0, 1.0), "leaky_relu": (0.01,)}
TYPES = {"*fp32": torch.float32, "*bf16": torch.bfloat16, "*fp16": torch.float16}


def execute(build: runtime.Build, capability: int, arguments: Sequence[Any], n: int) -> np.ndarray:
    """What the kernel, compiled for a capability, leaves in its last array; n is a multiple of 16."""
    machine = Machine(runtime.compile_for(build, capability).asm["ptx"])
    return machine.run(-(-n // build.constexprs["BLOCK"]), arguments)[-1]


def check(name: str, capability: int) -> None:
    """A function of one argument: special values, every exponent, undecided and random arguments."""
    build = BUILDS[name]
    source, target = TYPES[build.signature["x"]], TYPES[build.signature["y"]]
    x = torch.cat([cases.arguments(3, 4000), cases.undecided().get(name, torch.empty(0))]).to(source)
    x = x[: x.numel() // 16 * 16]
    y = torch.zeros(x.numel(), dtype=target)
    parameters = (*PARAMETERS.get(name, ()), 3.0, 3.0, 3.0)[:3]
    raw = [t.view(torch.int16 if t.element_size() == 2 else torch.int32).numpy() for t in (x, y)]
    got = execute(build, capability, [*raw, x.numel(), *parameters], x.numel())
    if name == "div_scalar":
        want = cpu.div_scalar(x, 3.0, out_dtype=target)
    elif name in ("square", "power_half", "identity"):
        want = cpu.pow(x, {"square": 2.0, "power_half": 0.5, "identity": 1.0}[name], out_dtype=target)
    elif name in PARAMETERS:
        want = cpu.composite(name, x, *PARAMETERS[name], out_dtype=target)
    else:
        want = cpu.unary(name, x, out_dtype=target)
    assert_same(got, want)


def assert_same(got: np.ndarray, want: torch.Tensor) -> None:
    expected = want.view(torch.int16 if want.element_size() == 2 else torch.int32).numpy()
    wrong = np.flatnonzero(got != expected)
    assert not wrong.size, f"{wrong.size} differ, first at {wrong[0]}: {got[wrong[0]]:#x}"


@pytest.mark.parametrize("name", [n for n in BUILDS if not n.startswith("_")])
def test_one_argument(name: str) -> None:
    check(name, 80)


@pytest.mark.parametrize(
    ("name", "capability"),
    [("exp", 90), ("silu", 90), ("rsqrt", 90), ("exp", 100), ("sin", 100), ("silu", 120), ("gelu", 120)],
)
def test_other_targets(name: str, capability: int) -> None:
    check(name, capability)


@pytest.mark.parametrize("capability", [80, 120])
def test_powers(capability: int) -> None:
    x, y = cases.pairs(5, 1000)
    few, base, exponent = cases.few_bits(6, 100), *cases.undecided()["pow"].unflatten(0, (-1, 2)).unbind(1)
    for power in (3.0, 1.5, 0.125, -2.0):
        x, y = torch.cat([x, few]), torch.cat([y, torch.full_like(few, power)])
    x, y = torch.cat([x, base]), torch.cat([y, exponent])
    n = x.numel() // 16 * 16
    x, y = x[:n].contiguous(), y[:n].contiguous()
    arrays = [t.view(torch.int32).numpy() for t in (x, y, torch.zeros(n))]
    assert_same(execute(BUILDS["_pow"], capability, [*arrays, n], n), cpu.pow(x, y))


@triton.jit
def _scalars(x, y):
    v = tl.load(x)
    tl.store(y, elementary_core.exp_rn(v))
    tl.store(y + 1, elementary_core.rsqrt_rn(v))
    tl.store(y + 2, trigonometric.sin_rn(v))
    tl.store(y + 3, pow_rn(v, v))


@triton.jit
def _two_axes(x, y):
    i = tl.arange(0, 16)[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(y + i, elementary_core.exp_rn(tl.load(x + i)))


def test_functions_take_scalars_and_blocks_of_two_axes() -> None:
    signature = {"x": "*fp32", "y": "*fp32"}
    machine = Machine(runtime.compile_for(runtime.Build(_scalars, signature), 90).asm["ptx"])
    undecided = [float(cases.undecided()[name][0]) for name in ("exp", "sin")]
    for v in (0.7, 3.0, 1e6, float("inf"), float("nan"), -0.0, *undecided):
        x = torch.tensor([v])
        got = machine.run(1, [x.view(torch.int32).numpy(), np.zeros(4, np.int32)])[1]
        assert_same(got, torch.cat([*(cpu.unary(n, x) for n in ("exp", "rsqrt", "sin")), cpu.pow(x, x)]))
    machine = Machine(runtime.compile_for(runtime.Build(_two_axes, signature), 90).asm["ptx"])
    x = cases.arguments(8, 512)[-512:]
    got = machine.run(1, [x.view(torch.int32).numpy(), np.zeros(512, np.int32)])[1]
    assert_same(got, cpu.unary("exp", x))


def test_what_is_not_ieee_is_refused() -> None:
    head = ".entry k(\n.param .u64 k_param_0\n)\n.reqntid 32\n{\n"
    for line in ("ex2.approx.f32 %r1, %r1;", "fma.rn.ftz.f32 %r1, %r1, %r1, %r1;", "add.f32 %r1, %r1, %r1;"):
        machine = Machine(f"{head}mov.b32 %r1, 0f3F800000;\n{line}\nret;\n}}\n")
        with pytest.raises(AssertionError):
            machine.run(1, [0])
