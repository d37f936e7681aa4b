"""Do two recordings answer the same question? Their model, profile and inputs, side by side."""

from __future__ import annotations

from collections.abc import Iterable

from repro_audit.manifest.types import Manifest
from repro_audit.trace.record import TensorDigest
from repro_audit.verdict import Finding

Findings = list[Finding]


def question_differences(a: Manifest, b: Manifest) -> tuple[Findings, Findings]:
    """What keeps two runs from being compared: wholly, and beyond the rows that both have.

    Returns:
        Findings that forbid a comparison, and findings that keep it from being complete.
    """
    fatal: Findings = []
    partial: Findings = []

    def differ(what: str, one: object, two: object, into: Findings) -> None:
        if one != two:
            into.append(Finding("RA307", f"the runs have another {what}: {one} and {two}", "structure"))

    differ("profile", _profile(a), _profile(b), fatal)
    differ("model configuration", a.model.config_digest, b.model.config_digest, fatal)
    shapes = [{t.name: (t.dtype, t.shape) for t in m.model.tensors} for m in (a, b)]
    for name in sorted(set(shapes[0]) | set(shapes[1])):
        if shapes[0].get(name) != shapes[1].get(name):
            fatal.append(
                Finding(
                    "RA307", f"the runs are of different models: {name} differs in name or shape", "structure"
                )
            )
            break
    differ("number of sequences", len(a.sequences), len(b.sequences), fatal)
    differ("sequence ids", [s.id for s in a.sequences], [s.id for s in b.sequences], partial)
    fatal += _inputs(a, b)
    one, two = a.settings.decoding, b.settings.decoding
    differ("number of new tokens", one.max_new_tokens, two.max_new_tokens, partial)
    differ("temperature", one.temperature, two.temperature, partial)
    differ("top-k", one.top_k, two.top_k, partial)
    differ("top-p", one.top_p, two.top_p, partial)
    differ("set of stop tokens", sorted(one.stop_token_ids), sorted(two.stop_token_ids), partial)
    if one.temperature or two.temperature:
        differ("seed", one.seed, two.seed, partial)
    differ("recording level", a.settings.level, b.settings.level, partial)
    return fatal, partial


def _profile(manifest: Manifest) -> str:
    settings = manifest.settings
    cast = ", weights cast" if settings.cast_weights else ""
    return f"{settings.profile} v{manifest.profile_version}, activations {settings.activations}{cast}"


def _inputs(a: Manifest, b: Manifest) -> Findings:
    if (a.privacy is None) != (b.privacy is None):
        return [
            Finding("RA307", "one run has private inputs, so its rows are hashed under another key", "inputs")
        ]
    if a.privacy is not None and b.privacy is not None and a.privacy.salt_digest != b.privacy.salt_digest:
        return [Finding("RA307", "the private inputs of the runs have different salts", "inputs")]
    for n, (one, two) in enumerate(zip(a.sequences, b.sequences, strict=False)):
        if one.prompt != two.prompt or one.prompt_count != two.prompt_count:
            return [Finding("RA307", f"the runs have another prompt in sequence {n}", "inputs", sequence=n)]
    return []


def weight_differences(a: Manifest, b: Manifest) -> tuple[Findings, set[str]]:
    """Tensors of the same name with other bits, one finding each, and every name that goes with them."""
    findings = _other_digests("RA301", "tensor", a.model.tensors, b.model.tensors, "weights")
    changed = {finding.details[0][1] for finding in findings}
    changed.update(
        name for group in a.model.tied if changed.intersection(group) for name in group if name not in changed
    )
    if a.model.tokenizer_digest != b.model.tokenizer_digest:
        findings.append(Finding("RA305", "the runs have different tokenizers; tokens are compared by number"))
    return findings, changed


def derived_differences(a: Manifest, b: Manifest) -> Findings:
    """Buffers, constants and scalars that differ: origins of their own."""
    findings = _other_digests("RA302", "buffer", a.model.buffers, b.model.buffers, "weights")
    findings += _other_digests("RA304", "constant", a.model.constants, b.model.constants, "scalar")
    one, two = set(a.model.scalars), set(b.model.scalars)
    for scalar in sorted(one ^ two, key=lambda s: (s.operator, s.argument, s.value)):
        side = "first" if scalar in one else "other"
        findings.append(
            Finding(
                "RA303",
                f"only the {side} run gave {scalar.operator} the {scalar.argument} {scalar.value}",
                "scalar",
            )
        )
    return findings


def _other_digests(
    code: str, what: str, a: Iterable[TensorDigest], b: Iterable[TensorDigest], kind: str
) -> Findings:
    one, two = ({tensor.name: tensor for tensor in side} for side in (a, b))
    return [
        Finding(code, f"the {what} {name} differs", kind, details=(("tensor", name),))
        for name in sorted(set(one) | set(two))
        if one.get(name) != two.get(name)
    ]
