"""The bit contract in one table: operator -> profile, specification, implementation, dtypes, evidence.

No torch here: references are text, imported by :func:`resolve`. ``python -m repro_kernels.registry`` writes
kernels/README.md from this table; tests/kernels/test_registry.py holds both to the code and the test files.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from repro_kernels.errors import UnsupportedError

PROFILES: Final = ("fp32",)
"""Profiles that exist; a change to any operator's bits is another profile version."""

BACKENDS: Final = ("spec", "cpu", "gpu")
"""The specification, and what implements it."""

TARGETS: Final = {
    "cpu": "x86-64 (AVX-512; AVX2 and FMA; baseline SSE2) and aarch64 (NEON), any number of threads",
    "gpu": "NVIDIA GPUs of compute capability 8.0 and later (Triton), any stream and launch",
}
"""Backend -> the machines on which its bits are the specified ones."""

FLOATS: Final = ("float32", "bfloat16", "float16")


class Operator(NamedTuple):
    """One row.

    Attributes:
        name: what :func:`resolve` takes.
        definition: the rule in a line; the specification is the authority.
        spec: ``module:function`` below ``repro_kernels.spec``.
        cpu: ``module:function`` below ``repro_kernels.cpu``; ``elementary:unary`` takes the name first.
        evidence: the test below tests/kernels that compares the two bit for bit. The GPU is compared with
            the CPU, on the cases of tests/gpu.
        dtypes: of the floating operands, in any mix unless the function says otherwise.
        profile: the profile it belongs to.
    """

    name: str
    definition: str
    spec: str
    cpu: str
    evidence: str
    dtypes: tuple[str, ...] = FLOATS
    profile: str = "fp32"

    @property
    def gpu(self) -> str:
        """``module:function`` below ``repro_kernels.gpu``: that of the CPU, with the same arguments."""
        return self.cpu


_ROUNDED: Final = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh erf erfc rsqrt reciprocal"
)
_COMPOSITES: Final = (
    "sigmoid silu gelu gelu_tanh softplus elu selu mish log_sigmoid hardsigmoid hardswish hardtanh relu6 "
    "leaky_relu"
)


def _rows() -> Iterator[Operator]:
    """The table, in reading order."""
    op = Operator
    # Products: the dot rule.
    yield op("linear", "RN_out(RN(acc + b))", "dot:linear", "gemm:linear", "test_gemm.py")
    yield op("matmul", "RN_out(acc)", "dot:matmul", "gemm:matmul", "test_gemm.py")
    yield op("addmm", "RN_out(RN(RN(beta*b) + RN(alpha*acc)))", "dot:addmm", "gemm:addmm", "test_gemm.py")
    yield op("baddbmm", "addmm of every matrix of a batch", "dot:addmm", "gemm:baddbmm", "test_gemm.py")
    yield op("conv", "dot over (c_in, kernel axes), padding +0", "dot:conv", "gemm:conv", "test_gemm_conv.py")
    # Attention and softmax.
    yield op(
        "attention",
        "matmul, * scale, soft cap, mask, softmax, matmul, each rounded to its type",
        "attention:attention",
        "attention:attention",
        "test_attention.py",
    )
    yield op("softmax", "RN_out(RN(e / s))", "attention:softmax", "softmax:softmax", "test_softmax.py")
    yield op(
        "log_softmax",
        "RN_out(RN(RN(x - m) - log(s)))",
        "attention:log_softmax",
        "softmax:log_softmax",
        "test_softmax.py",
    )
    # Sums by the segment rule.
    yield op("sum", "segments of 128", "reduce:sum", "reduce:sum", "test_reduce.py")
    yield op("mean", "RN(sum / RN(n))", "reduce:mean", "reduce:mean", "test_reduce.py")
    yield op("var", "RN(sum of RN(d*d) / RN(n - correction))", "reduce:var", "reduce:var", "test_reduce.py")
    yield op("std", "RN(sqrt(var))", "reduce:std", "reduce:std", "test_reduce.py")
    yield op("cumsum", "ascending, in binary32", "reduce:cumsum", "reduce:cumsum", "test_reduce.py")
    # Division with a whole quotient.
    yield op("fmod", "exact", "remainder:fmod", "remainder:fmod", "test_remainder.py")
    yield op(
        "remainder",
        "fmod, RN(r + y) where the signs differ",
        "remainder:remainder",
        "remainder:remainder",
        "test_remainder.py",
    )
    yield op(
        "div_trunc", "trunc(RN(x / y))", "remainder:div_trunc", "remainder:div_trunc", "test_remainder.py"
    )
    yield op(
        "div_floor",
        "the whole number below RN(RN(x - fmod) / y)",
        "remainder:div_floor",
        "remainder:div_floor",
        "test_remainder.py",
    )
    # Norms.
    yield op(
        "layer_norm",
        "RN(RN(RN(d * rsqrt(RN(var + eps))) * w) + b)",
        "norm:layer_norm",
        "norm:layer_norm",
        "test_norm.py",
    )
    yield op(
        "rms_norm",
        "RN(RN(x * rsqrt(RN(mean(RN(x*x)) + eps))) * w)",
        "norm:rms_norm",
        "norm:rms_norm",
        "test_norm.py",
    )
    yield op("group_norm", "layer_norm of a group", "norm:group_norm", "norm:group_norm", "test_norm.py")
    yield op("batch_norm", "running statistics only", "norm:batch_norm", "norm:batch_norm", "test_norm.py")
    # Fused steps of modules: the unfused bits.
    yield op(
        "rms_norm_module",
        "rms_norm with the module's own casts",
        "norm:rms_norm_module",
        "fused:rms_norm_module",
        "test_fused.py",
    )
    yield op("swiglu", "RN_a(RN_a(silu(gate)) * up)", "blocks:swiglu", "fused:swiglu", "test_fused.py")
    yield op(
        "rotary",
        "RN_a(RN_a(x * cos) + RN_a(rotated * sin))",
        "blocks:rotary",
        "fused:rotary",
        "test_fused.py",
    )
    # Elementary functions and composites.
    for name in _ROUNDED.split():
        yield op(name, "correctly rounded", f"elementary:{name}", "elementary:unary", "test_elementary.py")
    yield op("sqrt", "correctly rounded", "floats:sqrt", "elementary:unary", "test_elementary.py")
    yield op("pow", "correctly rounded", "elementary:pow", "elementary:pow", "test_elementary_pow.py")
    for name in _COMPOSITES.split():
        yield op(
            name, "a tree of rounded steps", f"composite:{name}", "elementary:unary", "test_composite.py"
        )
    yield op(
        "div_scalar",
        "RN(x / RN(c))",
        "composite:div_scalar",
        "elementary:div_scalar",
        "test_composite.py",
    )
    # Order: equal elements by lowest index, -0 equal to +0, NaN above all.
    yield op("max", "value and index", "order:amax", "order:max", "test_order.py")
    yield op("min", "value and index", "order:amin", "order:min", "test_order.py")
    for name in (
        "amax",
        "amin",
        "argmax",
        "argmin",
        "maximum",
        "minimum",
        "relu",
        "clamp",
        "argsort",
        "topk",
    ):
        yield op(name, "the first of equals", f"order:{name}", f"order:{name}", "test_order.py")
    yield op("sort", "stable both ways", "order:argsort", "order:sort", "test_order.py")
    # Writes through an index, casts, ranges.
    yield op("index_add", "ascending, no atomics", "index:index_add", "index:index_add", "test_index.py")
    yield op("scatter_add", "ascending, no atomics", "index:index_add", "index:scatter_add", "test_index.py")
    yield op(
        "to_integer",
        "truncated, saturated, NaN to 0",
        "convert:to_integer",
        "convert:to_integer",
        "test_convert.py",
    )
    yield op("arange", "RN(start + i*step)", "convert:arange", "convert:arange", "test_convert.py")
    yield op(
        "linspace",
        "RN(start + i*(end - start)/(n - 1))",
        "convert:linspace",
        "convert:linspace",
        "test_convert.py",
    )
    # Drawing a token.
    yield op("philox", "Philox4x32-10", "philox:philox", "sampling:philox", "test_philox.py", ())
    yield op("sample", "greedy or Philox", "sampling:sample", "sampling:sample", "test_sampling.py")


