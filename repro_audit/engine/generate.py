"""Generation and teacher-forced replay: one loop, in which a replay knows all tokens beforehand.

A sequence of P prompt tokens and N drawn ones feeds P + N - 1 tokens (the last is never fed) and needs the
logits of positions P-1 .. P+N-2, the token drawn at position p + 1 coming from row p. With no tokens to draw
the prompt is scored: all P are fed and every row counts. The schedule (batch, chunks, steps) decides speed
and memory, never a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from repro_audit.engine import launched
from repro_audit.engine.cache import PositionCache
from repro_audit.engine.decode_graph import Decoder, device_of
from repro_audit.engine.refusals import check_length
from repro_audit.engine.score import score_module
from repro_audit.engine.sequences import Running, draw
from repro_audit.engine.session import STEP_LOGITS, STEP_ROWS, Session, session
from repro_audit.errors import UsageError
from repro_audit.progress import NullObserver, Observer
from repro_audit.trace.record import RunRecord, SequenceRecord
from repro_audit.trace.recorder import Recorder, Span

if TYPE_CHECKING:
    from repro_audit.models.loaded import LoadedModel
    from repro_audit.settings import Decoding, RunSettings


@dataclass(frozen=True)
class Request:
    """A prompt to run: the sequence's recorded id, and its token ids."""

    id: int
    prompt_ids: tuple[int, ...]


@dataclass(frozen=True)
class Replay:
    """A recorded sequence to run again, its generated tokens given."""

    id: int
    prompt: tuple[int, ...]
    generated: tuple[int, ...]


def record(
    model: LoadedModel,
    requests: Sequence[Request],
    settings: RunSettings,
    *,
    observer: Observer | None = None,
    row_salt: bytes | None = None,
    fuse: bool = True,
) -> RunRecord:
    """Run prompts and record points; a ``python`` model runs on its own inputs, whatever the requests.

    Args:
        model: loaded, in evaluation mode.
        requests: at least one, with distinct ids.
        settings: as resolved.
        observer: told of stages and tokens.
        row_salt: 32 secret bytes that key row digests, for private inputs.
        fuse: use fused kernels where they apply; the bits are the same without.

    Raises:
        UsageError: an empty or too long prompt, an unknown setting.
        InconclusiveError: something lies outside the profile, by name.
    """
    if model.kind == "python":
        return score_module(
            model, model.example_inputs or {}, settings, observer=observer, row_salt=row_salt, fuse=fuse
        )
    sequences = [
        Running(index, request.id, request.prompt_ids, list(request.prompt_ids), replayed=False)
        for index, request in enumerate(requests)
    ]
    return _run(
        model,
        sequences,
        settings,
        observer=observer or NullObserver(),
        salt=row_salt,
        fuse=fuse,
        stage="generate",
    )


def replay(
    model: LoadedModel,
    sequences: Sequence[Replay],
    settings: RunSettings,
    *,
    observer: Observer | None = None,
    row_salt: bytes | None = None,
    fuse: bool = True,
) -> RunRecord:
    """Run recorded sequences again, teacher-forced: one prefill, and what the sampler picks from each row.

    ``generated`` of the result holds the sampler's picks; a recorded token that differs was not drawn from
    these bits. Arguments and errors as in :func:`record`.
    """
    if model.kind == "python":
        return score_module(
            model, model.example_inputs or {}, settings, observer=observer, row_salt=row_salt, fuse=fuse
        )
    started = [
        Running(
            index, item.id, item.prompt, [*item.prompt, *item.generated[:-1]], replayed=bool(item.generated)
        )
        for index, item in enumerate(sequences)
    ]
    return _run(
        model,
        started,
        settings,
        observer=observer or NullObserver(),
        salt=row_salt,
        fuse=fuse,
        stage="replay",
    )


