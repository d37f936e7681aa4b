"""Run a model and leave the files of a record: what ``run`` and ``demo`` have in common."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.manifest.files import (
    INPUTS_SUFFIX,
    MANIFEST_SUFFIX,
    TRACE_SUFFIX,
    PendingFile,
    commit_together,
    require_writable,
)
from repro_audit.progress import Observer
from repro_audit.settings import Decoding, RunSettings

if TYPE_CHECKING:
    from repro_audit.manifest.keys import SigningKey
    from repro_audit.models.loaded import LoadedModel, Prompt
    from repro_audit.trace.record import RunRecord

DEFAULT_NEW_TOKENS = 32


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn, as asked for; None leaves it to the model's generation_config."""

    max_new_tokens: int = DEFAULT_NEW_TOKENS
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def resolve(self, model: LoadedModel) -> Decoding:
        """The decoding that will really happen.

        Raises:
            InconclusiveError: the generation_config asks for something that the sampler does not specify.
        """
        defaults = model.generation
        if self.temperature is None and self.top_k is None and self.top_p is None:
            if defaults.unsupported and self.max_new_tokens:
                name, value = defaults.unsupported[0]
                raise InconclusiveError(
                    f"the model's generation_config sets {name} = {value}, which the sampler "
                    "does not specify",
                    hint="pass --temperature to decode by your own arguments",
                )
            temperature, top_k, top_p = defaults.temperature, defaults.top_k, defaults.top_p
            source = "generation_config"
        else:
            temperature = 1.0 if self.temperature is None else self.temperature
            top_k, top_p, source = self.top_k or 0, 1.0 if self.top_p is None else self.top_p, "arguments"
        return Decoding(
            self.max_new_tokens, temperature, top_k, top_p, self.seed, defaults.eos_token_ids, source
        )


@dataclass(frozen=True)
class Plan:
    """A run as asked for. ``settings.decoding`` is replaced by what ``sampling`` resolves to.

    Attributes:
        model: MODEL as typed.
        prompts: one per sequence; empty for ``python:`` models, whose factory brings the inputs.
        chat: put each prompt through the model's chat template.
        stem: NAME, with its folder.
        key: to sign with, or None for an unsigned manifest.
        repeat: how often to compute the same thing.
    """

    model: str
    prompts: tuple[str, ...]
    sampling: Sampling
    settings: RunSettings
    stem: Path
    key: SigningKey | None = None
    chat: bool = False
    private: bool = False
    challenge: str | None = None
    repeat: int = 1
    force: bool = False
    online: bool = False
    revision: str | None = None

    def paths(self) -> tuple[Path, ...]:
        """Every file that the run will write, the manifest first."""
        suffixes = [MANIFEST_SUFFIX, TRACE_SUFFIX, *([INPUTS_SUFFIX] if self.private else [])]
        return tuple(self.stem.with_name(self.stem.name + suffix) for suffix in suffixes)

    def require_writable(self) -> None:
        """Refuse unwritable outputs before anything is loaded."""
        for path in self.paths():
            require_writable(path, overwrite=self.force)


@dataclass(frozen=True)
class Recorded:
    """What a run left behind.

    Attributes:
        manifest: its path; the other files lie beside it.
        record: the last run's rows and tokens.
        repeats: run roots (hex), one per repetition; equal unless the machine is at fault.
        decoding: as resolved.
    """

    manifest: Path
    record: RunRecord
    repeats: tuple[str, ...]
    decoding: Decoding
    model_name: str
    payload_sha256: str


def record(plan: Plan, observer: Observer) -> Recorded:
    """Load, compute, describe, sign, write. Files appear together, the manifest last, or not at all.

    Raises:
        UsageError: unusable arguments or outputs.
        InconclusiveError: something lies outside the contract.
    """
    from repro_audit import models
    from repro_audit.devices import resolve

    plan.require_writable()
    plan = replace(plan, settings=replace(plan.settings, device=resolve(plan.settings.device)))
    if plan.prompts:
        _check_prompts(plan)
    model = models.load(
        plan.model,
        revision=plan.revision,
        online=plan.online,
        cast_weights=plan.settings.cast_weights,
        observer=observer,
    )
    return record_loaded(plan, model, observer)


