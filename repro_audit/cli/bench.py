"""``repro-audit bench``: speed against the alternatives, in one run on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from repro_audit.cli.app import Common, command, option
from repro_audit.cli.options import Threads, set_threads
from repro_audit.cli.output import choice
from repro_audit.verdict import Result, Verdict

PARTS = ("gemm", "model", "verify")


@command("bench")
def bench(
    common: Common,
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[gemm|model|verify]...", show_default=False)
    ] = None,
    model: Annotated[
        str, option("--model", metavar="MODEL", help="For the parts model and verify.")
    ] = "demo:smollm2-135m",
    rounds: Annotated[
        int, option("--rounds", metavar="N", help="Timed rounds; medians are shown.", min=1)
    ] = 3,
    threads: Threads = None,
) -> Result | None:
    """Measure speed against torch and Hugging Face here; bits are checked before anything is timed."""
    import torch

    from repro_audit.verify import environment

    wanted = [choice("part", part, PARTS) for part in parts or PARTS]
    set_threads(threads)
    facts = [(name, value) for name, value in environment.collect().items() if name != "device"]
    facts.append(("threads", str(torch.get_num_threads())))

    def take(measured: Iterator[tuple[str, str]]) -> None:
        """Keep what was measured, and tell it at once: the whole takes minutes."""
        for name, text in measured:
            facts.append((name, text))
            observer.note(f"{name}: {text}")

    with common.observer() as observer:
        if "gemm" in wanted:
            from repro_audit.bench import gemm

            observer.stage("matrix products")
            take(gemm.measure(rounds))
        if "model" in wanted or "verify" in wanted:
            from repro_audit import models
            from repro_audit.bench import endtoend

            loaded = models.load(model, observer=observer)
            if "model" in wanted:
                observer.stage("end to end")
                take(endtoend.measure_model(loaded, rounds))
            if "verify" in wanted:
                observer.stage("verification")
                take(endtoend.measure_verification(loaded, rounds))
    return Result(
        "bench",
        Verdict.RECORDED,
        "measured on this machine; read the ratios, not the times",
        facts=tuple(facts),
        counts=(("rounds", rounds),),
    )
