"""Every parameter of a module is explained by the file, also where transformers would not have asked."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from repro_audit.errors import InconclusiveError
from repro_audit.models.account import account


class Tied(nn.Module):
    """An embedding and an output head that are one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 2)
        self.head = nn.Linear(2, 4, bias=False)
        self.head.weight = self.embed.weight


def loaded() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The module, and a file that holds its one parameter under both names."""
    module = Tied()
    values = module.embed.weight.detach().clone()
    return module, {"embed.weight": values, "head.weight": values.clone()}


def explain(module: nn.Module, tensors: dict[str, torch.Tensor]) -> object:
    return account(module, tensors, unexpected=set(), base_prefix="", cast_weights=False)


def test_a_tied_parameter_under_both_of_its_names() -> None:
    module, tensors = loaded()
    explain(module, tensors)
    del tensors["head.weight"]
    explain(module, tensors)


def test_one_parameter_with_two_values() -> None:
    module, tensors = loaded()
    tensors["head.weight"].view(torch.int32)[3, 1] ^= 1
    with pytest.raises(InconclusiveError, match="are one tied parameter in this model but differ"):
        explain(module, tensors)


def test_a_parameter_that_the_file_lacks() -> None:
    module, _ = loaded()
    with pytest.raises(InconclusiveError, match="embed"):
        explain(module, {})
