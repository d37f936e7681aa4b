"""What a benchmark consists of, in order, and its run: rows come as they are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from repro_kernels.errors import KernelError

from repro_audit.bench import attention, hashing, products, roofline, shapes
from repro_audit.bench.baselines import tf32
from repro_audit.bench.budget import Budget
from repro_audit.bench.rows import OURS, REFUSED, Row
from repro_audit.devices import failures_named
from repro_audit.errors import InconclusiveError
from repro_audit.models.loaded import LoadedModel
from repro_audit.progress import Observer

KERNELS = ("gemm", "gemv", "skinny", "attention", "hash")
WHOLE = ("prefill", "decode", "record", "verify")
AREAS = KERNELS + WHOLE
"""Everything that can be measured."""

_ROUNDS = {"quick": 5, "full": 16}
_MODEL_ROUNDS = {"quick": 2, "full": 3}
_KERNEL_BYTES = 3 << 30
"""Device memory of the largest product's input sets, in bf16 and fp32."""


@dataclass(frozen=True)
class Plan:
    """A benchmark.

    Attributes:
        areas: of :data:`AREAS`.
        device: ``cpu`` or ``cuda:N``, as resolved.
        shape: named shape of the model, or None.
        quick: fewer rounds and tokens.
        rounds: timed rounds, instead of the default.
        seconds: budget; None for none.
    """

    areas: tuple[str, ...]
    device: str
    shape: str | None = None
    quick: bool = False
    rounds: int | None = None
    seconds: float | None = None

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.device.partition(":")[0]

    def required(self) -> int:
        """Bytes that the device must have free."""
        kernels = _KERNEL_BYTES if set(self.areas) & set(KERNELS) else 0
        if self.shape is None or not set(self.areas) & set(WHOLE):
            return kernels
        # bf16 weights; a tenth for activations, cache and the pool of a graph.
        return max(kernels, int(2.2 * shapes.weights(shapes.find(self.shape))))


def require_memory(plan: Plan) -> None:
    """Say before the run that the GPU is too small.

    Raises:
        InconclusiveError: it is, with the numbers.
    """
    if plan.kind == "cpu":
        return
    import torch

    free, needed = torch.cuda.mem_get_info(plan.device)[0], plan.required()
    if needed > free:
        raise InconclusiveError(
            f"{plan.device} has {free / 2**30:.1f} GiB free, this benchmark needs {needed / 2**30:.1f}",
            hint="choose a smaller --shape, fewer areas with --only, or --device cpu",
        )


def run(plan: Plan, load: Callable[[], LoadedModel], observer: Observer) -> Iterator[Row]:
    """The rows, in the order of :data:`AREAS`.

    Args:
        plan: what to measure.
        load: the model, asked for when it is needed.
        observer: told of stages and cases.

    A case whose bits are wrong, or that fails, is one row that says so, without a figure.
    """
    budget, peaks = Budget(plan.seconds), roofline.of(plan.device)
    pace = "quick" if plan.quick else "full"
    with tf32(False):
        for area, case, measure in _kernels(plan, peaks, plan.rounds or _ROUNDS[pace]):
            yield from _held(plan.device, area, case, measure, budget=budget, observer=observer)
        wanted = [area for area in WHOLE if area in plan.areas]
        if not wanted:
            return
        if budget.spent():
            yield from (Row(area, "the model", OURS, note=budget.said) for area in wanted)
            return
        from repro_audit.bench import endtoend

        observer.stage("loading the model")
        sizes = (endtoend.QUICK if plan.quick else endtoend.SIZES)[plan.kind]
        rounds = plan.rounds or _MODEL_ROUNDS[pace]
        model = endtoend.Model(load(), plan.device, sizes, rounds, peaks)
        for area in wanted:
            measuring = model.areas()[area]
            whole = partial(measuring, budget)
            yield from _held(plan.device, area, model.loaded.name, whole, budget=budget, observer=observer)


def _held(
    device: str,
    area: str,
    case: str,
    measure: Callable[[], Iterator[Row]],
    *,
    budget: Budget,
    observer: Observer,
) -> Iterator[Row]:
    if budget.spent():
        yield Row(area, case, OURS, note=budget.said)
        return
    observer.stage(f"{area}: {case}")
    try:
        with failures_named(device):
            yield from measure()
    except InconclusiveError as error:
        yield Row(area, case, OURS, note=f"{REFUSED}: {error.message}")
    except KernelError as error:
        yield Row(area, case, OURS, note=f"{REFUSED}: {error}")


def _kernels(
    plan: Plan, peaks: roofline.Roofline | None, rounds: int
) -> Iterator[tuple[str, str, Callable[[], Iterator[Row]]]]:
    """Area, case and what measures it."""
    for area, known in products.SHAPES[plan.kind].items():
        for m, n, k in known if area in plan.areas else ():

            def product(area: str = area, shape: tuple[int, int, int] = (m, n, k)) -> Iterator[Row]:
                return products.measure(area, shape, plan.device, peaks, rounds)

            yield area, f"{m} x {n} x {k}", product
    for case in attention.CASES[plan.kind] if "attention" in plan.areas else ():

        def attend(case: tuple[str, int, int] = case) -> Iterator[Row]:
            return attention.measure(case, plan.device, peaks, rounds)

        yield "attention", case[0], attend
    if "hash" in plan.areas:
        yield "hash", hashing.CASE, lambda: hashing.measure(plan.device, peaks, rounds)
