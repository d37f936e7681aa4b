"""Loading a Hugging Face folder: config, safetensors (sharded or not), tokenizer, generation defaults."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub.errors import StrictDataclassError

from repro_audit.errors import InconclusiveError
from repro_audit.manifest.omsroot import root_of_digests
from repro_audit.models.build import build, context_length, digest_tensors, first_line
from repro_audit.models.digests import sha256_of
from repro_audit.models.files import digest_files, read_json, scan
from repro_audit.models.generation import resolve
from repro_audit.models.loaded import FileDigest, LoadedModel
from repro_audit.models.quiet import quiet_transformers
from repro_audit.models.safetensors_file import read_header, read_tensors
from repro_audit.models.tokenizer import ReadingTokenizer, Tokenizer
from repro_audit.progress import Observer

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

#: What reading a config that is wrong raises: transformers checks some of it and computes with the rest.
_CONFIG_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError, RuntimeError,
    StrictDataclassError, TypeError, ValueError,
)  # fmt: skip
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
#: Extents that some tensor of the checkpoint must have, and a count that transformers makes a list of.
_EXTENTS = ("vocab_size", "hidden_size", "intermediate_size", "n_embd", "d_model", "num_labels")
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
#: Files that a tokenizer is made from; others in the folder do not change tokens.
_TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tekken.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
_TEMPLATES = ("chat_template.json", "chat_template.jinja")
#: What transformers writes into a config about itself, not about the model.
_VOLATILE = ("transformers_version", "_name_or_path", "_commit_hash")


def load_folder(
    folder: Path,
    name: str,
    *,
    observer: Observer,
    cast_weights: bool = False,
    revision: str | None = None,
    allowed: Path | None = None,
) -> LoadedModel:
    """Load a folder as ``save_pretrained`` or the hub lays it out.

    Args:
        folder: the model folder.
        name: how records call the model.
        observer: told about progress in bytes.
        cast_weights: keep the casts that transformers makes, and list them.
        revision: hub commit, for the record.
        allowed: see :func:`repro_audit.models.files.scan`.

    Raises:
        InconclusiveError: anything in the folder that the contract does not cover, each by name.
        UsageError: the folder cannot be read.
    """
    files = scan(folder, allowed)
    if "adapter_config.json" in files:
        raise InconclusiveError(
            "the folder holds an adapter (adapter_config.json), which is not covered",
            hint="merge it into its base model and save that",
        )
    values = read_json(folder / "config.json", "config.json")
    _refuse_config(values)
    shards = _weight_files(folder, files)
    entries = [entry for shard in shards for entry in read_header(files[shard], shard).entries]
    _refuse_sizes(values, len(entries), max((prod(entry.shape) for entry in entries), default=0))
    config = _config(folder, values)

    observer.stage("Reading weights", sum(files[shard].stat().st_size for shard in shards))
    tensors: dict[str, torch.Tensor] = {}
    digests: list[FileDigest] = []
    for shard in shards:
        found, digest = read_tensors(files[shard], shard, observer)
        twice = next((key for key in found if key in tensors), None)
        if twice is not None:
            raise InconclusiveError(
                f"{twice} is in two shards", hint="the folder mixes checkpoints: fetch it again"
            )
        tensors |= found
        digests.append(digest)
    module, account = build(config, tensors, cast_weights=cast_weights)
    tensors.clear()
    generation = (
        read_json(folder / "generation_config.json", "generation_config.json")
        if "generation_config.json" in files
        else {}
    )
    tensor_digests = digest_tensors(module, observer)
    observer.stage(
        "Hashing files", sum(path.stat().st_size for key, path in files.items() if key not in shards)
    )
    file_digests = digest_files(list(files.items()), digests, observer)
    for key in account.ignored_keys:
        observer.note(f"{key} is left out, by {type(module).__name__}'s own rule")
    tokenizer_names = [
        key
        for key in files
        if key in _TOKENIZER_FILES or key in _TEMPLATES or key.startswith("additional_chat_")
    ]
    return LoadedModel(
        kind="hf",
        name=name,
        revision=revision,
        module=module,
        tensors=tensor_digests,
        config_digest=config_digest(values),
        root=root_of_digests(file.sha256 for file in file_digests),
        files=file_digests,
        tokenizer=load_tokenizer(folder, name, tokenizer_names),
        tokenizer_digest=_tokenizer_digest(file_digests, tokenizer_names),
        ignored_keys=account.ignored_keys,
        sources=tuple(account.sources),
        cast_keys=tuple(account.cast_keys),
        tied=account.tied,
        context_length=context_length(config),
        generation=resolve(generation, values),
    )


def config_digest(values: Mapping[str, Any]) -> str:
    """SHA-256 over a config file's content, without what transformers says about itself."""
    return sha256_of({key: value for key, value in values.items() if key not in _VOLATILE})