def _run(
    model: LoadedModel,
    sequences: list[Running],
    settings: RunSettings,
    *,
    observer: Observer,
    salt: bytes | None,
    fuse: bool,
    stage: str,
) -> RunRecord:
    decoding = settings.decoding
    _check(model, sequences, decoding)
    faults: list[str] = []
    steps = replayed = 0
    capturing = not settings.save_values
    launched.begin(settings.device)
    with session(model, settings, fuse=fuse) as opened:
        recorder = Recorder(opened.plan.points, len(sequences), salt, save_values=settings.save_values)
        opened.recorder = recorder
        total = sum(
            max(len(item.known), len(item.prompt) + decoding.max_new_tokens - 1) for item in sequences
        )
        observer.stage(stage, total)
        size = settings.batch_size if opened.packed else 1
        for begin in range(0, len(sequences), max(size, 1)):
            batch = sequences[begin : begin + max(size, 1)]
            capacity = max(len(item.prompt) + max(decoding.max_new_tokens, len(item.known)) for item in batch)
            cache = opened.cache(len(batch), capacity)
            decoder = Decoder(opened, cache, decoding, device_of(opened) if capturing else None)
            steps += _run_batch(opened, batch, settings, decoder, observer)
            capturing = capturing and not decoder.gave_up
            replayed += decoder.replayed
            faults += _cache_faults(opened, recorder, cache, batch)
            del cache, decoder  # Their memory is the next batch's.
        schedule = {"batch_size": size, "prefill_chunk": settings.prefill_chunk, "steps": steps}
        if opened.device != "cpu":
            schedule["replayed_steps"] = replayed
        return RunRecord(
            points=opened.plan.points,
            sequences=[
                SequenceRecord(
                    item.id,
                    item.prompt,
                    tuple(item.drawn),
                    recorder.rows(item.index),
                    np.concatenate(item.top2) if item.top2 else None,
                )
                for item in sequences
            ],
            scalars=opened.mode.scalars(),
            constants=opened.mode.constants(),
            buffers=opened.buffers,
            operators=opened.mode.operators(),
            modules=opened.modules(),
            attention="eager",
            cache_faults=tuple(faults),
            values=dict(recorder.values()),
            schedule=schedule,
            kernels=launched.kernels(settings.device),
        )


def _check(model: LoadedModel, sequences: Sequence[Running], decoding: Decoding) -> None:
    if not sequences:
        raise UsageError("there is no prompt to run", hint="give --prompt or --prompts")
    if len({item.id for item in sequences}) != len(sequences):
        raise UsageError("two sequences have the same id")
    for item in sequences:
        if not item.prompt:
            raise UsageError(
                f"the prompt of sequence {item.id} is empty", hint="a prompt has at least one token"
            )
        length = max(len(item.known), len(item.prompt) + decoding.max_new_tokens)
        if model.context_length is not None and length > model.context_length:
            raise UsageError(
                f"sequence {item.id} may reach {length} tokens, the context holds {model.context_length}",
                hint="shorten the prompt or --max-new-tokens",
            )
        check_length(model.module, length)


def _run_batch(
    opened: Session, batch: list[Running], settings: RunSettings, decoder: Decoder, observer: Observer
) -> int:
    """Feed every sequence to its end; returns the number of steps."""
    steps = 0
    while live := [item for item in batch if item.fed < len(item.known)]:
        if decoder.takes(live):
            steps += decoder.stretch(live, observer)
            continue
        tokens: list[int] = []
        spans: list[Span] = []
        keep: list[int] = []
        owners: list[Running] = []
        for item in live:
            first = item.first_logit(settings.decoding)
            count = _share(
                item, first, settings.prefill_chunk, STEP_ROWS - len(tokens), STEP_LOGITS - len(keep)
            )
            if count <= 0:
                continue
            begin = len(tokens)
            tokens += item.known[item.fed : item.fed + count]
            spans.append(Span(item.index, item.fed, begin, len(tokens)))
            for row in range(begin, len(tokens)):
                if item.fed + row - begin >= first:
                    keep.append(row)
                    owners.append(item)
            item.fed += count
        logits = opened.step(tokens, spans, keep, decoder.cache).cpu()
        steps += 1
        if keep:
            draw(logits, owners, settings.decoding)
        observer.advance(len(tokens))
    return steps


def _share(item: Running, first: int, chunk: int, rows: int, logits: int) -> int:
    """How many of its tokens a sequence feeds in the coming step."""
    count = min(len(item.known) - item.fed, rows, chunk or rows)
    wanted = item.fed + count - max(item.fed, first)
    return count - max(wanted - logits, 0) if wanted > 0 else count


def _cache_faults(
    opened: Session, recorder: Recorder, cache: PositionCache, batch: Sequence[Running]
) -> list[str]:
    """Hash the cache again: rows that are not what was written, as ``point name s{sequence} position``."""
    items = [
        (point, item.index, rows)
        for layer, indices in opened.kv_points.items()
        for item in batch
        for point, rows in zip(indices, cache.rows(layer, item.index, item.fed), strict=True)
    ]
    return [
        f"{opened.plan.points[point].name} s{sequence} {position}"
        for (point, sequence, _), positions in zip(items, recorder.changes(items), strict=True)
        for position in positions
    ]
