"""What a model's generation_config means for decoding, resolved as transformers would resolve it. No torch.

Read from the JSON itself, so that the answer does not depend on the transformers version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from repro_audit.models.loaded import GenerationDefaults

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
    """
    merged = {key: value for key, value in {**config, **values}.items() if value is not None}
    sampling = merged.get("do_sample") is True
    rules = _NEUTRAL | (_NEUTRAL_SAMPLING if sampling else {})
    unsupported = tuple(
        (option, json.dumps(merged[option], sort_keys=True))
        for option, neutral in sorted(rules.items())
        if option in merged and not any(merged[option] == value for value in neutral)
    )
    eos = merged.get("eos_token_id", [])
    ids = tuple(sorted({int(item) for item in (eos if isinstance(eos, list) else [eos])}))
    if not sampling:
        return GenerationDefaults(eos_token_ids=ids, unsupported=unsupported)
    drawn = {key: merged.get(key, value) for key, value in _SAMPLING.items()}
    return GenerationDefaults(
        do_sample=True,
        temperature=float(drawn["temperature"]),
        top_k=int(drawn["top_k"]),
        top_p=float(drawn["top_p"]),
        eos_token_ids=ids,
        unsupported=unsupported,
    )
