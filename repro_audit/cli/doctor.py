"""``repro-audit doctor``: what this machine can do, and whether its kernels are right."""

from __future__ import annotations

import os
import shutil
from typing import Annotated

from repro_audit.cli.app import Common, command, option
from repro_audit.cli.options import Device, Threads, known_device, resolve_device, set_threads
from repro_audit.progress import Observer
from repro_audit.verdict import Finding, Result, Verdict

_COMPILERS = ("cc", "gcc", "clang")

Probe = Annotated[
    bool,
    option("--probe", help="All seven products of the probe, not two: minutes, and 3 GB of memory."),
]


@command("doctor")
def doctor(
    common: Common, device: Device = "auto", threads: Threads = None, probe: Probe = False
) -> Result | None:
    """What this machine can do, and a known-answer test of every kernel on it."""
    set_threads(threads)
    device = resolve_device(known_device(device))
    with common.observer() as observer:
        return diagnose(observer, device, whole_probe=probe)


def diagnose(observer: Observer, device: str, *, whole_probe: bool = False) -> Result:
    """Facts about this machine and its known answers, on its CPU and on ``device``.

    Args:
        observer: is told of every answer.
        device: ``cpu`` or a CUDA device.
        whole_probe: whether all seven products of the probe are computed, on ``device`` alone.
    """
    import torch
    from repro_kernels.cpu import native
    from repro_kernels.errors import KernelError

    from repro_audit import devices
    from repro_audit.verify import environment

    facts = list(environment.collect(device).items())
    memory = environment.memory_bytes()
    if memory is not None:
        facts.append(("memory", f"{memory[0] / 2**30:.1f} GiB, {memory[1] / 2**30:.1f} GiB available"))
    found = [name for name in _COMPILERS if shutil.which(name)]
    facts += [
        ("threads", f"{torch.get_num_threads()} of {os.cpu_count()} cores"),
        ("C compilers", ", ".join(found) or "none (needed only to build from source)"),
        ("GPU", "usable" if (why := devices.unusable(0)) is None else f"not used: {why}"),
    ]
    try:
        facts.append(("instruction sets", ", ".join(native.available())))
        native.isa()
    except KernelError as error:
        finding = Finding("RA501", f"the kernels cannot run here: {error}", "environment")
        return Result("doctor", Verdict.INCONCLUSIVE, "the kernels cannot run here", (finding,), tuple(facts))
    from repro_kernels import probe

    from repro_audit.verify import known_answers
    from repro_audit.verify.known_answer_digests import DIGESTS

    places = ["cpu"] if device == "cpu" else ["cpu", device]
    cases = [(case, place) for place in places for case in known_answers.cases()]
    shapes = probe.SHAPES if whole_probe else probe.QUICK
    count = len(cases) + len(shapes)
    observer.stage("known-answer test", count)
    findings = []
    for case, place in cases:
        answer = known_answers.answer(case, place)
        if answer != DIGESTS.get(case.name):
            findings.append(_wrong(case.name, place, answer))
        observer.advance()
    for shape in shapes:
        bad = probe.problems(probe.run(shape, torch.device(device)), shape)
        if bad:
            findings.append(_wrong(f"probe {probe.name(shape)}", device, "other " + ", ".join(bad)))
        observer.advance()
    good = not findings
    return Result(
        "doctor",
        Verdict.VALID if good else Verdict.INCONCLUSIVE,
        "every kernel gives the specified bits on this machine"
        if good
        else f"{len(findings)} of {count} kernels give wrong bits: this machine decides nothing",
        tuple(findings),
        tuple(facts),
        (("known answers", count), ("right", count - len(findings))),
        next_command="repro-audit demo" if good else "REPRO_KERNELS_ISA=base repro-audit doctor",
    )


def _wrong(name: str, place: str, got: str) -> Finding:
    where = "this machine" if place == "cpu" else place
    return Finding("RA501", f"{name} gives wrong bits on {where}", "environment", details=(("got", got),))
