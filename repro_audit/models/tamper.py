"""A copy of a model with one bit of one weight changed, for showing that the audit catches it.

The copy is loaded like any other model: same config, same tensor names, every digest the same but one.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch

from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.models.files import scan
from repro_audit.models.gguf_arch import architecture, config_values, parameter_name, unpermute
from repro_audit.models.gguf_file import GgufTensor, gguf_module, read_gguf
from repro_audit.models.gguf_model import demo_file, dequantise
from repro_audit.models.safetensors_file import Entry, read_header
from repro_audit.models.spec import DEMO, FOLDER, GGUF, ModelSpec, parse_spec

_TRIES = 1000


@dataclass(frozen=True)
class TamperedModel:
    """What was changed.

    Attributes:
        path: the copy, a MODEL of the same kind.
        tensor: name of the changed parameter, or of the file's tensor where loading renames it.
        element: flat index of the changed element in it, in logical C order.
        bit: the flipped bit of the byte at ``offset`` of ``file``, 0 the least significant.
        before, after: the element's value; for GGUF the dequantised one.
    """

    path: Path
    tensor: str
    element: int
    bit: int
    before: float
    after: float
    file: str
    offset: int


def tampered_copy(model: str, out_dir: Path, seed: int = 0, *, tensor: str | None = None) -> TamperedModel:
    """Copy a model and flip one bit, so that exactly one element of one weight changes and stays finite.

    Args:
        model: MODEL: a folder with safetensors, a GGUF file or a packaged model.
        out_dir: where the copy goes; made if missing, must be empty.
        seed: chooses the weight, element and bit, from the matrices inside the blocks.
        tensor: choose within this tensor (the parameter's name; any shape).

    Raises:
        UsageError: a model of another kind, or an ``out_dir`` that is not empty.
        InconclusiveError: the model has no such tensor, or no bit that qualifies was found.
    """
    spec = parse_spec(model)
    out_dir.mkdir(parents=True, exist_ok=True)
    if any(out_dir.iterdir()):
        raise UsageError(f"{out_dir} is not empty", hint="name a new folder for the changed copy")
    draw = random.Random(seed)
    if spec.kind == FOLDER and spec.path is not None:
        return _tamper_folder(spec.path, out_dir, draw, tensor)
    if spec.kind in (GGUF, DEMO):
        return _tamper_gguf(spec, out_dir, draw, tensor)
    raise UsageError(
        f"{model} cannot be copied with a change", hint="give a folder, a .gguf file or a packaged model"
    )


def _tamper_folder(folder: Path, out_dir: Path, draw: random.Random, wanted: str | None) -> TamperedModel:
    files = scan(folder)
    entries: list[tuple[str, Entry]] = []
    for name, path in files.items():
        if name.endswith(".safetensors"):
            entries += [(name, entry) for entry in read_header(path, name).entries]
    chosen = [
        (name, entry)
        for name, entry in entries
        if entry.dtype.is_floating_point and _eligible(entry.name, entry.shape, wanted)
    ]
    _require(chosen, wanted)
    for _ in range(_TRIES):
        name, entry = draw.choice(chosen)
        width = entry.dtype.itemsize
        element, bit = draw.randrange(prod(entry.shape)), draw.randrange(8 * width)
        offset = entry.begin + element * width
        stored = _read(files[name], offset, width)
        changed = bytearray(stored)
        changed[bit // 8] ^= 1 << bit % 8
        before, after = (_value(data, entry.dtype) for data in (stored, bytes(changed)))
        if not np.isfinite(after):
            continue
        for relative, path in files.items():
            target = out_dir / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        _write(out_dir / name, offset + bit // 8, changed[bit // 8])
        return TamperedModel(out_dir, entry.name, element, bit % 8, before, after, name, offset + bit // 8)
    raise InconclusiveError("no bit leaves a finite weight", hint="try another seed")


def _tamper_gguf(spec: ModelSpec, out_dir: Path, draw: random.Random, wanted: str | None) -> TamperedModel:
    path = spec.path if spec.path is not None else demo_file(spec.name.removeprefix("demo:"))[0]
    gguf = read_gguf(path, path.name)
    stated, row = architecture(gguf, path.name)
    values = config_values(gguf, stated, path.name)
    chosen = [item for item in gguf.tensors if _eligible(parameter_name(item.name), item.shape, wanted)]
    _require(chosen, wanted)
    for _ in range(_TRIES):
        tensor = draw.choice(chosen)
        elements, width = gguf_module().GGML_QUANT_SIZES[gguf_module().GGMLQuantizationType[tensor.type_name]]
        block = draw.randrange(prod(tensor.shape) // elements)
        byte, bit = draw.randrange(width), draw.randrange(8)
        offset = tensor.begin + block * width + byte
        stored = _read(path, tensor.begin + block * width, width)
        changed = bytearray(stored)
        changed[byte] ^= 1 << bit
        one = GgufTensor(tensor.name, (1, elements), tensor.type_name, 0, width)
        before, after = (
            dequantise(one, np.frombuffer(data, dtype=np.uint8).copy()).reshape(-1)
            for data in (stored, bytes(changed))
        )
        differing = np.flatnonzero(before.view(np.uint32) != after.view(np.uint32))
        # A scale byte moves the whole block, and a scale of zero hides the flip: neither is one weight.
        if differing.size != 1 or not np.isfinite(after).all():
            continue
        inside = int(differing[0])
        parameter, element = parameter_name(tensor.name), block * elements + inside
        if row.permuted:
            order = np.arange(prod(tensor.shape), dtype=np.int64).reshape(tensor.shape)
            moved = unpermute(parameter, order, values).reshape(-1)
            element = int(np.flatnonzero(moved == element)[0])
        copy = out_dir / path.name
        shutil.copyfile(path, copy)
        _write(copy, offset, changed[byte])
        return TamperedModel(
            copy, parameter, element, bit, float(before[inside]), float(after[inside]), path.name, offset
        )
    raise InconclusiveError("no bit changes exactly one weight", hint="try another seed or tensor")


def _eligible(name: str, shape: tuple[int, ...], wanted: str | None) -> bool:
    if wanted is not None:
        return name == wanted and prod(shape) > 0
    inside_a_block = any(part.isdigit() for part in name.split("."))
    return inside_a_block and len(shape) >= 2 and prod(shape) > 0


def _require(chosen: list[tuple[str, Entry]] | list[GgufTensor], wanted: str | None) -> None:
    if not chosen:
        what = f"tensor {wanted}" if wanted else "matrix inside a block"
        raise InconclusiveError(
            f"the model has no {what} to change", hint="name one of its floating-point tensors"
        )


def _value(data: bytes, dtype: torch.dtype) -> float:
    return float(torch.frombuffer(bytearray(data), dtype=dtype)[0])


def _read(path: Path, offset: int, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(count)


def _write(path: Path, offset: int, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(bytes([value]))
