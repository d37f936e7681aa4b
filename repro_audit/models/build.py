"""From a config and named tensors to a transformers module. Code that comes with a model is never run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from repro_audit.errors import InconclusiveError
from repro_audit.models.account import Account, account, named_tensors
from repro_audit.models.digests import describe_bad, tensor_digest
from repro_audit.models.loaded import DamagedWeightsError
from repro_audit.models.quiet import quiet_transformers
from repro_audit.progress import Observer
from repro_audit.trace.record import TensorDigest

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def model_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class that the config's ``architectures`` names, else the causal language model of its type.

    Raises:
        InconclusiveError: transformers has no such class, or it is not one for this config.
    """
    import transformers

    names = getattr(config, "architectures", None) or []
    if not isinstance(names, list):
        raise InconclusiveError("architectures is no list", hint="config.json is damaged: fetch it again")
    if not names:
        mapping: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
        found: Any = mapping.get(type(config), None)
        if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
            raise InconclusiveError(
                f"the config names no architecture and {config.model_type} has no causal language model",
                hint="name the class in config.json under architectures",
            )
        return found
    cls = getattr(transformers, str(names[0]), None)
    if not (isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel)):
        raise InconclusiveError(
            f"transformers {transformers.__version__} has no model class {names[0]}",
            hint="install a transformers version that has it; code that comes with a model is never run",
        )
    if cls.config_class is None or not isinstance(config, cls.config_class):
        raise InconclusiveError(
            f"config.json names {names[0]}, which is not a class for model_type {config.model_type}",
            hint="fetch config.json again",
        )
    return cls


def build(
    config: PreTrainedConfig,
    tensors: Mapping[str, torch.Tensor],
    *,
    cast_weights: bool = False,
) -> tuple[PreTrainedModel, Account]:
    """Make the module and put the tensors into it, with their bits and dtypes.

    The tensors become the parameters without a copy, except where transformers stacks or splits them.

    Args:
        config: the model's configuration.
        tensors: the checkpoint's tensors by key.
        cast_weights: let transformers cast to the config's dtype, as it does by itself.

    Raises:
        InconclusiveError: the class is unknown, or :func:`repro_audit.models.account.account` refuses.
    """
    cls = model_class(config)
    floats = Counter[torch.dtype]()
    for tensor in tensors.values():
        if tensor.dtype in _FLOATS:
            floats[tensor.dtype] += tensor.numel()
    if not floats:
        raise InconclusiveError(
            "the checkpoint holds no floating-point tensor", hint="fetch the weights again"
        )
    dtype: Any = floats.most_common(1)[0][0]
    if cast_weights and isinstance(config.dtype, torch.dtype):
        dtype = config.dtype
    # Says how the forward pass wraps its results, not what they are.
    config.return_dict = True
    try:
        with quiet_transformers():
            made: Any = cls.from_pretrained(
                None,
                config=config,
                state_dict=dict(tensors),
                dtype=dtype,
                attn_implementation="eager",
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except (RuntimeError, ValueError, ImportError, KeyError, AttributeError, TypeError) as error:
        raise InconclusiveError(
            f"transformers cannot load {cls.__name__} ({first_line(error)})",
            hint="the config and the weights may not belong together: fetch both again",
        ) from error
    module: PreTrainedModel = made[0]
    info: dict[str, Any] = made[1]
    for key, held, wanted in sorted(info.get("mismatched_keys", ())):
        raise InconclusiveError(
            f"{key} has shape {list(held)} in the checkpoint where the config asks for {list(wanted)}",
            hint="config.json and the weights belong to different models: fetch both again",
        )
    module.train(False)
    module.requires_grad_(False)
    found = account(
        module,
        tensors,
        unexpected=set(info.get("unexpected_keys", ())),
        base_prefix=cls.base_model_prefix,
        cast_weights=cast_weights,
    )
    return module, found


def digest_tensors(module: torch.nn.Module, observer: Observer) -> tuple[TensorDigest, ...]:
    """Typed digests of every parameter and persistent buffer, tied ones once, sorted by name.

    Raises:
        DamagedWeightsError: a parameter holds NaN or Inf, or a buffer NaN.
        InconclusiveError: a parameter has a dtype outside the contract.
    """
    named, _ = named_tensors(module)
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    observer.stage("Hashing tensors", sum(tensor.nbytes for tensor in named.values()))
    result, damage = [], []
    for name, tensor in sorted(named.items()):
        if tensor.device.type != "cpu":
            raise InconclusiveError(
                f"{name} is on device {tensor.device}",
                hint="make the model on the CPU, with its weights loaded",
            )
        if name in parameters and tensor.dtype not in _FLOATS:
            raise InconclusiveError(
                f"parameter {name} has dtype {tensor.dtype}, outside the contract",
                hint="use float32, bfloat16 or float16 weights; quantised ones are not covered",
            )
        bad = describe_bad(name, tensor, nan_only=name not in parameters)
        if bad is not None:
            damage.append(bad)
        result.append(tensor_digest(name, tensor))
        observer.advance(tensor.nbytes)
    if damage:
        raise DamagedWeightsError(damage[0], tuple(result))
    return tuple(result)


def context_length(config: PreTrainedConfig) -> int | None:
    """Most positions that the model was made for, if its config states them."""
    value = getattr(config.get_text_config(), "max_position_embeddings", None)
    return value if isinstance(value, int) and value > 0 else None


def first_line(error: BaseException) -> str:
    """A library's message, cut to what fits in one sentence."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
