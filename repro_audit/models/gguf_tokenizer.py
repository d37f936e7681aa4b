"""A tokenizer from a GGUF file's metadata.

Byte-level BPE with a pre-tokenizer whose rule is known is built here, by the rule of the original
tokenizer.json: transformers' conversion takes four seconds, and drops the digit rule of some. Any other goes
through transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from repro_audit.models.gguf_file import GgufFile
from repro_audit.models.quiet import quiet_transformers
from repro_audit.models.tokenizer import ReadingTokenizer
from repro_audit.models.tokenizer import Tokenizer as ModelTokenizer

_CONTROL, _USER_DEFINED = 3, 4
_GPT2 = ("gpt-2", "gpt2")
_SMOLLM = ("smollm",)
_SPLITS = {
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "llama-bpe": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}


def gguf_tokenizer(path: Path, gguf: GgufFile, name: str) -> ModelTokenizer | None:
    """The tokenizer that a file describes; None when it describes none.

    Raises:
        InconclusiveError: the description is damaged or unknown to transformers too.
    """
    metadata = gguf.metadata
    if "tokenizer.ggml.model" not in metadata:
        return None
    known = metadata.get("tokenizer.ggml.pre") in (*_GPT2, *_SMOLLM, *_SPLITS)
    if metadata["tokenizer.ggml.model"] != "gpt2" or not known:
        return _by_transformers(path, name)
    from transformers import PreTrainedTokenizerFast

    with ReadingTokenizer(f"the tokenizer inside {name} is damaged", "fetch the file again"):
        backend = _byte_level(metadata)
        tokens = metadata["tokenizer.ggml.tokens"]
        special = {
            f"{role}_token": tokens[metadata[f"tokenizer.ggml.{key}_token_id"]]
            for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
            if f"tokenizer.ggml.{key}_token_id" in metadata
        }
        make: Any = PreTrainedTokenizerFast
        fast = make(
            tokenizer_object=backend, chat_template=metadata.get("tokenizer.chat_template"), **special
        )
    return ModelTokenizer(fast, name)


def _byte_level(metadata: dict[str, Any]) -> Tokenizer:
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    pre = metadata["tokenizer.ggml.pre"]
    merges = []
    for merge in metadata["tokenizer.ggml.merges"]:
        left, right = merge.split(" ")
        merges.append((left, right))
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre == "llama-bpe"))
    if pre in _SPLITS:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_SPLITS[pre]), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    elif pre in _SMOLLM:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    kinds = metadata.get("tokenizer.ggml.token_type", [])
    control = [t for t, kind in zip(tokens, kinds, strict=False) if kind == _CONTROL]
    defined = [t for t, kind in zip(tokens, kinds, strict=False) if kind == _USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in defined])
    if metadata.get("tokenizer.ggml.add_bos_token"):
        bos = metadata["tokenizer.ggml.bos_token_id"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    return tokenizer


def _by_transformers(path: Path, name: str) -> ModelTokenizer:
    from transformers import AutoTokenizer

    failed = ReadingTokenizer(
        f"transformers cannot read the tokenizer inside {name}", "use the model's safetensors folder instead"
    )
    with failed, quiet_transformers():
        backend = AutoTokenizer.from_pretrained(
            path.parent, gguf_file=path.name, local_files_only=True, trust_remote_code=False
        )
    return ModelTokenizer(backend, name)
