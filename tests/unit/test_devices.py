"""Devices by name, what is refused before a run, and what a failing GPU is turned into: no GPU is needed."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from repro_kernels import ops
from repro_kernels.cpu import gemm
from repro_kernels.errors import UnsupportedError
from torch import nn

from repro_audit import devices
from repro_audit.cli.options import known_device
from repro_audit.errors import InconclusiveError, UsageError


@pytest.fixture
def gpu(monkeypatch):
    """A machine with one GPU, as PyTorch would tell of it; its capability and free memory can be set."""
    state = {"capability": (9, 0), "free": 1 << 30}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: state["capability"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Tesla X")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (state["free"], 2 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    pytest.importorskip("triton")
    return state


def test_names():
    for name in ("auto", "cpu", "cuda", "cuda:0", "cuda:12"):
        assert known_device(name) == name
    for name in ("gpu", "cuda:", "cuda:x", "cuda:0,1", "cpu:0", "CUDA", ""):
        with pytest.raises(UsageError, match="choose auto, cpu, cuda or cuda:N"):
            known_device(name)


def test_a_machine_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices.resolve("auto") == devices.resolve("cpu") == "cpu"
    with pytest.raises(InconclusiveError, match="no CUDA GPU is present") as refusal:
        devices.resolve("cuda")
    assert "--device cpu" in refusal.value.hint


def test_a_machine_with_one(gpu):
    assert devices.resolve("auto") == devices.resolve("cuda") == devices.resolve("cuda:0") == "cuda:0"
    with pytest.raises(InconclusiveError, match=r"cuda:1 .* has 1 CUDA GPU"):
        devices.resolve("cuda:1")


def test_an_old_gpu_is_refused_by_name(gpu):
    gpu["capability"] = (7, 5)
    assert devices.resolve("auto") == "cpu"
    with pytest.raises(InconclusiveError, match=r"Tesla X has compute capability 7\.5") as refusal:
        devices.resolve("cuda")
    assert "--device cpu" in refusal.value.hint


def test_too_little_memory_is_told_with_the_numbers(gpu):
    model = nn.Linear(16384, 16384, bias=False)
    assert devices.weights_bytes(model) == 1 << 30
    gpu["free"] = 1 << 29
    told = pytest.raises(InconclusiveError, match=r"0\.50 GiB free, the run needs about 1\.00 \(weights\)")
    with told, devices.placed(model, "cuda:0"):
        pass
    assert model.weight.device.type == "cpu"


def test_placed_puts_everything_back_and_keeps_ties(gpu):
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    model.kept = kept = torch.ones(2)
    before = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())
    with devices.placed(model, "meta"):
        assert {t.device.type for t in model.state_dict().values()} == {"meta"}
        assert model[2].weight is model[0].weight and isinstance(model[0].weight, nn.Parameter)
        assert model.kept.device.type == "meta"
    assert model.kept is kept
    after = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())
    assert all(after[name] is value for name, value in before.items())


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "the memory of cuda:0 ran out"),
        (
            torch.AcceleratorError("CUDA error: launch failure\nmore"),
            "launch failure",
        ),
        (RuntimeError("Expected all tensors to be on the same device, but"), "on cuda:0: Expected all"),
        (RuntimeError("CUDA driver version is insufficient"), "on cuda:0: CUDA driver"),
    ],
)
def test_a_failing_gpu_is_one_sentence(raised, said):
    pytest.importorskip("triton")
    with pytest.raises(InconclusiveError, match=said) as refusal, devices.failures_named("cuda:0"):
        raise raised
    assert "\n" not in refusal.value.message and "--device cpu" in refusal.value.hint


def test_a_kernel_that_does_not_compile_is_one_sentence():
    errors = pytest.importorskip("triton.runtime.errors")
    with pytest.raises(InconclusiveError, match="could not be compiled"), devices.failures_named("cuda:0"):
        raise errors.PTXASError("ptxas fatal")


def test_a_missing_c_compiler_is_one_sentence(tmp_path, monkeypatch):
    build = pytest.importorskip("triton.runtime.build")
    monkeypatch.setenv("CC", str(tmp_path / "no-compiler"))
    parameters = inspect.signature(build._build).parameters.values()
    lists: list[list[str]] = [[] for p in parameters if p.default is p.empty][3:]
    with pytest.raises(InconclusiveError) as refusal, devices.failures_named("cuda:0"):
        build._build("x", str(tmp_path / "x.c"), str(tmp_path), *lists)
    said = "a kernel could not be compiled for cuda:0: FileNotFoundError"
    assert refusal.value.message.startswith(said) and "--device cpu" in refusal.value.hint


def test_a_missing_library_of_the_driver_is_one_sentence(monkeypatch):
    driver = pytest.importorskip("triton.backends.nvidia.driver")
    monkeypatch.setattr(driver.subprocess, "check_output", lambda command: b"")
    for name in ("LD_LIBRARY_PATH", "TRITON_LIBCUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InconclusiveError, match="libcuda") as refusal, devices.failures_named("cuda:0"):
        driver.libcuda_dirs.__wrapped__()
    assert "\n" not in refusal.value.message


def test_the_reason_why_there_is_no_gpu(monkeypatch):
    def init():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nUpdate it")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    with pytest.raises(InconclusiveError, match=r"driver on your system is too old \(found version 11040\)"):
        devices.resolve("cuda:0")


def test_other_faults_stay_what_they_are():
    pytest.importorskip("triton")
    for device, raised in (("cuda:0", RuntimeError("a bug")), ("cpu", RuntimeError("CUDA"))):
        with pytest.raises(RuntimeError) as kept, devices.failures_named(device):
            raise raised
        assert kept.value is raised


class OnGpu(torch.Tensor):
    """A tensor that says it lies on a GPU; there is nothing in it."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} was called")


