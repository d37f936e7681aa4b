"""Do the parts of a manifest agree with one another? Contradictions are refused before anything is compared.

This needs the manifest alone: no model, no trace. What only the model can tell (is a point missing that every
block lacks?) is for ``verify``, which derives the required points itself.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath

from repro_audit.errors import UntrustedError
from repro_audit.manifest.omsroot import root_of_digests, tensor_list_root
from repro_audit.manifest.types import Manifest, SequenceClaim
from repro_audit.trace.digest import run_root, sequence_root

_BLOCK = re.compile(r"(.*?)(?<![^.])([0-9]+)(?:\.(.*))?")


def require_consistent(manifest: Manifest) -> None:
    """Raise for the first contradiction found.

    Raises:
        UntrustedError: naming what contradicts what.
    """
    _names(manifest)
    _model(manifest)
    _table(manifest)
    _blocks(manifest)
    for index, sequence in enumerate(manifest.sequences):
        _sequence(manifest, index, sequence)
    roots = [bytes.fromhex(sequence.root) for sequence in manifest.sequences]
    if run_root(roots).hex() != manifest.root:
        raise _contradiction("its run root is not the Merkle root of its sequence roots")


def _contradiction(why: str) -> UntrustedError:
    return UntrustedError(
        f"the manifest contradicts itself: {why}", hint="do not rely on it; ask for a new recording"
    )


def _once(names: Iterable[object], what: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise _contradiction(f"{what} {name} is listed {count} times")


def _names(manifest: Manifest) -> None:
    model = manifest.model
    _once((file.name for file in model.files), "file")
    _once((tensor.name for tensor in model.tensors), "tensor")
    _once((tensor.name for tensor in model.buffers), "buffer")
    _once((name for group in model.tied for name in group), "tied name")
    _once(model.ignored_keys, "ignored key")
    _once(((s.operator, s.argument, s.value) for s in model.scalars), "scalar")
    _once((spec.point.name for spec in manifest.points), "point")
    _once((sequence.id for sequence in manifest.sequences), "sequence id")
    _once(((o.operator, o.classed, o.kernel) for o in manifest.operators), "operator")
    _once((module.kind for module in manifest.modules), "module kind")
    _once((name for name, _ in manifest.environment), "environment entry")
    _once((name for name, _ in manifest.schedule), "schedule entry")
    _once(((k.name, k.specialisation, k.target, k.sha256) for k in manifest.compiled), "compiled kernel")


def _model(manifest: Manifest) -> None:
    model = manifest.model
    if (model.root_method == "tensor-list") != (model.kind == "python"):
        raise _contradiction(f"a model of kind {model.kind} has a root of kind {model.root_method}")
    if bool(model.files) == (model.kind == "python"):
        raise _contradiction(f"a model of kind {model.kind} lists {len(model.files)} files")
    in_order = sorted(model.files, key=lambda file: PurePosixPath(file.name).parts)
    if model.files and root_of_digests(file.sha256 for file in in_order) != model.root:
        raise _contradiction("the model's root is not the root of the files it lists")
    if model.kind == "python" and tensor_list_root(model.tensors) != model.root:
        raise _contradiction("the model's root is not the root of the tensors it lists")
    if model.cast_keys and not manifest.settings.cast_weights:
        raise _contradiction("parameters were cast, and the profile says that none was")
    for module in manifest.modules:
        if module.covered > module.total:
            raise _contradiction(
                f"{module.covered} of {module.total} modules of kind {module.kind} are covered"
            )
    rendered = manifest.chat.rendered if manifest.chat is not None else ()
    if manifest.privacy is not None and (manifest.has_top2 or manifest.has_values or rendered):
        raise _contradiction("its inputs are private, and its trace or rendered prompts show them")
    if manifest.privacy is None and manifest.chat is not None and len(rendered) != len(manifest.sequences):
        raise _contradiction(f"{len(rendered)} prompts were rendered for {len(manifest.sequences)} sequences")
    if manifest.started_at > manifest.finished_at:
        raise _contradiction("it finished before it started")


def _table(manifest: Manifest) -> None:
    model = manifest.model
    known = {t.name for t in (*model.tensors, *model.buffers, *model.constants)}
    known.update(name for group in model.tied for name in group)
    for index, spec in enumerate(manifest.points):
        for edge in spec.point.inputs:
            if edge.point >= index:
                raise _contradiction(
                    f"point {spec.point.name} consumes point {edge.point}, which is not before it"
                )
        for name in spec.point.weights:
            if name not in known:
                raise _contradiction(f"point {spec.point.name} reads {name}, which the model does not have")
    if manifest.settings.level == "logits" and model.kind != "python" and len(manifest.points) != 1:
        raise _contradiction(f"level logits records one point, not {len(manifest.points)}")


def _blocks(manifest: Manifest) -> None:
    """A decoder is a stack: blocks with the same tensors have the same points, and none is left out.

    Only the first block may record an input besides: what enters it (token plus position embedding, say) is
    no other point's output.
    """
    if manifest.model.kind == "python" or manifest.settings.level == "logits":
        return
    points = _by_block(spec.point.name for spec in manifest.points)
    tensors = _by_block(tensor.name for tensor in manifest.model.tensors)
    for prefix, blocks in points.items():
        shapes: dict[frozenset[str], tuple[int, frozenset[str]]] = {}
        for number, held in sorted(tensors.get(prefix, {}).items(), reverse=True):
            recorded = frozenset(blocks.get(number, ()))
            if not recorded:
                raise _contradiction(
                    f"block {prefix}{number} has tensors but no point at level {manifest.settings.level}"
                )
            twin, expected = shapes.setdefault(frozenset(held), (number, recorded))
            for name in sorted(expected ^ recorded):
                if number == 0 and name in recorded and name.endswith(".input"):
                    continue
                here, there = (twin, number) if name in expected else (number, twin)
                raise _contradiction(f"block {prefix}{here} records {name}, block {prefix}{there} does not")


def _by_block(names: Iterable[str]) -> dict[str, dict[int, set[str]]]:
    """prefix -> block number -> the rest of each name, split at the first numeric component."""
    out: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        match = _BLOCK.fullmatch(name)
        if match is not None and len(match.group(2)) < 10:
            out[match.group(1)][int(match.group(2))].add(match.group(3) or "")
    return out


def _sequence(manifest: Manifest, index: int, sequence: SequenceClaim) -> None:
    where = f"sequence {index}"
    decoding = manifest.settings.decoding
    prompt, drawn = sequence.prompt_count, sequence.generated_count
    if sequence.prompt is not None and len(sequence.prompt) != prompt:
        raise _contradiction(f"{where} has {len(sequence.prompt)} prompt tokens and says {prompt}")
    if sequence.generated is not None:
        if len(sequence.generated) != drawn:
            raise _contradiction(f"{where} has {len(sequence.generated)} drawn tokens and says {drawn}")
        stops = set(decoding.stop_token_ids)
        if any(token in stops for token in sequence.generated[:-1]):
            raise _contradiction(f"{where} went on after a stop token")
        if drawn < decoding.max_new_tokens and prompt and (not drawn or sequence.generated[-1] not in stops):
            raise _contradiction(
                f"{where} stopped after {drawn} of {decoding.max_new_tokens} tokens at no stop token"
            )
    if drawn > decoding.max_new_tokens:
        raise _contradiction(
            f"{where} drew {drawn} tokens, more than the {decoding.max_new_tokens} asked for"
        )
    if drawn and not prompt:
        raise _contradiction(f"{where} drew tokens after an empty prompt")
    if prompt and sequence.positions != prompt + max(drawn - 1, 0):
        raise _contradiction(
            f"{where} has {sequence.positions} positions, {prompt} prompt and {drawn} drawn tokens make "
            f"{prompt + max(drawn - 1, 0)}"
        )
    if not prompt and manifest.model.kind != "python":
        raise _contradiction(f"{where} has an empty prompt")
    _spans(manifest, where, sequence)
    if sequence_root([bytes.fromhex(digest) for digest in sequence.digests]).hex() != sequence.root:
        raise _contradiction(f"the root of {where} is not the Merkle root of its point digests")


def _spans(manifest: Manifest, where: str, sequence: SequenceClaim) -> None:
    """Every point has every position; only the last, the logits, may have just the rows drawn from.

    In domain sample an output that belongs to no token, and to no one sample, is one row (a pooled vector).
    """
    full = (0, sequence.positions)
    rows = (sequence.prompt_count - 1, sequence.generated_count) if sequence.generated_count else full
    last = len(manifest.points) - 1
    for index, span in enumerate(sequence.spans):
        allowed = rows if index == last else full
        point = manifest.points[index].point
        if point.domain == "sample" and (span.first, span.count) == (0, 1):
            continue
        if (span.first, span.count) not in (full, allowed):
            name = point.name
            raise _contradiction(
                f"{where}, point {name}: rows {span.first} to {span.first + span.count - 1} are recorded, "
                f"required are {allowed[0]} to {allowed[0] + allowed[1] - 1}"
            )