def load_tokenizer(folder: Path, name: str, names: list[str]) -> Tokenizer | None:
    """The folder's tokenizer, from local files only; None when it has none.

    Raises:
        InconclusiveError: its files are there but transformers cannot read them.
    """
    from transformers import AutoTokenizer

    if not any(key not in _TEMPLATES for key in names):
        return None
    failed = ReadingTokenizer(
        f"the tokenizer of {name} cannot be read", "fetch the tokenizer files again, or install what it needs"
    )
    with failed, quiet_transformers():
        backend = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return Tokenizer(backend, name)


def _tokenizer_digest(files: tuple[FileDigest, ...], names: list[str]) -> str:
    if not names:
        return ""
    return sha256_of([[item.name, item.sha256] for item in files if item.name in names])


def _refuse_config(values: Mapping[str, Any]) -> None:
    quantisation = values.get("quantization_config") or values.get("compression_config")
    if isinstance(quantisation, dict):
        method = quantisation.get("quant_method", "unknown method")
        raise InconclusiveError(
            f"the model is quantised ({method}), which is outside the contract",
            hint="use the unquantised checkpoint, or a GGUF file, which is dequantised exactly",
        )
    if "text_config" in values and isinstance(values["text_config"], dict):
        _refuse_config(values["text_config"])


def _refuse_sizes(values: Mapping[str, Any], count: int, largest: int) -> None:
    """More layers than tensors, or a wider one than any, cannot be right, and making them would not end."""
    for inner in values.values():
        if isinstance(inner, dict):
            _refuse_sizes(inner, count, largest)
    for key in _EXTENTS:
        extent = values.get(key)
        if isinstance(extent, int) and extent > max(largest, 1 << 16):
            raise InconclusiveError(
                f"config.json states {key} {extent} where the largest tensor has {largest} elements",
                hint="config.json and the weights belong to different models: fetch both again",
            )
    for key in _LAYERS:
        layers = values.get(key)
        if isinstance(layers, int) and layers > count:
            raise InconclusiveError(
                f"config.json states {layers} layers where the checkpoint holds {count} tensors",
                hint="config.json and the weights belong to different models: fetch both again",
            )


def _config(folder: Path, values: Mapping[str, Any]) -> PreTrainedConfig:
    from transformers import AutoConfig

    try:
        with quiet_transformers():
            config: PreTrainedConfig = AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except _CONFIG_ERRORS as error:
        import transformers

        model_type = values.get("model_type", "no model_type")
        own = " and asks for code of its own, which is never run" if "auto_map" in values else ""
        reason = first_line(error).replace(str(folder), folder.name)  # a message names no local path
        raise InconclusiveError(
            f"transformers {transformers.__version__} cannot read config.json ({model_type}){own}: {reason}",
            hint="use a transformers version that knows this model type",
        ) from error
    return config


def _weight_files(folder: Path, files: Mapping[str, Path]) -> list[str]:
    if _SINGLE in files:
        return [_SINGLE]
    if _INDEX in files:
        return _shards(read_json(folder / _INDEX, _INDEX), files)
    pickles = [key for key in files if key.endswith(_PICKLES)]
    if pickles:
        raise InconclusiveError(
            f"the weights are in {pickles[0]}, a pickle, which runs code when it is read",
            hint="convert the model to safetensors (save_pretrained writes it)",
        )
    others = [key for key in files if key.endswith(".safetensors")]
    what = f"; {others[0]} is not a name that is looked for" if others else ""
    raise InconclusiveError(
        f"the folder holds neither {_SINGLE} nor {_INDEX}{what}", hint="fetch the weights, or name them so"
    )


def _shards(index: Mapping[str, Any], files: Mapping[str, Path]) -> list[str]:
    weight_map = index.get("weight_map")
    damaged = "the index is damaged: fetch it again"
    if not (isinstance(weight_map, dict) and weight_map):
        raise InconclusiveError(f"{_INDEX} has no weight_map", hint=damaged)
    for key, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise InconclusiveError(
                f"{_INDEX} sends {key} to {shard!r}, which is not a safetensors file of this folder",
                hint=damaged,
            )
        if shard not in files:
            raise InconclusiveError(
                f"the shard {shard} is missing", hint="fetch the model again, all of its shards"
            )
    held: dict[str, str] = {}
    for shard in sorted(set(weight_map.values())):
        for entry in read_header(files[shard], shard).entries:
            held[entry.name] = shard
    for key, shard in weight_map.items():
        if held.get(key) != shard:
            raise InconclusiveError(
                f"{_INDEX} expects {key} in {shard}, which does not hold it", hint=damaged
            )
    extra = next((key for key in held if key not in weight_map), None)
    if extra is not None:
        raise InconclusiveError(f"{held[extra]} holds {extra}, which {_INDEX} does not list", hint=damaged)
    return sorted(set(weight_map.values()))
