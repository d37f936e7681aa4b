"""What every finding code means and what to do about it: ``repro-audit explain CODE``. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from repro_audit.verdict import Verdict


@dataclass(frozen=True)
class Explanation:
    """One finding code.

    Attributes:
        code: ``RA`` and three digits; the first digit is the stage that found it.
        title: a few words.
        meaning: what was found, and what it does and does not show.
        remedy: what to do next.
        verdict: what this finding makes of a verification; None if it decides nothing.
    """

    code: str
    title: str
    meaning: str
    remedy: str
    verdict: Verdict | None = None


def _table(*rows: tuple[str, str, str, str]) -> dict[str, Explanation]:
    return {row[0]: Explanation(*row, verdict=_VERDICTS.get(row[0])) for row in rows}


_VERDICTS = {
    **dict.fromkeys(("RA101", "RA102", "RA201", "RA202"), Verdict.UNTRUSTED),
    "RA104": Verdict.POLICY,
    **dict.fromkeys(("RA204", "RA205", "RA206"), Verdict.DIVERGED),
    **dict.fromkeys(("RA301", "RA302", "RA303", "RA304"), Verdict.DIVERGED),
    **dict.fromkeys(
        ("RA401", "RA402", "RA403", "RA404", "RA405", "RA406", "RA407", "RA408", "RA409", "RA410"),
        Verdict.DIVERGED,
    ),
    **dict.fromkeys(("RA307", "RA308", "RA501", "RA503", "RA504"), Verdict.INCONCLUSIVE),
}


#: Exit code, verdicts, meaning: what README shows and ``repro-audit explain 3`` prints.
EXIT_CODES = (
    (
        0,
        "RECORDED (run), VALID (check), IDENTICAL (diff), REPRODUCED (verify)",
        'success; only a rerun may say REPRODUCED, and nothing ever says "correct"',
    ),
    (1, "(crash)", "an unexpected exception; never chosen deliberately"),
    (
        2,
        "(usage)",
        "bad arguments or configuration; a path that is missing, unreadable or unwritable; disk full",
    ),
    (3, "DIVERGED", "comparable, and bits differ, or points are missing or extra"),
    (
        4,
        "UNTRUSTED",
        "signature missing, invalid or by no trusted key; malformed or contradictory manifest or trace",
    ),
    (
        5,
        "INCONCLUSIVE",
        "cannot be decided: operator, model, dtype or device outside the contract; not the model described; "
        "the known-answer test of this machine failed; out of memory",
    ),
    (6, "POLICY", "a condition of yours is not met (--challenge), whatever the bits say"),
    (130, "(interrupted)", "Ctrl-C"),
)

#: Every code of a finding. 0 refusals, 1 trust, 2 structure, 3 model and inputs, 4 rerun, 5 machine.
CODES = _table(
    (
        "RA000",
        "the command was refused",
        "Something made the question undecidable or the files unusable; the message names it.",
        "Do what the message says; nothing was compared.",
    ),
    (
        "RA101",
        "no signature by a trusted key",
        "The manifest is unsigned, or signed only by keys that were not passed as "
        "--trusted-key. Anyone can have "
        "written it. No model was loaded.",
        "Pass the recorder's public key as --trusted-key, or --insecure-allow-untrusted to "
        "compare the bits alone.",
    ),
    (
        "RA102",
        "invalid signature",
        "A signature in the envelope does not fit the payload: the payload or the signature was "
        "changed after "
        "signing. No flag overrides this.",
        "Ask the recorder for the original file.",
    ),
    (
        "RA103",
        "trust was waived",
        "--insecure-allow-untrusted was given: the bits were compared, but nobody vouches for "
        "who recorded them. "
        "No attestation or policy can rest on this result.",
        "Pass --trusted-key with the recorder's public key.",
    ),
    (
        "RA104",
        "the challenge is another one",
        "--challenge was given and the signed predicate holds another nonce, or none: this may "
        "be an old record, "
        "played again.",
        "Have the run repeated with run --challenge and the nonce you chose.",
    ),
    (
        "RA201",
        "malformed manifest",
        "The file is not an envelope, its statement does not conform to the schema, or it "
        "contradicts itself.",
        "Ask for the original file; repro-audit schema prints what is expected.",
    ),
    (
        "RA202",
        "the trace does not belong to this manifest",
        "The SHA-256 or the size of the trace file is not what the signed manifest states.",
        "Put the trace that was recorded with the manifest beside it, or leave it out: then "
        "only points are named.",
    ),
    (
        "RA203",
        "no trace file",
        "Without NAME.trace.safetensors only the points that differ can be named, not the "
        "tokens, and an origin "
        "cannot be told from an heir inside a point.",
        "Put the trace file beside the manifest and verify again.",
    ),
    (
        "RA204",
        "a required point is missing",
        "The verifier derives from the model which points a record of this level must hold. "
        "This one is absent, so "
        "the record cannot show that it was computed as specified.",
        "Have the run recorded again with an unmodified repro-audit of the same version.",
    ),
    (
        "RA205",
        "an extra point",
        "The record holds a point that a record of this level of this model does not have.",
        "Have the run recorded again with an unmodified repro-audit of the same version.",
    ),
    (
        "RA206",
        "a point has other rows than required",
        "The number of rows, their first position, type or shape is not what the model and the "
        "level require.",
        "Have the run recorded again with an unmodified repro-audit of the same version.",
    ),
    (
        "RA301",
        "a tensor differs",
        "The model given here has a tensor of this name and shape with other bits than the "
        "recorder's. It is an "
        "origin of its own; what follows from it is inherited.",
        "Fetch the revision that the manifest names, or accept that it is another model.",
    ),
    (
        "RA302",
        "a derived buffer differs",
        "A buffer that the model computes for itself (rotary frequencies, masks) has other bits here.",
        "Compare the model's configuration and the library versions under repro-audit show.",
    ),
    (
        "RA303",
        "a scalar differs",
        "An operator received another scalar (a scale, an epsilon) than the recorder's. Such "
        "scalars are computed "
        "in Python by the host's mathematics library.",
        "Compare the environments under repro-audit show; the difference lies outside the kernels.",
    ),
    (
        "RA304",
        "a constant differs",
        "A constant tensor that entered the computation has other bits here.",
        "Compare the environments under repro-audit show; the difference lies outside the kernels.",
    ),
    (
        "RA305",
        "the tokenizer differs",
        "The tokenizer's digest is not the recorded one. Tokens are compared by number, so the "
        "rerun is unaffected; "
        "the text may decode otherwise.",
        "Fetch the revision that the manifest names.",
    ),
    (
        "RA306",
        "the model's files differ",
        "Tensors and configuration are the recorded ones, but the files given here are not those under the "
        "recorded model root: another sharding, a file more or less. The rerun is unaffected; the root and "
        "the files' digests stay the recorder's word, and an attestation names the root of the files here.",
        "Fetch the revision that the manifest names, if the root matters to you.",
    ),
    (
        "RA307",
        "the runs do not answer the same question",
        "Profile, model, prompts, decoding settings or recording level of the compared runs differ, so "
        "equal bits would not show that the runs are equal.",
        "Record both runs with the same model, prompts and options; repro-audit show lists what each used.",
    ),
    (
        "RA308",
        "the decoding rules are not the model's",
        "The record names stop tokens, or sampling settings as the model's own, that the model given here "
        "does not have. The rows may agree, but an answer can end early at an invented stop token.",
        "Fetch the generation_config.json of the revision that was recorded; if you have it, distrust the "
        "record.",
    ),
    (
        "RA401",
        "origin: bits first differ here",
        "Everything this row consumed matches, its own bits do not: the computation itself "
        "differed here. Either "
        "the recorder did not compute what the profile specifies, or one of the two machines is at fault.",
        "Verify on a second machine; if it agrees with this one, the record is at fault.",
    ),
    (
        "RA402",
        "shown first here, from a tensor that differs",
        "This is where a changed tensor first moved a recorded bit.",
        "See the tensors under RA301.",
    ),
    (
        "RA403",
        "a recorded token is not what the sampler picks",
        "With the same logits row, decoding settings and seed, the specified sampler draws another token.",
        "The generated tokens were edited or drawn otherwise; do not rely on the text.",
    ),
    (
        "RA404",
        "the text is not what the tokens decode to",
        "The recorded text is not what this tokenizer makes of the recorded tokens.",
        "Rely on the tokens; the text was edited or decoded otherwise.",
    ),
    (
        "RA405",
        "a cache row was read back changed",
        "A key or value row differs between the time it was written and the end of the run: "
        "memory or code changed it.",
        "Suspect the memory of the machine that ran it; run doctor there and record again.",
    ),
    (
        "RA406",
        "a point differs",
        "Some row of this point differs. Without the trace it cannot be said which token, nor "
        "whether the difference "
        "began here or was inherited within the same layer.",
        "Put the trace file beside the manifest and verify again.",
    ),
    (
        "RA407",
        "generation should have ended or gone on",
        "The recorded number of tokens does not follow from the stop tokens and the maximum "
        "that were recorded.",
        "The output was cut or extended after the run; do not rely on it.",
    ),
    (
        "RA408",
        "repeated runs disagree",
        "run --repeat computed the same thing again on the same machine and got other bits.",
        "Run doctor; suspect the memory of this machine.",
    ),
    (
        "RA409",
        "the runs drew different tokens",
        "From here on the runs computed different things. Rows are compared up to this token; if none of "
        "them differs, the draw itself does.",
        "Look at the first row that differs before this token; if there is none, verify each run.",
    ),
    (
        "RA410",
        "the prompt's text does not come to its tokens",
        "The recorded prompt text, or what the recorder's chat template made of it, is not what this "
        "tokenizer turns into the recorded tokens: the answer was computed for another input than shown.",
        "Rely on the tokens. If RA305 is there as well, it may be the tokenizer that differs.",
    ),
    (
        "RA501",
        "known-answer test failed",
        "A kernel of this machine does not give the specified bits on known inputs, so nothing "
        "that it computes can "
        "decide about a record.",
        "Run repro-audit doctor; force another instruction set with REPRO_KERNELS_ISA, or use "
        "another machine.",
    ),
    (
        "RA503",
        "a cache row of this machine changed",
        "During the rerun a key or value row read back other than it was written: this "
        "machine's memory or code is "
        "at fault, so its rerun decides nothing.",
        "Run repro-audit doctor and suspect the memory of this machine.",
    ),
    (
        "RA504",
        "the rerun stopped",
        "With the model given here the computation leaves the contract (a NaN, an infinite score), so rows "
        "cannot be compared. What was found before, other weights above all, stands.",
        "Fetch the revision that the manifest names.",
    ),
    (
        "RA505",
        "compiled kernels differ",
        "The recorder lists other machine code for these kernels, although both machines are of one numerics "
        "class and compiled the same sources with the same Triton, for the same types, alignments and "
        "constants (or the CPU library was built by another C compiler). That decides nothing: the rows are "
        "compared in any case. It is what to look at first if bits differ.",
        "Compare compilers and drivers under repro-audit show.",
    ),
)
