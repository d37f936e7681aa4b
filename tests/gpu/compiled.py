"""What the compiled code of a kernel may hold, read from its PTX on a machine without a GPU."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re

import repro_kernels.gpu
from repro_kernels.gpu.runtime import Build, compile_for

TARGETS = (80, 86, 89, 90, 100, 120)
"""Compute capabilities, times ten, that the project names."""

_FORBIDDEN = {
    "an approximation": r"\.approx\b",
    "subnormals flushed to zero": r"\.ftz\b",
    "a tensor core": r"\b(?:wgmma|tcgen05|w?mma)\b",
    "a float atomic": r"\b(?:atom|red)\.[\w.:]*\.(?:f16|bf16|f32|f64)",
    "a rounding left open": r"\b(?:add|sub|mul|fma|mad)\.f(?:16|32|64)(?:x2)?\b",
    "division that is not IEEE": r"\bdiv\.full\b",
}


def modules() -> list[str]:
    """The modules of the GPU back end."""
    return sorted(m.name for m in pkgutil.iter_modules(repro_kernels.gpu.__path__))


def builds() -> list[Build]:
    """Every specialisation that the modules list, each once."""
    found: dict[str, Build] = {}
    for name in modules():
        for build in getattr(importlib.import_module(f"repro_kernels.gpu.{name}"), "BUILDS", ()):
            key = f"{build.name} {sorted(build.options.items())} {build.divisible}"
            found.setdefault(key, build)
    return list(found.values())


def plan(everything: bool = False) -> list[tuple[Build, int]]:
    """What to compile for which target.

    Args:
        everything: every specialisation for every target; otherwise each kernel's first specialisation for
            every target, and the others for one target each, in turn.
    """
    pairs, seen = [], set()
    for index, build in enumerate(builds()):
        first = build.kernel not in seen
        seen.add(build.kernel)
        targets = TARGETS if first or everything else (TARGETS[index % len(TARGETS)],)
        pairs += [(build, target) for target in targets]
    return pairs


_plan = functools.cache(plan)


def problem(build: Build, target: int) -> str:
    """What the code of one specialisation must not hold but does; empty if nothing."""
    assembly = compile_for(build, target).asm
    return inspect(assembly["ptx"], assembly["llir"], target, build.fma)


def problem_at(index: int, everything: bool) -> str:
    """:func:`problem` of one entry of the plan, for a process that cannot be handed a kernel."""
    return problem(*_plan(everything)[index])


def inspect(ptx: str, llir: str, target: int, fma: bool) -> str:
    """The rules, applied to texts: PTX, the LLVM IR it came from, the target, whether FMAs are expected."""
    if f".target sm_{target}" not in ptx:
        return f"not compiled for sm_{target}"
    for what, pattern in _FORBIDDEN.items():
        hit = re.search(pattern, ptx)
        if hit:
            return f"{what}: {hit.group()}"
    if re.search(r"\bf(?:add|sub|mul|div) (?:\w+ )*(?:fast|contract|reassoc|arcp|afn)\b", llir):
        return "arithmetic that LLVM may change"
    written = _count(llir, r"@llvm\.fma\.(?:v(\d+))?f(?:32|64)\(")
    emitted = _count(ptx, r"\bfma\.rn\.f(?:32|64)(?:x(\d+))?\b")
    if emitted > written or (emitted and not fma):
        return f"{emitted} fused multiply-adds, {written} written"
    return ""


def _count(text: str, pattern: str) -> int:
    """Occurrences, a vector of n as n; declarations of LLVM functions are not calls."""
    lines = [line for line in text.splitlines() if not line.startswith("declare")]
    return sum(int(hit.group(1) or 1) for line in lines for hit in re.finditer(pattern, line))
