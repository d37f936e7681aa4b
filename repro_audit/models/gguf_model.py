"""Loading a GGUF file: tensors dequantised to fp32 by gguf-py, under transformers' names, digested after."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.manifest.omsroot import root_of_digests
from repro_audit.models.build import build, context_length, digest_tensors
from repro_audit.models.digests import sha256_of
from repro_audit.models.generation import resolve
from repro_audit.models.gguf_arch import Array, architecture, config_values, parameter_name, unpermute
from repro_audit.models.gguf_file import (
    GgufFile,
    GgufTensor,
    Raw,
    gguf_module,
    read_gguf,
    read_raw,
    value_digest,
)
from repro_audit.models.gguf_tokenizer import gguf_tokenizer
from repro_audit.models.loaded import LoadedModel, Source
from repro_audit.models.spec import DEMOS, ModelSpec
from repro_audit.progress import Observer

#: Tensors read but not yet dequantised: more would only cost memory.
_AHEAD = 8
_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def demo_file(name: str) -> tuple[Path, str]:
    """Where a packaged model's file is, and ``distribution==version:path``; the package is not imported.

    Raises:
        UsageError: the package is not installed.
    """
    distribution, package, inside = DEMOS[name]
    found = importlib.util.find_spec(package)
    places = list(found.submodule_search_locations or []) if found else []
    path = next((Path(place, inside) for place in places if Path(place, inside).is_file()), None)
    if path is None:
        raise UsageError(
            f"demo:{name} is not installed (package {distribution})", hint="pip install 'repro-audit[demo]'"
        )
    return path, f"{distribution}=={importlib.metadata.version(distribution)}:{package}/{inside}"


def load_gguf(spec: ModelSpec, *, observer: Observer) -> LoadedModel:
    """Load a GGUF file, or a packaged one.

    Raises:
        InconclusiveError: anything in the file that the contract does not cover, by name.
        UsageError: the gguf package or the packaged model is not installed.
    """
    gguf_module()
    package = None
    if spec.path is not None:
        path = spec.path
    else:
        path, package = demo_file(spec.name.removeprefix("demo:"))
    gguf = read_gguf(path, path.name)
    stated, row = architecture(gguf, path.name)
    values = config_values(gguf, stated, path.name)
    config = _config(row.config_class, row.model_class, values, path.name)

    tensors: dict[str, torch.Tensor] = {}
    sources: list[Source] = []

    def convert(tensor: GgufTensor, raw: Raw) -> torch.Tensor:
        value = dequantise(tensor, raw)
        if row.permuted:
            value = unpermute(parameter_name(tensor.name), value, values)
        return torch.from_numpy(value)

    observer.stage("Reading weights", gguf.size)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pending: list[tuple[GgufTensor, Future[torch.Tensor]]] = []

        def take(tensor: GgufTensor, raw: Raw) -> None:
            if len(pending) >= _AHEAD:
                pending[-_AHEAD][1].result()
            pending.append((tensor, pool.submit(convert, tensor, raw)))

        file = read_raw(path, path.name, gguf, observer, take)
        for tensor, future in pending:
            parameter = parameter_name(tensor.name)
            tensors[parameter] = future.result()
            sources.append(Source(parameter, "dequantise", (tensor.name,)))
        pending.clear()
    module, account = build(config, tensors)
    tensors.clear()
    tokenizer = gguf_tokenizer(path, gguf, path.name)
    tokenizer_keys = sorted(key for key in gguf.metadata if key.startswith("tokenizer."))
    return LoadedModel(
        kind="gguf",
        name=spec.name,
        module=module,
        tensors=digest_tensors(module, observer),
        config_digest=config_digest(gguf),
        root=root_of_digests([file.sha256]),
        files=(file,),
        tokenizer=tokenizer,
        tokenizer_digest=value_digest(path, gguf, tokenizer_keys) if tokenizer is not None else "",
        ignored_keys=account.ignored_keys,
        sources=tuple(sources),
        tied=account.tied,
        context_length=context_length(config),
        generation=resolve({}, {"eos_token_id": values["eos_token_id"]}),
        file_for_packages=package,
    )


def dequantise(tensor: GgufTensor, raw: Raw) -> Array:
    """The fp32 values of a tensor's bytes, in torch's shape: gguf-py's result."""
    if tensor.type_name in _PLAIN:
        plain = torch.from_numpy(raw).view(_PLAIN[tensor.type_name]).to(torch.float32)
        return plain.numpy().reshape(tensor.shape)
    gguf = gguf_module()
    kind = gguf.GGMLQuantizationType[tensor.type_name]
    # A damaged scale makes Inf and NaN here; they are refused by name afterwards.
    with np.errstate(invalid="ignore", over="ignore"):
        values: Any = gguf.quants.dequantize(raw, kind)
    return np.ascontiguousarray(values, dtype=np.float32).reshape(tensor.shape)


def config_digest(gguf: GgufFile) -> str:
    """SHA-256 over what the metadata says about the model: all but tokenizer, name, authors and file type."""
    kept = {
        key: value.hex() if isinstance(value, float) else value
        for key, value in gguf.metadata.items()
        if key == "general.architecture" or not key.startswith(("general.", "tokenizer.", "quantize."))
    }
    return sha256_of(
        {
            key: [float.hex(v) if isinstance(v, float) else v for v in value]
            if isinstance(value, list)
            else value
            for key, value in kept.items()
        }
    )


def _config(config_class: str, model_class: str, values: dict[str, Any], name: str) -> Any:
    import transformers

    try:
        return getattr(transformers, config_class)(architectures=[model_class], **values)
    except (ValueError, TypeError) as error:
        raise InconclusiveError(
            f"{name} has settings that {config_class} refuses ({str(error).splitlines()[0][:200]})",
            hint="convert the model again",
        ) from error