OPERATORS: Final = {row.name: row for row in _rows()}
"""Name -> row."""


_INTRODUCTION: Final = """\
# The bit contract

<!-- Generated by `python -m repro_kernels.registry`; do not edit. -->

Every operator below has its result defined bit for bit by a specification: slow, scalar Python in
`repro_kernels/spec/`, which uses integers and fractions and is the authority. An implementation may be
fast in any way that gives those bits, so a result depends on the operator's inputs alone: not on batch
size, strides, thread count, tile shape or instruction set. `docs/numerics.md` states the rules in words.

RN is rounding to nearest even in binary32, RN_out the one rounding to the result's type, RN_a to the
activation type. 16-bit operands are upcast exactly; arithmetic inside is binary32, subnormals kept; a
NaN that arithmetic makes is the canonical one. The evidence is the test below `tests/kernels/` that
compares implementation and specification by their bits. The functions of `repro_kernels/gpu/` have the
names and arguments of those of `repro_kernels/cpu/`; `tests/gpu/test_bits.py` compares the two on a GPU.
"""


def reference(name: str, *, profile: str = "fp32", backend: str = "cpu") -> str:
    """The full ``package.module:function`` of an operator.

    Args:
        name: a key of :data:`OPERATORS`.
        profile: one of :data:`PROFILES`.
        backend: one of :data:`BACKENDS`.

    Raises:
        UnsupportedError: no such operator, profile or backend.
    """
    row = OPERATORS.get(name)
    if row is None or row.profile != profile:
        raise UnsupportedError(f"operator {name} in profile {profile}")
    if backend not in BACKENDS:
        raise UnsupportedError(f"operator {name} on {backend}")
    return f"repro_kernels.{backend}.{getattr(row, backend)}"


def resolve(name: str, *, profile: str = "fp32", backend: str = "cpu") -> Callable[..., Any]:
    """The function that :func:`reference` names, imported."""
    module, _, function = reference(name, profile=profile, backend=backend).partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def readme() -> str:
    """kernels/README.md."""
    machines = [f"The bits of `{backend}` hold on {where}." for backend, where in TARGETS.items()]
    lines = [
        _INTRODUCTION,
        *machines,
        "",
        "| operator | profile | definition | specification | cpu and gpu | dtypes | evidence |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in OPERATORS.values():
        dtypes = "all floats" if row.dtypes == FLOATS else ", ".join(row.dtypes) or "integers"
        lines.append(
            f"| {row.name} | {row.profile} | {row.definition} | `{row.spec}` | `{row.cpu}` | {dtypes} "
            f"| `{row.evidence}` |"
        )
    names = ", ".join(FLOATS)
    return "\n".join(
        [
            *lines,
            "",
            f"All floats: {names}. What is not in the table is not specified, and is refused by name.",
            "",
        ]
    )


if __name__ == "__main__":
    target = Path(__file__).parents[1] / "README.md"
    target.write_text(readme(), encoding="utf-8")
    sys.stdout.write(f"{target}\n")
