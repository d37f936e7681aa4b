"""``python:`` models: only what was named is imported, and only a module ready for inference is taken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from repro_audit import models
from repro_audit.errors import InconclusiveError, UsageError
from repro_audit.models.python_factory import _settings, forward_of

HELPERS = "python:tests.helpers.tiny_models"


def write(folder: Path, name: str, body: str) -> str:
    (folder / f"{name}.py").write_text(f"import torch\n\n\ndef make():\n    {body}\n")
    return f"python:{name}:make"


def test_module_and_inputs():
    model = models.load(f"{HELPERS}:make_mlp_with_inputs")
    assert model.kind == "python" and model.name == f"{HELPERS}:make_mlp_with_inputs" and model.files == ()
    assert model.example_inputs is not None and model.example_inputs["x"].shape == (3, 8)
    assert [item.name for item in model.tensors] == sorted(
        ["norm.weight", "norm.bias", "up.weight", "up.bias", "down.weight", "down.bias", "scale"]
    )
    assert model.tensors == models.load(f"{HELPERS}:make_mlp").tensors
    assert models.load(f"{HELPERS}:make_mlp").example_inputs is None
    with pytest.raises(InconclusiveError, match="has no tokenizer"):
        model.encode("x")


@pytest.mark.parametrize(
    ("factory", "error", "message"),
    [
        ("make_training", InconclusiveError, r"the model is in training mode; call \.eval\(\)"),
        ("make_nothing", UsageError, "returned object; return an nn.Module"),
        ("no_such", UsageError, "has no function no_such"),
    ],
)
def test_refused(factory, error, message):
    with pytest.raises(error, match=message):
        models.load(f"{HELPERS}:{factory}")


@pytest.mark.parametrize(
    "body", ["raise RuntimeError('boom')", "return 1 / 0", "import sys; sys.exit(0)", "assert False"]
)
def test_a_factory_that_fails(tmp_path, monkeypatch, body):
    """Not even with SystemExit(0), which would pass for a verdict."""
    monkeypatch.chdir(tmp_path)
    name = f"failing_{abs(hash(body))}"
    with pytest.raises(UsageError, match=f"making python:{name}:make failed: "):
        models.load(write(tmp_path, name, body))


def test_a_forward_pass_that_fails():
    model = models.load(f"{HELPERS}:make_mlp")
    for error in (ZeroDivisionError("x"), TypeError("x"), SystemExit(0)):
        with pytest.raises(UsageError, match=r"the forward pass of .* failed"), forward_of(model):
            raise error
    for error in (InconclusiveError("x"), KeyboardInterrupt(), MemoryError()):
        with pytest.raises(type(error)), forward_of(model):
            raise error


def test_a_submodule_in_training_mode_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    body = "m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout()).eval(); m[1].train(); return m"
    with pytest.raises(InconclusiveError, match="half_trained:make: 1 is in training mode"):
        models.load(write(tmp_path, "half_trained", body))


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        (
            "m_double",
            "return torch.nn.Linear(2, 2).double().eval()",
            "parameter bias has dtype torch.float64",
        ),
        ("m_meta", "return torch.nn.Linear(2, 2, device='meta').eval()", "bias is on device meta"),
        (
            "m_nan",
            "m = torch.nn.Linear(2, 2).eval(); m.weight.data[1, 1] = float('nan'); return m",
            "weight weight holds NaN at flat index 3",
        ),
    ],
)
def test_weights_outside_the_contract(tmp_path, monkeypatch, name, body, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InconclusiveError, match=message):
        models.load(write(tmp_path, name, body))


def test_the_working_directory_is_searched_and_then_forgotten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert models.load(write(tmp_path, "m_here", "return torch.nn.Linear(2, 2).eval()")).kind == "python"
    assert sys.path == before
    with pytest.raises(UsageError, match="cannot import no_such_module_anywhere"):
        models.load("python:no_such_module_anywhere:make")


def test_bad_inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="input 'x' is not a tensor"):
        models.load(write(tmp_path, "m_inputs", "return torch.nn.Linear(2, 2).eval(), {'x': [1.0]}"))


def test_structure_is_part_of_the_identity(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = models.load(write(tmp_path, "m_relu", "return torch.nn.Sequential(torch.nn.ReLU()).eval()"))
    second = models.load(write(tmp_path, "m_gelu", "return torch.nn.Sequential(torch.nn.GELU()).eval()"))
    assert first.config_digest != second.config_digest


def test_infinite_buffers_are_allowed_and_hashed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mask = "m.register_buffer('mask', torch.tensor([0.0, -torch.inf]))"
    body = f"m = torch.nn.Linear(2, 2).eval(); {mask}; return m"
    assert "mask" in {item.name for item in models.load(write(tmp_path, "m_mask", body)).tensors}


def test_settings_are_those_of_every_torch_version():
    """torch 2.11 prints a LayerNorm without its bias, 2.13 with it."""
    assert _settings(torch.nn.LayerNorm(8)) == "(8,), eps=1e-05, elementwise_affine=True"
    assert _settings(torch.nn.Linear(2, 3)) == "in_features=2, out_features=3, bias=True"
