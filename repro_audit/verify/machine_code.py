"""The machine code that a record lists beside what ran here: a claim, so a difference is told and decides
nothing. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repro_audit.manifest.types import Manifest
from repro_audit.trace.record import CompiledKernel
from repro_audit.verdict import Finding
from repro_audit.verify.grade import device_of

_SHOWN = 8


def compare_machine_code(
    manifest: Manifest, mine: Sequence[CompiledKernel], here: Mapping[str, str], place: str = "here"
) -> tuple[list[Finding], str | None]:
    """What differs, and how to put it to a person.

    Kernels are compared where both sides launched the same specialisation for the same target: a rerun is a
    prefill, in which kernels of decoding do not run.

    Args:
        manifest: the record.
        mine: what the rerun launched.
        here: environment facts of this machine, or of another record's.
        place: what to call that machine.

    Returns:
        At most one finding, RA505; a fact, or None if the record lists no machine code.
    """
    recorded = manifest.compiled
    if not recorded:
        return [], None
    theirs = dict(manifest.environment)
    other = _why_other(theirs, here)
    if other is not None:
        return [], f"{len(recorded)} recorded, {len(mine)} {place}: expected to differ, {other}"
    known: dict[tuple[str, str, str], list[str]] = {}
    for kernel in mine:
        known.setdefault(_key(kernel), []).append(kernel.sha256)
    both = [kernel for kernel in recorded if _key(kernel) in known]
    differing = [kernel for kernel in both if kernel.sha256 not in known[_key(kernel)]]
    fact = f"{len(both) - len(differing)} of {len(both)} that ran on both sides are the same"
    fact += f" ({len(recorded)} recorded, {len(mine)} {place})"
    if not differing:
        return [], fact
    names = sorted({kernel.name for kernel in differing})
    listed = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    message = f"{len(differing)} compiled kernel(s) are other machine code than recorded: {listed}"
    details = tuple(
        (
            f"{number}. {kernel.name}",
            f"{kernel.sha256[:16]} recorded, {known[_key(kernel)][0][:16]} "
            f"here; {kernel.target}; {kernel.specialisation}",
        )
        for number, kernel in enumerate(differing[:_SHOWN], start=1)
    )
    return [Finding("RA505", message, "environment", details=details)], fact


def _key(kernel: CompiledKernel) -> tuple[str, str, str]:
    return kernel.name, kernel.specialisation, kernel.target


def _why_other(theirs: Mapping[str, str], mine: Mapping[str, str]) -> str | None:
    """Why two machines are expected to have other machine code; None if they are not."""
    one, two = device_of(theirs), device_of(mine)
    if one.kind != two.kind:
        return f"{one.kind} there and {two.kind} here"
    if one.numerics != two.numerics:
        return f"{one.numerics} there and {two.numerics} here"
    on_gpu = one.kind == "cuda"
    sources = "gpu.kernels" if on_gpu else "kernels"
    for name, text in (("package.triton", "Triton"),) * on_gpu + ((sources, "kernel sources"),):
        if theirs.get(name) != mine.get(name):
            return f"other {text}"
    return None
