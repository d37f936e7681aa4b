"""Rerun a recorded run and say whether the bits are the same, and where they first are not.

Order: envelope and trust, schema, trace hash, model identity, known-answer test of this machine, rerun,
required points, row digests, scalars, buffers and constants, tokens, text. Nothing is imported, downloaded or
loaded on behalf of a manifest that nobody trusted vouches for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.manifest.types import Manifest
from repro_audit.progress import Observer
from repro_audit.trace.record import Point, RunRecord
from repro_audit.verdict import Finding
from repro_audit.verify import identity
from repro_audit.verify.claim import Claim, Options, open_claim
from repro_audit.verify.compare import Comparison, compare_sequence, match_points, whole_points
from repro_audit.verify.judge import heat_map, origin_findings
from repro_audit.verify.origins import find_origins
from repro_audit.verify.outcome import Verification, conclude

if TYPE_CHECKING:
    from repro_audit.models.loaded import LoadedModel
    from repro_audit.models.tokenizer import Tokenizer

__all__ = ["Options", "Verification", "open_claim", "verify"]


def verify(options: Options, observer: Observer) -> Verification:
    """Rerun and compare.

    Raises:
        UntrustedError: before anything was loaded.
        InconclusiveError: not the model described, or something lies outside the contract.
        UsageError: a file or argument is unusable.
    """
    from repro_audit.models.loaded import DamagedWeightsError

    observer.stage("signature, schema, trace")
    claim = open_claim(options)
    # Only now: this imports torch.
    from repro_audit.devices import resolve

    options = replace(options, device=resolve(options.device))
    manifest = claim.manifest
    findings: list[Finding] = []
    if not claim.opened.signers:
        findings.append(Finding("RA103", "nobody trusted vouches for this manifest", "trust"))
    if options.challenge is not None and manifest.challenge != options.challenge:
        held = f"holds {manifest.challenge}" if manifest.challenge else "holds none"
        findings.append(
            Finding("RA104", f"the manifest {held}, not the challenge {options.challenge}", "trust")
        )

    try:
        model = identity.load(options.model, manifest, options.online, observer)
    except DamagedWeightsError as error:
        differing = identity.changed_tensors(error.tensors, manifest)
        if not differing:
            raise
        findings += [*differing.values(), _stopped(error)]
        return conclude(options, claim, None, findings, counts={}, maps=(), changed=True)
    weights, changed = identity.compare(model, manifest)
    findings += weights
    findings += identity.compare_decoding(model, manifest)

    from repro_audit.verify import known_answers

    observer.stage("known-answer test of this machine")
    failed = known_answers.failures(options.device)
    findings += [
        Finding("RA501", f"{name} gives wrong bits on this machine", "environment") for name in failed
    ]
    if failed:
        return conclude(options, claim, model, findings, counts={}, maps=(), changed=bool(changed))

    try:
        required, rerun = _rerun(options, claim, model, observer)
    except InconclusiveError as error:
        if not changed:
            raise
        # Other weights are a finding whatever they lead to.
        findings.append(_stopped(error))
        return conclude(options, claim, model, findings, counts={}, maps=(), changed=True)
    observer.stage("compare rows")
    if claim.trace is None:
        findings.append(Finding("RA203", "no trace file: points are named, tokens are not", "note"))
    structure, compared = _rows(claim, required, rerun)
    findings += structure
    derived, derived_changed = identity.compare_derived(manifest, rerun)
    findings += derived
    changed |= derived_changed
    counts = {"rows identical": 0, "origins": 0, "inherited": 0}
    maps = []
    table = required if claim.trace is not None else whole_points(required)
    for index, comparison in enumerate(compared):
        found = find_origins(table, comparison.differs)
        counts["rows identical"] += found.identical
        counts["origins"] += len(found.origins)
        counts["inherited"] += found.inherited
        findings += origin_findings(
            index, required, found, frozenset(changed), by_token=comparison.by_token,
            token_text=_token_text(claim, model, index),
            weight_text=_weight_text(model),
        )  # fmt: skip
        if found.origins:
            positions = manifest.sequences[index].positions
            maps.append((f"sequence {index}", heat_map(required, comparison, found, positions)))
    if claim.trace is None:
        counts = {f"points {name.removeprefix('rows ')}": count for name, count in counts.items()}
    findings += _tokens(claim, rerun) + _texts(claim, model) + _cache(manifest, rerun)
    return conclude(
        options,
        claim,
        model,
        findings,
        counts=counts,
        maps=maps,
        changed=bool(changed),
        machine_code=rerun.kernels,
    )


def _stopped(error: InconclusiveError) -> Finding:
    return Finding("RA504", f"the rerun with the model given here stopped: {error.message}", "environment")


def _rerun(
    options: Options, claim: Claim, model: LoadedModel, observer: Observer
) -> tuple[tuple[Point, ...], RunRecord]:
    """The verifier's own point table and one teacher-forced prefill per batch."""
    from repro_audit import engine
    from repro_audit.models.python_factory import forward_of

    manifest = claim.manifest
    settings = replace(
        manifest.settings,
        device=options.device,
        save_values=False,
        batch_size=options.batch_size or manifest.settings.batch_size,
        prefill_chunk=options.prefill_chunk or manifest.settings.prefill_chunk,
    )
    required = engine.required_points(model, settings.level)
    sequences = [
        engine.Replay(sequence.id, prompt, generated)
        for sequence, prompt, generated in zip(
            manifest.sequences, claim.prompts, claim.generated, strict=True
        )
    ]
    _require_tokens(model, claim)
    try:
        with forward_of(model):
            rerun = engine.replay(model, sequences, settings, observer=observer, row_salt=claim.salt)
    except UsageError as error:
        # What a user may not ask for, a manifest may not claim.
        raise InconclusiveError(f"the record cannot be rerun: {error.message}", hint=error.hint) from error
    if tuple(sequence.prompt for sequence in rerun.sequences) != claim.prompts:
        # Only a python: model brings inputs of its own.
        raise InconclusiveError(
            f"the inputs that {model.name} brings are not the recorded ones",
            hint="let the factory return the inputs of the recorded run",
        )
    return required, rerun


