"""Stored parameters: what model code sees, what kernels read, and that everything is put back."""

from __future__ import annotations

import pytest
import torch
from repro_kernels.cpu import gemm
from torch import nn

from repro_audit.engine.context import audited
from repro_audit.engine.dispatch import ProfileMode
from repro_audit.engine.optable import table
from repro_audit.engine.storedparam import StoredParameter, stored_parameters
from repro_audit.errors import InconclusiveError


def make(stored: torch.dtype = torch.bfloat16) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4)).to(stored).eval()


def bits(tensor: torch.Tensor) -> list[int]:
    kind = torch.int16 if tensor.element_size() == 2 else torch.int32
    result: list[int] = tensor.contiguous().view(kind).flatten().tolist()
    return result


def test_reports_the_activation_type_and_keeps_the_bits() -> None:
    module = make()
    before = module[0].weight
    with stored_parameters(module, torch.float32):
        weight = module[0].weight
        assert isinstance(weight, nn.Parameter)
        assert weight.dtype is torch.float32
        assert weight.is_floating_point()
        assert {p.dtype for p in module.parameters()} == {torch.float32}
        assert weight.stored.data_ptr() == before.data_ptr()
        assert "bfloat16" in repr(weight)
    assert module[0].weight is before


def test_is_put_back_after_an_error() -> None:
    module = make()
    before = list(module.parameters())
    with pytest.raises(ZeroDivisionError), stored_parameters(module, torch.float32):
        raise ZeroDivisionError
    assert all(a is b for a, b in zip(before, module.parameters(), strict=True))


def test_tied_parameters_share_one_wrapper_and_equal_types_none() -> None:
    module = make()
    module.add_module("tied", nn.Linear(6, 4))
    module.tied.weight = module[0].weight
    with stored_parameters(module, torch.float32):
        assert module.tied.weight is module[0].weight
    with stored_parameters(module, torch.bfloat16):
        assert type(module[0].weight) is nn.Parameter


@pytest.mark.parametrize(
    ("stored", "active"), [("bfloat16", "float32"), ("float32", "bfloat16"), ("float16", "float32")]
)
def test_kernels_read_the_file_and_the_rest_reads_the_value(stored: str, active: str) -> None:
    module = make(getattr(torch, stored))
    kind = getattr(torch, active)
    x = torch.randn(3, 6).to(kind)
    weight, bias = module[0].weight.detach(), module[0].bias.detach()
    with audited(), stored_parameters(module, kind), ProfileMode(table(), {}):
        product = module[0](x)
        transposed = x @ module[0].weight.t()
        value = module[0].weight * 1
        part = module[0].weight.view(2, 12)[1].unsqueeze(0)
        assert type(part) is StoredParameter
        assert part.dtype is kind
        upcast = part.to(torch.float32)
        table_rows = nn.functional.embedding(torch.tensor([2, 0]), module[0].weight)
    assert bits(product) == bits(gemm.linear(x, weight, bias, out_dtype=kind))
    assert bits(transposed) == bits(gemm.matmul(x, weight.t(), out_dtype=kind))
    assert bits(value) == bits(weight.to(kind))
    assert bits(upcast) == bits(weight.to(kind).float().view(2, 12)[1:])
    assert bits(table_rows) == bits(weight[[2, 0]].to(kind))


def test_a_write_to_a_parameter_is_refused() -> None:
    module = make()
    with (
        pytest.raises(InconclusiveError, match="writes to a parameter"),
        audited(),
        stored_parameters(module, torch.float32),
        ProfileMode(table(), {}),
    ):
        module[0].weight.add_(1.0)
    plain = make(torch.float32)
    with (
        pytest.raises(InconclusiveError, match=r"wrote to 1\.weight"),
        stored_parameters(plain, torch.float32),
    ):
        plain[1].weight.data.add_(0.0)
        with torch.no_grad():
            plain[1].weight.mul_(2.0)


def test_outside_the_engine_it_refuses() -> None:
    module = make()
    with (
        stored_parameters(module, torch.float32),
        pytest.raises(InconclusiveError, match="outside the engine"),
    ):
        module[0].weight + 1


def test_types_outside_the_profile_are_named() -> None:
    with (
        pytest.raises(InconclusiveError, match=r"0\.weight is float64"),
        stored_parameters(make(torch.float64), torch.float32),
    ):
        pass
