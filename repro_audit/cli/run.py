"""``repro-audit run``: compute under a profile, record every point, sign."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from repro_audit.cli.app import Common, command, flag_only, option
from repro_audit.cli.options import (
    LARGEST,
    Challenge,
    Device,
    Key,
    ModelArgument,
    Online,
    Passphrase,
    Threads,
    known_device,
    read_prompts,
    resolve_profile,
    set_threads,
    signing_key,
)
from repro_audit.cli.output import choice
from repro_audit.cli.recording import DEFAULT_NEW_TOKENS, Plan, Recorded, Sampling, record
from repro_audit.errors import UsageError
from repro_audit.settings import ACTIVATIONS, LEVELS, Decoding, RunSettings
from repro_audit.verdict import Finding, Result, Verdict


@command("run", dry_run=True, output=False)
def run(  # noqa: PLR0917  (the command line's own flags)
    common: Common,
    model: ModelArgument,
    prompt: Annotated[str | None, option("--prompt", metavar="TEXT", help="One prompt.")] = None,
    prompts: Annotated[str | None, option("--prompts", metavar="FILE|-", help="One prompt a line.")] = None,
    chat: Annotated[bool, option("--chat", help="Put prompts through the model's chat template.")] = False,
    max_new_tokens: Annotated[
        int,
        option(
            "--max-new-tokens",
            metavar="N",
            help="Most tokens drawn; 0 scores the prompt.",
            min=0,
            max=LARGEST,
        ),
    ] = DEFAULT_NEW_TOKENS,
    temperature: Annotated[
        float | None,
        option("--temperature", metavar="T", help="0 is greedy; default: the generation_config's."),
    ] = None,
    top_k: Annotated[
        int | None, option("--top-k", metavar="K", help="Keep K logits; 0 keeps all.", min=0, max=LARGEST)
    ] = None,
    top_p: Annotated[
        float | None, option("--top-p", metavar="P", help="Nucleus mass, above 0 up to 1.")
    ] = None,
    seed: Annotated[int, option("--seed", metavar="S", help="64-bit seed of the sampler.")] = 0,
    profile: Annotated[str, option("--profile", help="fp32.")] = "fp32",
    device: Device = "auto",
    activations: Annotated[
        str, option("--activations", help="fp32|bf16|fp16; part of what is recorded.")
    ] = "fp32",
    record_level: Annotated[str, option("--record", metavar="LEVEL", help="logits|layers|ops.")] = "layers",
    save_values: Annotated[
        bool, option("--save-values", help="Keep the values too, not only digests.")
    ] = False,
    repeat: Annotated[
        int, option("--repeat", metavar="N", help="Compute N times; all must agree.", min=1)
    ] = 1,
    private_inputs: Annotated[
        bool, option("--private-inputs", help="Tokens and text go to NAME.inputs.json.")
    ] = False,
    challenge: Challenge = None,
    key: Key = None,
    passphrase_file: Passphrase = None,
    unsigned: Annotated[bool, flag_only("--unsigned", help="Leave the manifest unsigned.")] = False,
    output_name: Annotated[
        str | None,
        option("--output", "-o", metavar="NAME", help="Writes NAME.manifest.json and the trace beside it."),
    ] = None,
    batch_size: Annotated[
        int, option("--batch-size", help="Sequences at once; never changes a bit.", min=1, max=LARGEST)
    ] = 8,
    prefill_chunk: Annotated[
        int, option("--prefill-chunk", help="Tokens at once; never changes a bit.", min=0, max=LARGEST)
    ] = 0,
    cast_weights: Annotated[
        bool, option("--cast-weights", help="Allow transformers' lossy weight casts.")
    ] = False,
    revision: Annotated[
        str | None, option("--revision", help="Hub revision; or write org/name@revision.")
    ] = None,
    online: Online = False,
    threads: Threads = None,
) -> Result | None:
    """Run a model, record every point of the computation and sign the record."""
    from repro_audit.manifest.private import parse_challenge
    from repro_audit.models.spec import PYTHON, parse_spec

    resolved = RunSettings(
        decoding=Decoding(max_new_tokens),
        profile=resolve_profile(profile),
        activations=choice("activation type", activations, ACTIVATIONS),
        level=choice("record level", record_level, LEVELS),
        device=known_device(device),
        cast_weights=cast_weights,
        batch_size=batch_size,
        prefill_chunk=prefill_chunk,
        save_values=save_values,
    )
    if temperature is not None and not 0 <= temperature < float("inf"):
        raise UsageError(f"--temperature {temperature} is not a finite number from 0", hint="0 is greedy")
    if top_p is not None and not 0 < top_p <= 1:
        raise UsageError(f"--top-p {top_p} is not above 0 and at most 1", hint="1 keeps every token")
    if not 0 <= seed < 2**64:
        raise UsageError(f"--seed {seed} is not a 64-bit number", hint="choose one from 0 to 2^64 - 1")
    if (key is None) != unsigned:
        raise UsageError(
            "give --key FILE to sign the record, or --unsigned"
            if key is None
            else "--key and --unsigned exclude",
            hint="repro-audit keygen makes a key" if key is None else "leave one out",
        )
    spec = parse_spec(model, revision)
    if spec.kind == PYTHON:
        texts: list[str] = []
        if prompt is not None or prompts is not None:
            raise UsageError("a python: model brings its own inputs", hint="leave --prompt and --prompts out")
    else:
        texts = read_prompts(prompt, prompts)
    plan = Plan(
        model=model,
        prompts=tuple(texts),
        sampling=Sampling(max_new_tokens, temperature, top_k, top_p, seed),
        settings=resolved,
        stem=Path(output_name if output_name is not None else _slug(spec.name)),
        key=signing_key(key, passphrase_file, common) if key is not None else None,
        chat=chat,
        private=private_inputs,
        challenge=parse_challenge(challenge) if challenge else None,
        repeat=repeat,
        force=common.outputs.force,
        online=online,
        revision=revision,
    )
    if not plan.stem.name:
        raise UsageError(f"-o {output_name!r} names no file", hint="give a NAME; suffixes are added to it")
    plan.require_writable()
    if common.dry_run:
        return _planned(plan)
    set_threads(threads)
    with common.observer() as observer:
        done = record(plan, observer)
    return _result(plan, done)


def _slug(name: str) -> str:
    """A file name from a model's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name.removeprefix("demo:").split("/")[-1]).strip("-.") or "run"