def _require_tokens(model: LoadedModel, claim: Claim) -> None:
    """Refuse token ids that the model does not have, before they index anything."""
    if model.kind == "python":
        return
    module: Any = model.module
    known = int(module.get_input_embeddings().weight.shape[0])
    for index, (prompt, generated) in enumerate(zip(claim.prompts, claim.generated, strict=True)):
        highest = max((*prompt, *generated), default=0)
        if highest >= known:
            raise InconclusiveError(
                f"sequence {index} holds the token {highest}, the model knows {known}",
                hint="pass --model with the model that repro-audit show names",
            )


def _rows(
    claim: Claim, required: Sequence[Point], rerun: RunRecord
) -> tuple[list[Finding], list[Comparison]]:
    manifest = claim.manifest
    matched, findings = match_points(required, manifest.points)
    compared = []
    for index, (sequence, mine) in enumerate(zip(manifest.sequences, rerun.sequences, strict=True)):
        trace = None if claim.trace is None else claim.trace[index]
        comparison = compare_sequence(
            index,
            required=required,
            matched=matched,
            recorded=manifest.points,
            claim=sequence,
            trace=trace,
            rerun=mine,
        )
        findings += comparison.findings
        compared.append(comparison)
    return findings, compared


def _tokens(claim: Claim, rerun: RunRecord) -> list[Finding]:
    """The first recorded token of each sequence that the sampler does not pick, and wrong ends."""
    findings = []
    decoding = claim.manifest.settings.decoding
    stops = set(decoding.stop_token_ids)
    for index, (recorded, mine) in enumerate(zip(claim.generated, rerun.sequences, strict=True)):
        whole = len(recorded) == decoding.max_new_tokens or (bool(recorded) and recorded[-1] in stops)
        if mine.prompt and (not whole or stops.intersection(recorded[:-1])):
            message = f"sequence {index} ends after {len(recorded)} tokens, where its own rules do not end it"
            findings.append(Finding("RA407", message, "tokens", sequence=index))
        for step, (claimed, picked) in enumerate(zip(recorded, mine.generated, strict=False)):
            if claimed != picked:
                position = len(claim.prompts[index]) + step
                message = f"token {position} of sequence {index} is recorded as {claimed}, "
                message += f"the sampler picks {picked}"
                findings.append(Finding("RA403", message, "tokens", sequence=index, position=position))
                break
    return findings


def _texts(claim: Claim, model: LoadedModel) -> list[Finding]:
    if model.tokenizer is None:
        return []
    rendered = claim.manifest.chat.rendered if claim.manifest.chat is not None else ()
    findings = [
        Finding(
            "RA410",
            f"the prompt text of sequence {index} does not come to its tokens",
            "tokens",
            sequence=index,
        )
        for index, (text, tokens) in enumerate(zip(claim.prompt_texts, claim.prompts, strict=True))
        if text is not None and not _comes_to(model.tokenizer, text, rendered[index : index + 1], tokens)
    ]
    return findings + [
        Finding(
            "RA404",
            f"the text of sequence {index} is not what its tokens decode to",
            "tokens",
            sequence=index,
        )
        for index, (text, tokens) in enumerate(zip(claim.texts, claim.generated, strict=True))
        if text is not None and model.decode(tokens) != text
    ]


def _comes_to(tokenizer: Tokenizer, text: str, rendered: tuple[str, ...], tokens: tuple[int, ...]) -> bool:
    """Whether a prompt, or what the recorder's chat template made of it, is these tokens."""
    if rendered and rendered[0]:
        return text in rendered[0] and tokenizer.encode_rendered(rendered[0]) == tokens
    try:
        return tokenizer.encode(text).token_ids == tokens
    except UsageError:
        return False


def _cache(manifest: Manifest, rerun: RunRecord) -> list[Finding]:
    recorded = [Finding("RA405", f"recorded: {fault}", "cache") for fault in manifest.cache_faults]
    return recorded + [
        Finding("RA503", f"in the rerun: {fault}", "environment") for fault in rerun.cache_faults
    ]


class _TokenText:
    """Position -> `` (' Paris')``, for messages."""

    def __init__(self, model: LoadedModel, tokens: tuple[int, ...]) -> None:
        self._model = model
        self._tokens = tokens

    def __call__(self, position: int) -> str:
        if self._model.tokenizer is None or position >= len(self._tokens):
            return ""
        return f" ({self._model.decode(self._tokens[position : position + 1])!a})"


def _weight_text(model: LoadedModel) -> Callable[[str], str]:
    """``model.layers.3.mlp.down_proj.weight (Linear)``: a parameter and the module that reads it."""
    modules = dict(model.module.named_modules())

    def describe(name: str) -> str:
        owner = modules.get(name.rpartition(".")[0])
        return name if owner is None else f"{name} ({type(owner).__name__})"

    return describe


def _token_text(claim: Claim, model: LoadedModel, index: int) -> _TokenText:
    return _TokenText(model, claim.prompts[index] + claim.generated[index])
