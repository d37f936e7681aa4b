"""A whole model: prefill, decode, what recording costs, and verification beside a plain prefill.

Every repetition has another prompt. Before anything is timed, what decoding recorded is replayed by one
prefill: every row of digests must be the same.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from repro_audit import engine
from repro_audit.bench import stacks
from repro_audit.bench.budget import Budget
from repro_audit.bench.roofline import Roofline, Work
from repro_audit.bench.rows import OURS, Row, compared, judged
from repro_audit.bench.timing import Measurement, wall
from repro_audit.errors import InconclusiveError
from repro_audit.models.loaded import LoadedModel
from repro_audit.progress import NullObserver
from repro_audit.settings import LEVELS, Decoding, RunSettings
from repro_audit.trace.record import RunRecord

CHUNK = 8
"""Tokens drawn between two looks at the clock."""
_CHECKED = 4 * CHUNK
_SAID = 120


@dataclass(frozen=True)
class Sizes:
    """Tokens: of a prefill; before decoding and drawn while timed; prompt and generation to verify."""

    prefill: int
    context: int
    drawn: int
    prompt: int
    generated: int

    def within(self, context_length: int | None) -> Sizes:
        """The same, as far as the model's context allows."""
        most = context_length or self.prefill + self.context + self.drawn + self.prompt + self.generated
        return Sizes(
            min(self.prefill, most - 1),
            min(self.context, most // 2),
            min(self.drawn, most // 4),
            min(self.prompt, most // 4),
            min(self.generated, most // 4),
        )


SIZES = {"cuda": Sizes(2048, 512, 96, 512, 512), "cpu": Sizes(512, 512, 32, 64, 128)}
QUICK = {"cuda": Sizes(2048, 512, 48, 512, 512), "cpu": Sizes(128, 64, 16, 32, 32)}


class Model:
    """A model under measurement.

    Args:
        loaded: on its device already, for a GPU.
        device: ``cpu`` or ``cuda:N``.
        sizes: of everything that is fed and drawn.
        rounds: timed repetitions.
    """

    def __init__(
        self, loaded: LoadedModel, device: str, sizes: Sizes, rounds: int, roofline: Roofline | None
    ) -> None:
        self.loaded, self.device, self.rounds, self._roofline = loaded, device, rounds, roofline
        self.sizes = sizes.within(loaded.context_length)
        self._right = False
        module = loaded.module
        self._vocabulary = int(module.config.vocab_size)  # type: ignore[union-attr, arg-type]
        linears = {id(m.weight): m.weight for m in module.modules() if isinstance(m, torch.nn.Linear)}
        self._weights = sum(w.numel() for w in linears.values())
        head = module.get_output_embeddings()  # type: ignore[operator]
        self._head = 0 if head is None else int(head.weight.numel())
        self.bytes = sum({id(p): p.nbytes for p in module.parameters()}.values())

    def areas(self) -> dict[str, Callable[[Budget], Iterator[Row]]]:
        """Area -> what measures it."""
        measures = (self.prefill, self.decode, self.record, self.verify)
        return {measure.__name__: self._checked(measure) for measure in measures}

    def _checked(self, measure: Callable[[Budget], Iterator[Row]]) -> Callable[[Budget], Iterator[Row]]:
        def checked(budget: Budget) -> Iterator[Row]:
            if not self._right:
                self.check()
                self._right = True
            yield from measure(budget)

        return checked

    def prefill(self, budget: Budget) -> Iterator[Row]:
        """The last token's logits of a long prompt: ours, then every stack."""
        length = self.sizes.prefill
        case = f"{length} tokens"
        work = Work(self.bytes, (self._weights - self._head) * length + self._head)
        prompts = [self._prompt(length, turn) for turn in range(self.rounds)]
        self._run(prompts[0], 1, "logits")
        peak = self._watch()
        taken = [self._seconds(lambda p=prompt: self._run(p, 1, "logits")) for prompt in prompts]  # type: ignore[misc]
        rows = [Row("prefill", case, OURS, Measurement.of(taken), work, peak_bytes=peak())]
        for stack in stacks.stacks(self.device):
            if stack.static:
                continue

            def timed(stack: stacks.Stack = stack) -> list[float]:
                stacks.prefill(self.loaded.module, self._tensor(prompts[0]))
                return [
                    self._seconds(lambda p=prompt: stacks.prefill(self.loaded.module, self._tensor(p)))  # type: ignore[misc]
                    for prompt in prompts
                ]

            rows.append(self._stack("prefill", case, stack, work, budget=budget, timed=timed))
        yield from compared([judged(row, self._roofline) for row in rows])

    def decode(self, budget: Budget) -> Iterator[Row]:
        """A token at batch 1 after a prompt: ours, then every stack."""
        sizes = self.sizes
        case = f"batch 1 after {sizes.context} tokens"
        work = Work(self._weights * self.bytes / max(1, self._parameters()), self._weights)
        prompt = self._prompt(sizes.context, 0)
        self._run(prompt, 2 * CHUNK, "logits")
        peak = self._watch()
        measured, record = self._decode(prompt, "logits")
        replayed = record.schedule.get("replayed_steps")
        note = "" if replayed is None else f"{replayed} of {record.schedule['steps']} steps from a graph"
        measured = replace(measured, graph=bool(replayed))
        rows = [Row("decode", case, OURS, measured, work, peak_bytes=peak(), note=note)]
        for stack in stacks.stacks(self.device):

            def timed(stack: stacks.Stack = stack) -> list[float]:
                decoder = stacks.Decoder(
                    self.loaded.module, self._tensor(prompt), sizes.drawn + CHUNK, static=stack.static
                )
                decoder.draw(CHUNK)
                chunks = range(max(1, sizes.drawn // CHUNK))
                return [self._seconds(lambda: decoder.draw(CHUNK)) / CHUNK for _ in chunks]

            rows.append(self._stack("decode", case, stack, work, budget=budget, timed=timed))
        yield from compared([judged(row, self._roofline) for row in rows])

    def record(self, budget: Budget) -> Iterator[Row]:
        """What recording layers and operators costs beside the logits alone: ratios to the first row."""
        length = self.sizes.prefill
        taken: dict[str, list[float]] = {level: [] for level in LEVELS}
        for level in LEVELS:
            self._run(self._prompt(length, 0), 1, level)
        for turn in range(self.rounds):
            for level in LEVELS:
                prompt = self._prompt(length, turn)
                taken[level].append(self._seconds(lambda p=prompt, how=level: self._run(p, 1, how)))  # type: ignore[misc]
        case = f"prefill, {length} tokens"
        yield from compared([_level(case, level, Measurement.of(found)) for level, found in taken.items()])
        case = f"decode, batch 1 after {self.sizes.context} tokens"
        if budget.spent():
            yield Row("record", case, OURS, note=budget.said)
            return
        prompt = self._prompt(self.sizes.context, 0)
        found = {level: self._decode(prompt, level)[0] for level in LEVELS}
        yield from compared([_level(case, level, measured) for level, measured in found.items()])

    def verify(self, budget: Budget) -> Iterator[Row]:
        """Verifying a generation, layers recorded, beside a plain prefill of that length."""
        sizes = self.sizes
        case = f"prompt {sizes.prompt} + generated {sizes.generated}"
        prompt = self._prompt(sizes.prompt, 0)
        started = time.perf_counter()
        record = self._run(prompt, sizes.generated, "layers")
        generating = time.perf_counter() - started
        drawn = record.sequences[0].generated
        fed = (*prompt, *drawn)[:-1]
        self._run(fed, 1, "logits")
        require_same(record, self._replay(prompt, drawn))
        verifying, plain = [], []
        for _ in range(self.rounds):
            plain.append(self._seconds(lambda: self._run(fed, 1, "logits")))
            verifying.append(self._seconds(lambda: self._replay(prompt, drawn)))
        checked, base = Measurement.of(verifying), Measurement.of(plain)
        note = f"{checked.median / base.median:.2f} of the plain prefill"
        yield from compared(
            [
                Row("verify", case, OURS, checked, note=note),
                Row("verify", case, f"plain prefill of {len(fed)}, ours", base),
                Row("verify", case, "generating them, ours", Measurement.of([generating])),
            ]
        )

    def check(self) -> None:
        """What decoding records, one prefill computes again, bit for bit.

        Raises:
            InconclusiveError: it does not.
        """
        prompt = self._prompt(min(self.sizes.context, 3 * CHUNK), 1)
        record = self._run(prompt, _CHECKED, "ops")
        replayed = self._replay(prompt, record.sequences[0].generated, "ops")
        require_same(record, replayed)

    def _parameters(self) -> int:
        return sum({id(p): p.numel() for p in self.loaded.module.parameters()}.values())

    def _prompt(self, length: int, turn: int) -> tuple[int, ...]:
        return tuple((7919 * (index + 1) + 104729 * turn) % self._vocabulary for index in range(length))

    def _tensor(self, prompt: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor([prompt], device=self.device)

    def _settings(self, drawn: int, level: str) -> RunSettings:
        return RunSettings(Decoding(drawn), level=level, device=self.device)

    def _run(
        self, prompt: tuple[int, ...], drawn: int, level: str, observer: NullObserver | None = None
    ) -> RunRecord:
        requests = [engine.Request(0, prompt)]
        return engine.record(self.loaded, requests, self._settings(drawn, level), observer=observer)

    def _replay(self, prompt: tuple[int, ...], drawn: tuple[int, ...], level: str = "layers") -> RunRecord:
        sequences = [engine.Replay(0, prompt, drawn)]
        return engine.replay(self.loaded, sequences, self._settings(len(drawn), level))

    def _decode(self, prompt: tuple[int, ...], level: str) -> tuple[Measurement, RunRecord]:
        """Seconds per token once decoding has settled, in chunks."""
        clock = _Clock()
        record = self._run(prompt, self.sizes.drawn + CHUNK, level, clock)
        looks = clock.times[CHUNK::CHUNK]
        return Measurement.of([(b - a) / CHUNK for a, b in pairwise(looks)]), record

    def _seconds(self, call: Callable[[], object]) -> float:
        return wall(call, self.device)

    def _watch(self) -> Callable[[], int | None]:
        """Begin to watch device memory; the function returned tells the most in use since."""
        gc.collect()
        if self.device == "cpu":
            return lambda: None
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        return lambda: torch.cuda.max_memory_allocated(self.device)

    def _stack(
        self,
        area: str,
        case: str,
        stack: stacks.Stack,
        work: Work,
        *,
        budget: Budget,
        timed: Callable[[], list[float]],
    ) -> Row:
        """One baseline's row, or why it was left out."""
        if budget.spent():
            return Row(area, case, stack.name, note=budget.said)
        peak = self._watch()
        needed, free = int(stack.extra * self.bytes), _free(self.device)
        if free is not None and needed > free:
            told = f"skipped: needs {needed / 2**30:.1f} GiB more, {free / 2**30:.1f} GiB are free"
            return Row(area, case, stack.name, note=told)
        try:
            with stacks.sdpa(self.loaded.module), stack.changed(self.loaded.module):
                measured = Measurement.of(timed(), graph=stack.static)
                most = peak()
        except RuntimeError as error:
            # A baseline that this model, device or library version does not support says nothing about ours.
            told = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return Row(area, case, stack.name, note=f"failed: {told[:_SAID]}")
        if most is not None:
            most -= int(stack.added * self.bytes)
        return Row(area, case, stack.name, measured, replace(work, unit=stack.unit), peak_bytes=most)


class _Clock(NullObserver):
    """When each step was done."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def advance(self, n: int = 1) -> None:
        """Look at the clock."""
        self.times.append(time.perf_counter())


def _level(case: str, level: str, measured: Measurement) -> Row:
    return Row("record", case, OURS if level == "logits" else f"--record {level}", measured)


def _free(device: str) -> int | None:
    """Bytes free on a GPU; None for the CPU, where nobody is asked."""
    return None if device == "cpu" else int(torch.cuda.mem_get_info(device)[0])


def require_same(a: RunRecord, b: RunRecord) -> None:
    """That two runs drew the same tokens and have the same digests.

    Raises:
        InconclusiveError: they differ.
    """
    for left, right in zip(a.sequences, b.sequences, strict=True):
        same = left.generated == right.generated and all(
            bool((left.rows[i].digests == right.rows[i].digests).all()) for i in left.rows
        )
        if not same:
            raise InconclusiveError(
                "two runs of the same thing have other bits", hint="run repro-audit doctor"
            )
