"""Is this the model described? Names, shapes and configuration first, then every tensor's digest.

Models are never matched by name: a name only says where to look for the packaged demo or a local hub-cache
revision, and the digests decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.manifest.types import Manifest
from repro_audit.progress import Observer
from repro_audit.trace.record import RunRecord, TensorDigest
from repro_audit.verdict import Finding

if TYPE_CHECKING:
    from repro_audit.models.loaded import LoadedModel

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def load(model: str | None, manifest: Manifest, online: bool, observer: Observer) -> LoadedModel:
    """Load the model that the command line names, or the only ones that may be used without one.

    Args:
        model: MODEL as typed, or None.
        manifest: trusted, or trust was waived.
        online: may download what ``model`` names; never what a manifest names.
        observer: told about progress.

    Raises:
        UsageError: no model was named, and the record is of none that may be found without.
    """
    from repro_audit.models import loader
    from repro_audit.models import spec as kinds

    claim = manifest.model
    if model is not None:
        spec = kinds.parse_spec(model)
    elif claim.name.removeprefix("demo:") in kinds.DEMOS and claim.name.startswith("demo:"):
        spec, online = kinds.parse_spec(claim.name), False
    elif (
        claim.kind == "hf"
        and claim.revision is not None
        and _COMMIT.fullmatch(claim.revision)
        and _HUB_ID.fullmatch(claim.name)
    ):
        spec, online = kinds.ModelSpec(kinds.HUB, claim.name, revision=claim.revision), False
    else:
        raise UsageError(
            f"the manifest is of {claim.name!a} and no model was named",
            hint="pass --model with the place where you have it",
        )
    cast = manifest.settings.cast_weights
    return loader.load_spec(spec, online=online, cast_weights=cast, observer=observer)


def compare(model: LoadedModel, manifest: Manifest) -> tuple[list[Finding], set[str]]:
    """Tensors, files and tokenizer of the given model against the recorded ones.

    Files may differ without a word about the bits: a README, another sharding, a copy without some of them.
    But the recorded root is of files that this machine did not see, and nobody should think that it did.

    Returns:
        Findings, and the names (aliases of tied tensors included) of tensors that differ.

    Raises:
        InconclusiveError: another kind of model or configuration, or other tensor names, types or shapes.
    """
    claim = manifest.model
    differing = changed_tensors(model.tensors, manifest)
    findings, changed = list(differing.values()), set(differing)
    if model.kind != claim.kind:
        raise _other_model(f"it is of kind {model.kind}, recorded is {claim.kind}")
    if model.config_digest != claim.config_digest:
        raise _other_model("its configuration is another one")
    if set(map(frozenset, model.tied)) != set(map(frozenset, claim.tied)):
        raise _other_model("other tensors are tied")
    if claim.tokenizer_digest and model.tokenizer_digest != claim.tokenizer_digest:
        findings.append(Finding("RA305", "the tokenizer given here is another one", "note"))
    if model.root != claim.root and not changed:
        files = {file.name: file.sha256 for file in model.files}
        listed = {file.name: file.sha256 for file in claim.files}
        other = sorted(name for name in files.keys() | listed.keys() if files.get(name) != listed.get(name))
        message = f"the record's model root is of other files than those given here: {', '.join(other[:4])}"
        findings.append(Finding("RA306", message + _more(other[3:]), "note"))
    for group in claim.tied:
        if changed.intersection(group):
            changed.update(group)
    return findings, changed


def compare_decoding(model: LoadedModel, manifest: Manifest) -> list[Finding]:
    """Stop tokens, and settings that the record says are the model's own, against the model given here.

    No argument of ``run`` sets stop tokens: one that the model does not have would let an answer be cut short
    where it pleases.
    """
    decoding, own = manifest.settings.decoding, model.generation
    pairs: list[tuple[str, object, object]] = [
        ("stop tokens", list(decoding.stop_token_ids), list(own.eos_token_ids))
    ]
    if decoding.source == "generation_config":
        pairs += [
            ("temperature", decoding.temperature, own.temperature),
            ("top-k", decoding.top_k, own.top_k),
            ("top-p", decoding.top_p, own.top_p),
        ]
    return [
        Finding(
            "RA308", f"the record says that the model's {what} are {theirs}; here they are {mine}", "inputs"
        )
        for what, theirs, mine in pairs
        if theirs != mine
    ]


def changed_tensors(given: Iterable[TensorDigest], manifest: Manifest) -> dict[str, Finding]:
    """Tensor name -> finding, for every recorded tensor that has other bits here.

    Raises:
        InconclusiveError: other tensor names, types or shapes.
    """
    recorded = {tensor.name: tensor for tensor in manifest.model.tensors}
    here = {tensor.name: tensor for tensor in given}
    _require_same_shape(recorded, here)
    return {
        name: Finding("RA301", f"{name} ({tensor.dtype} {list(tensor.shape)}) has other bits", "weights")
        for name, tensor in recorded.items()
        if here[name].digest != tensor.digest
    }


def compare_derived(manifest: Manifest, rerun: RunRecord) -> tuple[list[Finding], set[str]]:
    """Buffers, constants and scalars of the rerun against the recorded ones.

    Returns:
        Findings, and the names of buffers and constants that differ.
    """
    findings: list[Finding] = []
    changed: set[str] = set()
    for code, what, theirs, mine in (
        ("RA302", "buffer", manifest.model.buffers, rerun.buffers),
        ("RA304", "constant", manifest.model.constants, rerun.constants),
    ):
        for name in _unequal(theirs, mine):
            changed.add(name)
            findings.append(
                Finding(code, f"{what} {name} differs between the record and the rerun", "scalar")
            )
    recorded, found = set(manifest.model.scalars), set(rerun.scalars)
    sides = ((recorded - found, "only in the record"), (found - recorded, "only in the rerun"))
    for scalars, where in sides:
        for scalar in sorted(scalars, key=lambda item: (item.operator, item.argument, item.value)):
            findings.append(
                Finding(
                    "RA303",
                    f"{scalar.operator} received {scalar.argument} = {scalar.value} {where}",
                    "scalar",
                )
            )
    return findings, changed


def _unequal(theirs: Iterable[TensorDigest], mine: Iterable[TensorDigest]) -> list[str]:
    left = {tensor.name: tensor for tensor in theirs}
    right = {tensor.name: tensor for tensor in mine}
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))


def _require_same_shape(recorded: dict[str, TensorDigest], given: dict[str, TensorDigest]) -> None:
    missing, extra = sorted(recorded.keys() - given.keys()), sorted(given.keys() - recorded.keys())
    if missing:
        raise _other_model(f"it lacks {missing[0]}{_more(missing)}")
    if extra:
        raise _other_model(f"it has {extra[0]}{_more(extra)}, which the record does not have")
    for name, tensor in recorded.items():
        here = given[name]
        if (here.dtype, here.shape) != (tensor.dtype, tensor.shape):
            raise _other_model(
                f"{name} is {here.dtype} {list(here.shape)}, recorded is {tensor.dtype} {list(tensor.shape)}"
            )


def _more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _other_model(why: str) -> InconclusiveError:
    return InconclusiveError(
        f"the model given here is not the model described: {why}",
        hint="pass --model with the model and revision that repro-audit show names",
    )