def _planned(plan: Plan) -> Result:
    return Result(
        "run",
        Verdict.RECORDED,
        "nothing was run: --dry-run",
        facts=(
            ("model", plan.model),
            ("prompts", str(len(plan.prompts))),
            ("profile", f"{plan.settings.profile}, activations {plan.settings.activations}"),
            ("record", plan.settings.level),
            ("would write", ", ".join(path.name for path in plan.paths())),
            ("signed", "yes" if plan.key is not None else "no"),
        ),
        next_command="the same command without --dry-run",
    )


def _result(plan: Plan, done: Recorded) -> Result:
    record, agree = done.record, len(set(done.repeats)) == 1
    prompt = sum(len(sequence.prompt) for sequence in record.sequences)
    drawn = sum(len(sequence.generated) for sequence in record.sequences)
    decoding = done.decoding
    how = "greedy" if decoding.temperature == 0 else (
        f"temperature {decoding.temperature}, top-k {decoding.top_k}, top-p {decoding.top_p}, "
        f"seed {decoding.seed}"
    )  # fmt: skip
    findings = [
        Finding(
            "RA408",
            f"repetition {index} gives the run root {root}, the first gave {done.repeats[0]}",
            "origin",
        )
        for index, root in enumerate(done.repeats)
        if root != done.repeats[0]
    ]
    findings += [Finding("RA405", fault, "cache") for fault in record.cache_faults]
    good = agree and not record.cache_faults
    texts = [
        f"{i}: {sequence.text}" for i, sequence in enumerate(record.sequences) if sequence.text is not None
    ]
    facts = [
        ("model", done.model_name),
        ("profile", f"{plan.settings.profile}, activations {plan.settings.activations}"),
        ("record", f"{plan.settings.level}, {len(record.points)} points"),
        ("tokens", f"{len(record.sequences)} sequence(s), {prompt} prompt + {drawn} generated"),
        ("decoding", f"{how} (from {decoding.source})"),
        ("run root", done.repeats[0]),
        ("files", ", ".join(str(path) for path in plan.paths())),
        ("signed by", plan.key.public.name if plan.key is not None else "nobody"),
    ]
    if not plan.private:
        facts += [("text", text) for text in texts[:4]]
    pub = "--trusted-key PUB" if plan.key is not None else "--insecure-allow-untrusted"
    return Result(
        "run",
        Verdict.RECORDED if good else Verdict.DIVERGED,
        f"{plan.paths()[0]}"
        if good
        else "this machine does not agree with itself; the record is kept as evidence",
        tuple(findings),
        tuple(facts),
        (("points", len(record.points)), ("operators", len(record.operators)), ("tokens", prompt + drawn)),
        next_command=f"repro-audit verify {plan.paths()[0]} --model {plan.model} {pub}",
    )
