"""``repro-audit doctor``: what this machine can do, and whether its kernels are right."""

from __future__ import annotations

import os
import shutil

from repro_audit.cli.app import Common, command
from repro_audit.cli.options import Device, Threads, known_device, resolve_device, set_threads
from repro_audit.progress import Observer
from repro_audit.verdict import Finding, Result, Verdict

_COMPILERS = ("cc", "gcc", "clang")


@command("doctor")
def doctor(common: Common, device: Device = "auto", threads: Threads = None) -> Result | None:
    """What this machine can do, and a known-answer test of every kernel on it."""
    set_threads(threads)
    device = resolve_device(known_device(device))
    with common.observer() as observer:
        return diagnose(observer, device)


def diagnose(observer: Observer, device: str) -> Result:
    """Facts about this machine and the outcome of the known-answer test, on its CPU and on ``device``."""
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
    from repro_audit.verify import known_answers
    from repro_audit.verify.known_answer_digests import DIGESTS

    places = ["cpu"] if device == "cpu" else ["cpu", device]
    cases = [(case, place) for place in places for case in known_answers.cases()]
    observer.stage("known-answer test", len(cases))
    findings = []
    for case, place in cases:
        answer = known_answers.answer(case, place)
        if answer != DIGESTS.get(case.name):
            findings.append(
                Finding(
                    "RA501",
                    f"{case.name} gives wrong bits on {'this machine' if place == 'cpu' else place}",
                    "environment",
                    details=(("got", answer),),
                )
            )
        observer.advance()
    good = not findings
    return Result(
        "doctor",
        Verdict.VALID if good else Verdict.INCONCLUSIVE,
        "every kernel gives the specified bits on this machine"
        if good
        else f"{len(findings)} of {len(cases)} kernels give wrong bits: this machine decides nothing",
        tuple(findings),
        tuple(facts),
        (("known answers", len(cases)), ("right", len(cases) - len(findings))),
        next_command="repro-audit demo" if good else "REPRO_KERNELS_ISA=base repro-audit doctor",
    )