def record_loaded(plan: Plan, model: LoadedModel, observer: Observer) -> Recorded:
    """As :func:`record`, with a model that is loaded already."""
    from repro_audit import engine
    from repro_audit.manifest.build import new_run_id, utc_now
    from repro_audit.manifest.private import new_salt
    from repro_audit.models.python_factory import forward_of

    started, salt = utc_now(), new_salt() if plan.private else None
    settings = replace(plan.settings, decoding=plan.sampling.resolve(model))
    prompts = _encode(plan, model)
    if model.kind == "python":
        settings = replace(settings, decoding=replace(settings.decoding, max_new_tokens=0))
    runs, roots = [], []
    for _ in range(plan.repeat):
        requests = [engine.Request(index, prompt.token_ids) for index, prompt in enumerate(prompts)]
        with forward_of(model):
            done = engine.record(model, requests, settings, observer=observer, row_salt=salt)
        for sequence in done.sequences:
            if model.tokenizer is not None and sequence.generated:
                sequence.text = model.decode(sequence.generated)
        runs = [done]
        roots.append(_root(done))
    observer.stage("writing the record")
    payload = _write(
        plan,
        model,
        settings=settings,
        prompts=prompts,
        run=runs[-1],
        salt=salt,
        occasion=(new_run_id(), started, utc_now()),
    )
    return Recorded(
        plan.paths()[0],
        runs[-1],
        tuple(roots),
        settings.decoding,
        model.name,
        hashlib.sha256(payload).hexdigest(),
    )


def _check_prompts(plan: Plan) -> None:
    """Refuse prompts that do not fit, before the weights are read."""
    from repro_audit.models.preview import preview
    from repro_audit.models.quiet import quiet_transformers

    seen = preview(plan.model, revision=plan.revision)
    if seen is None or seen.tokenizer is None:
        return
    for index, text in enumerate(plan.prompts):
        with quiet_transformers():
            tokens = len(seen.tokenizer.encode(text, plan.chat).token_ids)
        _require_fits(tokens, index, plan, seen.context_length)


def _require_fits(tokens: int, index: int, plan: Plan, context: int | None) -> None:
    if context is not None and tokens + plan.sampling.max_new_tokens > context:
        raise UsageError(
            f"prompt {index} has {tokens} tokens; with {plan.sampling.max_new_tokens} new ones "
            "it exceeds the "
            f"model's context of {context}",
            hint="shorten the prompt or pass a smaller --max-new-tokens",
        )


def _encode(plan: Plan, model: LoadedModel) -> list[Prompt]:
    if model.kind == "python":
        if plan.prompts:
            raise UsageError("a python: model brings its own inputs", hint="leave --prompt out")
        return []
    if not plan.prompts:
        raise UsageError("no prompt", hint="pass --prompt TEXT or --prompts FILE")
    prompts = [model.encode(text, plan.chat) for text in plan.prompts]
    for index, prompt in enumerate(prompts):
        _require_fits(len(prompt.token_ids), index, plan, model.context_length)
    return prompts


def _root(run: RunRecord) -> str:
    from repro_audit.trace.digest import point_digest, run_root, sequence_root

    return run_root(
        [
            sequence_root(
                [
                    point_digest(point.name, rows.header, rows.first, rows.digests)
                    for point, rows in ((run.points[i], sequence.rows[i]) for i in range(len(run.points)))
                ]
            )
            for sequence in run.sequences
        ]
    ).hex()


def _write(
    plan: Plan,
    model: LoadedModel,
    *,
    settings: RunSettings,
    prompts: Sequence[Prompt],
    run: RunRecord,
    salt: bytes | None,
    occasion: tuple[str, str, str],
) -> bytes:
    from repro_audit.manifest.build import Occasion, build_manifest, describe_points, describe_sequences
    from repro_audit.manifest.dsse import seal
    from repro_audit.manifest.private import PrivateInputs, PrivateSequence
    from repro_audit.manifest.types import ChatClaim
    from repro_audit.trace.tracefile import write_trace
    from repro_audit.verify.environment import collect

    texts: list[str | None] = [prompt.text for prompt in prompts]
    top2 = salt is None and all(sequence.top2 is not None for sequence in run.sequences)
    private = None
    if salt is not None:
        private = PrivateInputs(
            salt,
            tuple(
                PrivateSequence(sequence.id, sequence.prompt, sequence.generated, text, sequence.text)
                for sequence, text in zip(run.sequences, texts or [None] * len(run.sequences), strict=True)
            ),
        )
    chat = None
    if plan.chat and prompts and private is None:
        # A rendered template holds the prompt.
        chat = ChatClaim(tuple(prompt.chat_template_text or "" for prompt in prompts), prompts[0].date)
    paths = plan.paths()
    with (
        PendingFile(paths[1], overwrite=plan.force) as trace,
        PendingFile(paths[0], overwrite=plan.force) as main,
    ):
        ref = write_trace(
            trace.write,
            run,
            describe_points(run),
            describe_sequences(run),
            top2=top2,
            values=settings.save_values,
        )
        payload = build_manifest(
            run,
            model,
            settings,
            ref,
            Occasion(*occasion, plan.challenge, collect(settings.device)),
            top2=top2,
            prompt_texts=texts,
            chat=chat,
            private=private,
        )
        main.write(seal(payload, plan.key))
        if private is None:
            commit_together([trace, main])
        else:
            with PendingFile(paths[2], overwrite=plan.force, mode=0o600) as inputs:
                inputs.write(private.to_bytes())
                commit_together([inputs, trace, main])
    return payload
