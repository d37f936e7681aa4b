"""What a model's generation_config means for decoding, resolved as transformers would resolve it. No torch.

Read from the JSON itself, so that the answer does not depend on the transformers version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from repro_audit.errors import InconclusiveError
from repro_audit.models.loaded import GenerationDefaults

#: Most stop tokens, and the bound of a token id: what a manifest holds.
_MAX_STOPS, _MAX_ID = 4096, 2**31

#: transformers' own values for what a file leaves unset, once sampling is on.
_SAMPLING = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}
#: Options that change which token is drawn -> the values under which they do not.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1, 1.0),
    "encoder_repetition_penalty": (1, 1.0),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "penalty_alpha": (0, 0.0),
    "diversity_penalty": (0, 0.0),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "bad_words_ids": ([],),
    "force_words_ids": ([],),
    "constraints": ([],),
    "sequence_bias": ({}, []),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1, 1.0),
    "token_healing": (False,),
    "dola_layers": (),
    "stop_strings": ([],),
    "watermarking_config": (),
    "remove_invalid_values": (False,),
}
#: The same, where they act on sampling only.
_NEUTRAL_SAMPLING: dict[str, tuple[Any, ...]] = {
    "min_p": (0, 0.0),
    "top_h": (0, 0.0),
    "typical_p": (1, 1.0),
    "epsilon_cutoff": (0, 0.0),
    "eta_cutoff": (0, 0.0),
    "renormalize_logits": (False,),
}


def resolve(values: Mapping[str, Any], config: Mapping[str, Any]) -> GenerationDefaults:
    """Decoding defaults of a model.

    Args:
        values: the parsed generation_config.json; empty when the model has none.
        config: the parsed config.json, which older models keep the same options in.

    Raises:
        InconclusiveError: eos_token_id is neither a token id nor a list of them.
    """
    merged = {key: value for key, value in {**config, **values}.items() if value is not None}
    sampling = merged.get("do_sample") is True
    rules = _NEUTRAL | (_NEUTRAL_SAMPLING if sampling else {})
    unsupported = tuple(
        (option, json.dumps(merged[option], sort_keys=True))
        for option, neutral in sorted(rules.items())
        if option in merged and not any(merged[option] == value for value in neutral)
    )
    ids = _token_ids(merged.get("eos_token_id", []))
    if not isinstance(merged.get("do_sample", False), bool):
        unsupported += (("do_sample", json.dumps(merged["do_sample"])),)
    if not sampling:
        return GenerationDefaults(eos_token_ids=ids, unsupported=unsupported)
    drawn = {key: merged.get(key, value) for key, value in _SAMPLING.items()}
    wrong = tuple((key, json.dumps(value)) for key, value in drawn.items() if not _possible(key, value))
    if wrong:
        return GenerationDefaults(eos_token_ids=ids, unsupported=wrong + unsupported)
    return GenerationDefaults(
        do_sample=True,
        temperature=float(drawn["temperature"]),
        top_k=int(drawn["top_k"]),
        top_p=float(drawn["top_p"]),
        eos_token_ids=ids,
        unsupported=unsupported,
    )


def _token_ids(eos: Any) -> tuple[int, ...]:
    ids = eos if isinstance(eos, list) else [eos]
    if len(ids) > _MAX_STOPS or not all(type(item) is int and 0 <= item < _MAX_ID for item in ids):
        raise InconclusiveError(
            f"eos_token_id is {json.dumps(eos)[:80]}, neither a token id nor a list of them",
            hint="generation_config.json is damaged: fetch it again",
        )
    return tuple(sorted(set(ids)))


def _possible(option: str, value: Any) -> bool:
    """Whether a sampling option has a value of the kind and range that sampling knows."""
    if option == "top_k":
        return type(value) is int and 0 <= value < _MAX_ID
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= 1 if option == "top_p" else 0 <= value < float("inf")
