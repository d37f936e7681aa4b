"""``repro-audit bench``: speed against the alternatives, in one run on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from repro_audit.cli.app import Common, command, option
from repro_audit.cli.options import Device, Threads, known_device, resolve_device, set_threads
from repro_audit.cli.output import choice, stdout_console, write_text
from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.manifest.files import require_writable
from repro_audit.verdict import Result

if TYPE_CHECKING:
    from repro_audit.bench.plan import Plan
    from repro_audit.models.loaded import LoadedModel
    from repro_audit.progress import Observer

#: As :data:`repro_audit.bench.plan.AREAS`, which takes torch to import.
AREAS = ("gemm", "gemv", "skinny", "attention", "hash", "prefill", "decode", "record", "verify")
_DEMO = "demo:smollm2-135m"
_LARGE = "llama-3-8b"


@command("bench", output=False)
def bench(  # noqa: PLR0917  (the command line's own flags)
    common: Common,
    only: Annotated[str | None, option("--only", metavar="AREA,...", help=f"Of {', '.join(AREAS)}.")] = None,
    shape: Annotated[
        str | None,
        option("--shape", metavar="NAME", help="Model of a named shape, random weights."),
    ] = None,
    model: Annotated[str | None, option("--model", metavar="MODEL", help="A model instead.")] = None,
    device: Device = "auto",
    quick: Annotated[bool, option("--quick", help="Fewer rounds and tokens.")] = False,
    rounds: Annotated[
        int | None, option("--rounds", metavar="N", help="Timed rounds; medians are shown.", min=1)
    ] = None,
    budget: Annotated[
        float | None,
        option("--budget", metavar="SECONDS", help="What would begin later is left out, by name.", min=0),
    ] = None,
    output: Annotated[
        str | None, option("--output", "--json", "-o", metavar="FILE", help="Write the rows as JSON.")
    ] = None,
    threads: Threads = None,
) -> Result | None:
    """Measure speed against what people use, here; bits are checked before anything is timed."""
    areas = tuple(choice("area", area, AREAS) for area in only.split(",")) if only else AREAS
    if shape is not None and model is not None:
        raise UsageError("--shape and --model exclude each other", hint="leave one out")
    path = Path(output) if output else None
    if path is not None:
        require_writable(path, overwrite=common.outputs.force)
    known_device(device)
    from repro_audit.bench import plan as planning
    from repro_audit.bench import shapes

    if shape is not None:
        shapes.find(shape)
    resolved = resolve_device(device)
    set_threads(threads)
    if shape is None and model is None:
        shape, model = (None, _DEMO) if resolved == "cpu" else (_LARGE, None)
    wanted = planning.Plan(areas, resolved, shape, quick, rounds, budget)
    planning.require_memory(wanted)
    _measure(common, wanted, model, path)
    return None


def _measure(common: Common, plan: Plan, model: str | None, path: Path | None) -> None:
    """Run the plan and write what came of it.

    Raises:
        InconclusiveError: wrong bits, a failing kernel, or a figure above the roofline, in any row.
    """
    from repro_audit.bench import plan as planning
    from repro_audit.bench import report, roofline
    from repro_audit.verify import environment

    facts = _facts(plan, model, environment.collect(plan.device))
    peaks = roofline.of(plan.device)
    rows = []
    with common.observer() as observer:
        for row in planning.run(plan, lambda: _load(plan, model, observer), observer):
            rows.append(row)
            observer.note(report.line(row))
    settings = {
        "areas": list(plan.areas),
        "device": plan.device,
        "model": model or f"shape:{plan.shape}",
        "quick": plan.quick,
        "rounds": plan.rounds,
        "budget": plan.seconds,
    }
    text = report.dumps(report.document(rows, facts, peaks, settings))
    if path is not None:
        write_text(path, text, force=common.outputs.force)
    if common.outputs.format == "json":
        sys.stdout.write(text)
    else:
        report.write(rows, facts, peaks, stdout_console(common.outputs.color))
    for form, place in common.outputs.reports:
        rendered = text if form == "json" else report.render(rows, facts, peaks)
        write_text(place, rendered, force=common.outputs.force)
    refused = [row for row in rows if row.refused]
    if refused:
        first = refused[0]
        raise InconclusiveError(
            f"{len(refused)} row(s) have no figure, the first is {first.area}, {first.case}, {first.stack}: "
            f"{first.note}",
            hint="run repro-audit doctor; a figure above the roofline is a mistake of the measurement",
        )


def _load(plan: Plan, model: str | None, observer: Observer) -> LoadedModel:
    """The model, on the device."""
    from repro_audit import devices, models
    from repro_audit.bench import shapes

    if plan.shape is not None:
        return shapes.build(plan.shape, plan.device)
    loaded = models.load(str(model), observer=observer)
    devices.require_memory(plan.device, devices.weights_bytes(loaded.module), "weights")
    loaded.module.to(plan.device)
    return loaded


def _facts(plan: Plan, model: str | None, environment: dict[str, str]) -> dict[str, str]:
    """The machine, its software, the model and the threads."""
    import torch

    facts: dict[str, Any] = {**environment, "model": model or f"shape:{plan.shape}"}
    if plan.kind == "cpu":
        facts["threads"] = str(torch.get_num_threads())
    return facts