@pytest.fixture
def fake_kernels(monkeypatch):
    """Modules in place of the GPU's; what they were called with."""
    calls = []
    for area, function in (("gemm", "linear"), ("softmax", "softmax"), ("order", "relu")):
        module = ModuleType(f"repro_kernels.gpu.{area}")
        setattr(module, function, lambda *a, _name=f"{area}.{function}", **k: calls.append((_name, a, k)))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return calls


def test_kernels_of_the_gpu_are_called_for_its_tensors_alone(fake_kernels):
    x = torch.Tensor._make_wrapper_subclass(OnGpu, (2, 3), dtype=torch.float32, device="cuda:0")
    w = torch.ones(4, 3)
    ops.gemm.linear(x, w, out_dtype=torch.float32)
    ops.gemm.linear(x=x, w=w)
    ops.reduce.softmax(x, -1)  # where its neighbour defines it
    ops.reduce.relu(x)
    linear = "gemm.linear"
    assert [call[0] for call in fake_kernels] == [linear, linear, "softmax.softmax", "order.relu"]
    assert fake_kernels[0][1:] == ((x, w), {"out_dtype": torch.float32})
    ops.gemm.linear(torch.ones(2, 3), w)
    ops.reduce.softmax(torch.tensor(1.0), 0)
    assert len(fake_kernels) == 4


def test_a_run_on_the_cpu_imports_no_kernel_of_the_gpu():
    code = (
        "import sys; from repro_audit import engine; from tests.helpers.engine_runs import settings, tiny; "
        "engine.record(tiny(), [engine.Request(0, (3, 4, 5))], settings()); "
        "assert not [name for name in sys.modules if name.startswith('repro_kernels.gpu')]"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, root / "kernels")))}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, env=environment)


def test_operands_decide_where_a_kernel_runs(monkeypatch):
    x, w = torch.ones(2, 3), torch.ones(4, 3)
    assert ops.gemm.linear(x, w).shape == (2, 4)
    assert ops.elementary.ELEMENTARY == __import__("repro_kernels.cpu.elementary", fromlist=["x"]).ELEMENTARY
    with pytest.raises(UnsupportedError, match="linear on meta"):
        ops.gemm.linear(x.to("meta"), w)
    with pytest.raises(UnsupportedError, match="pow on meta"):
        ops.elementary.pow(2.0, x.to("meta"))
    assert ops.gemm.linear is ops.gemm.linear and ops.gemm.linear is not gemm.linear
