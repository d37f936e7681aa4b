"""``repro-audit demo``: run, sign, verify, tamper, localise, on a real model: no network, no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from repro_audit.cli.app import Common, command, option
from repro_audit.cli.options import Threads, set_threads
from repro_audit.cli.output import stdout_console
from repro_audit.cli.recording import Plan, Sampling, record
from repro_audit.errors import UsageError
from repro_audit.settings import Decoding, RunSettings
from repro_audit.verdict import Result, Verdict

MODEL = "demo:smollm2-135m"
PROMPT = "The capital of France is"
NEW_TOKENS = 16
FOLDER = "repro-audit-demo"
NAME = "smollm2"
#: What is damaged: a matrix in the middle of the model.
TENSOR = "model.layers.12.mlp.down_proj.weight"


@command("demo", output=False)
def demo(
    common: Common,
    folder_name: Annotated[
        str, option("--output", "-o", metavar="FOLDER", help="Where the files are left.")
    ] = FOLDER,
    threads: Threads = None,
) -> Result | None:
    """Run, sign and verify SmolLM2-135M, flip one bit of one weight of a copy, and see it caught."""
    folder = Path(folder_name)
    if not folder.parent.is_dir():
        raise UsageError(f"the folder of {folder} does not exist", hint="create it or name another with -o")
    if folder.exists() and not common.outputs.force:
        raise UsageError(f"the folder {folder} exists", hint="pass --force to use it again, or -o FOLDER")
    set_threads(threads)
    folder.mkdir(parents=True, exist_ok=True)
    return _play(common, folder)


def _play(common: Common, folder: Path) -> Result:
    import shutil

    from repro_audit.manifest import keys
    from repro_audit.models.tamper import tampered_copy
    from repro_audit.verify.claim import Options
    from repro_audit.verify.verify import verify

    key, copy = folder / "key.pem", folder / "tampered"
    for path in (key, key.with_name("key.pem.pub")):
        path.unlink(missing_ok=True)
    shutil.rmtree(copy, ignore_errors=True)
    tell = _Narrator(common)
    tell.step(
        1,
        f'run {MODEL} --prompt "{PROMPT}" --max-new-tokens {NEW_TOKENS} --record ops --key key.pem -o {NAME}',
    )
    keys.generate(key)
    signer = keys.load_private(str(key))
    plan = Plan(
        MODEL,
        (PROMPT,),
        Sampling(NEW_TOKENS, temperature=0.0),
        RunSettings(Decoding(NEW_TOKENS), level="ops"),
        folder / NAME,
        key=signer,
        force=True,
    )
    with common.observer() as observer:
        done = record(plan, observer)
    sequence = done.record.sequences[0]
    rows = sum(entry.digests.shape[0] for entry in sequence.rows.values())
    fed = len(sequence.prompt) + NEW_TOKENS - 1
    tell.say(f"The model wrote: {PROMPT}{sequence.text}")
    tell.say(
        f"Recorded and signed: {len(done.record.points)} points x {fed} tokens, {rows:,} rows of digests."
    )

    tell.step(2, f"verify {NAME}.manifest.json --trusted-key key.pem.pub")
    with common.observer() as observer:
        honest = verify(Options(done.manifest, MODEL, (signer.public,)), observer).result
    tell.result(honest)

    damage = tampered_copy(MODEL, copy, tensor=TENSOR)
    flip = f"bit {damage.bit} of byte {damage.offset:,} of {damage.file}: {damage.tensor}[{damage.element}] "
    flip += f"{damage.before:.6g} -> {damage.after:.6g}"
    tell.say("")
    tell.say(f"Now a copy of the model with one bit flipped, {flip}.")
    tell.step(3, f"verify {NAME}.manifest.json --model tampered/{damage.file} --trusted-key key.pem.pub")
    with common.observer() as observer:
        caught = verify(Options(done.manifest, str(damage.path), (signer.public,)), observer).result
    tell.result(caught)
    return _conclude(folder, honest, caught, flip)


class _Narrator:
    """Tells the story on stdout, or keeps quiet where a machine reads it."""

    def __init__(self, common: Common) -> None:
        self._console = None if common.outputs.format != "table" else stdout_console(common.outputs.color)

    def step(self, number: int, command_line: str) -> None:
        """A step begins: the command that does the same."""
        if self._console is not None:
            self._console.print()
            self._console.rule(f"step {number} of 3", style="dim")
            self._console.print(f"$ repro-audit {command_line}\n", markup=False, soft_wrap=True, style="bold")

    def say(self, text: str) -> None:
        """A line of the story."""
        if self._console is not None:
            self._console.print(text, markup=False, soft_wrap=True)

    def result(self, result: Result) -> None:
        """A result as ``verify`` shows it."""
        if self._console is not None:
            from repro_audit.report import console

            console.write(result, self._console)


def _conclude(folder: Path, honest: Result, caught: Result, flip: str) -> Result:
    """Did everything go as it must?"""
    from repro_audit.verify.judge import layer_label

    weights = [finding for finding in caught.findings if finding.code == "RA301"]
    shown = [finding for finding in caught.findings if finding.code == "RA402"]
    good = (
        honest.verdict is Verdict.REPRODUCED
        and caught.verdict is Verdict.DIVERGED
        and len(weights) == 1
        and shown
    )
    facts = [
        ("honest model", honest.verdict.value),
        ("tampered copy", caught.verdict.value),
        ("damage", flip),
    ]
    if shown:
        first = shown[0]
        facts.append(("shows first", f"{layer_label(first.point or '')}, point {first.point}"))
        facts.append(("operator", dict(first.details)["reads"]))
        facts.append(("at token", first.message.partition(" at token ")[2].partition(" of sequence")[0]))
    facts.append(("files", f"{folder} (record, trace, key pair, the tampered copy)"))
    manifest = folder / f"{NAME}.manifest.json"
    if not good:
        return Result(
            "demo",
            Verdict.INCONCLUSIVE,
            "the demo did not go as it must; please report it",
            honest.findings + caught.findings,
            tuple(facts),
            next_command="repro-audit doctor",
        )
    return Result(
        "demo",
        Verdict.REPRODUCED,
        "the honest model reproduced every bit; one flipped bit in the copy was caught and located",
        facts=tuple(facts),
        next_command=f"repro-audit show {manifest}",
    )
