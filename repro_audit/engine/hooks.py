"""Takes points' tensors where they pass: module hooks, and a wrapper around the attention function for
queries.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from repro_audit.engine.layout import Site, first_tensor

#: ``take(index of the site, tensor)``.
Take = Callable[[int, torch.Tensor], None]


@contextmanager
def hooked(module: nn.Module, sites: Sequence[Site], take: Take) -> Iterator[None]:
    """Call ``take`` for every ``output``, ``input`` and ``query`` site of ``module`` while the context lasts.

    Keys and values are the cache's to hand over, logits the caller's.
    """
    with ExitStack() as stack:
        queries: dict[int, int] = {}
        for index, site in enumerate(sites):
            if site.kind == "query":
                queries[id(module.get_submodule(site.module))] = index
            elif site.kind == "output":
                handle = module.get_submodule(site.module).register_forward_hook(_after(index, take))
                stack.callback(handle.remove)
            elif site.kind == "input":
                handle = module.get_submodule(site.module).register_forward_pre_hook(
                    _before(index, take), with_kwargs=True
                )
                stack.callback(handle.remove)
        modelling = {sys.modules[type(module.get_submodule(site.module)).__module__] for site in sites}
        for file in modelling if queries else ():
            if hasattr(file, "eager_attention_forward"):
                original: Any = file.eager_attention_forward
                stack.callback(setattr, file, "eager_attention_forward", original)
                setattr(file, "eager_attention_forward", watched(original, queries, take))  # noqa: B010
        yield


def watched(attention: Callable[..., Any], queries: dict[int, int], take: Take) -> Callable[..., Any]:
    """``attention``, with the query of each known module taken first."""

    def run(module: nn.Module, query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        index = queries.get(id(module))
        if index is not None:
            take(index, query)
        return attention(module, query, *args, **kwargs)

    return run


def _after(index: int, take: Take) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        take(index, output if type(output) is torch.Tensor else first_tensor(output))

    return hook


def _before(index: int, take: Take) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        take(index, args[0] if args else first_tensor(tuple(kwargs.values())))

    return hook
