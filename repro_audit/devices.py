"""Where a run computes: the device by name, the model placed on it, its memory, and its failures in words."""

from __future__ import annotations

import subprocess
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from repro_audit.errors import InconclusiveError

#: The first compute capability that the GPU kernels are made for, as ``repro_kernels.gpu.runtime.OLDEST``.
OLDEST = (8, 0)
#: What PyTorch says, in plain RuntimeErrors, of faults that are the device's or the model's and not ours.
_DEVICE_FAULTS = ("same device", "CUDA", "deterministic implementation")
_CPU_INSTEAD = "use --device cpu, which gives the same bits"


def resolve(name: str) -> str:
    """The device that ``--device`` means here: ``cpu`` or ``cuda:N``.

    Args:
        name: ``auto`` (a GPU that the kernels run on, else the CPU), ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        InconclusiveError: a GPU that is not there, or that the kernels do not run on.
    """
    if name == "cpu" or (name == "auto" and unusable(0) is not None):
        return "cpu"
    index = int(name.partition(":")[2] or 0)
    reason = unusable(index)
    if reason is not None:
        raise InconclusiveError(f"device {name} cannot be used: {reason}", hint=_CPU_INSTEAD)
    return f"cuda:{index}"


def unusable(index: int) -> str | None:
    """Why CUDA device ``index`` cannot run the profile, or None."""
    if not torch.cuda.is_available():
        return f"no CUDA GPU is present{_absence()}"
    if torch.version.hip is not None:
        return "an AMD GPU, for which the kernels are not made yet"
    if index >= torch.cuda.device_count():
        return f"this machine has {torch.cuda.device_count()} CUDA GPU(s), numbered from 0"
    found = torch.cuda.get_device_capability(index)
    if found < OLDEST:
        name = torch.cuda.get_device_name(index)
        return f"{name} has compute capability {found[0]}.{found[1]}, the kernels need 8.0 or later"
    try:
        import triton  # noqa: F401
    except ImportError:
        return "Triton is not installed (pip install 'triton>=3.6')"
    return None


def _absence() -> str:
    """PyTorch's reason, such as a driver that is too old, in parentheses; empty if it gives none."""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return f" ({_first_line(error)})"
    return ""


def weights_bytes(module: nn.Module, elsewhere_than: str | None = None) -> int:
    """Bytes of the parameters and buffers, tied ones once; those of one device can be left out."""
    tensors = {id(t): t for t in (*module.parameters(), *module.buffers())}
    return sum(t.nbytes for t in tensors.values() if str(t.device) != elsewhere_than)


def require_memory(device: str, needed: int, what: str) -> None:
    """Say before a run that a GPU is too small for it.

    Args:
        device: ``cpu`` (never refused here) or ``cuda:N``.
        needed: bytes.
        what: of what, in a few words.

    Raises:
        InconclusiveError: fewer bytes are free.
    """
    if device == "cpu":
        return
    # What PyTorch's allocator holds and does not use is free as well.
    free = torch.cuda.mem_get_info(device)[0]
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if needed > free:
        raise InconclusiveError(
            f"{device} has {free / 2**30:.2f} GiB free, the run needs about {needed / 2**30:.2f} ({what})",
            hint=f"lower --batch-size or --prefill-chunk, or {_CPU_INSTEAD}",
        )


@contextmanager
def placed(module: nn.Module, device: str) -> Iterator[None]:
    """Copies of a model's parameters and buffers on ``device`` while the context lasts; ties stay ties.

    Tensors that modules keep in plain attributes are copied as well.

    Raises:
        InconclusiveError: the GPU is too small for the weights.
    """
    if device == "cpu":
        yield
        return
    require_memory(device, weights_bytes(module, device), "weights")
    undo: list[tuple[dict[str, Any], str, torch.Tensor]] = []
    copies: dict[int, torch.Tensor] = {}
    try:
        for child in module.modules():
            tables: tuple[dict[str, Any], ...] = (child._parameters, child._buffers, child.__dict__)
            for entries in tables:
                for name, tensor in list(entries.items()):
                    if not isinstance(tensor, torch.Tensor):
                        continue
                    if id(tensor) not in copies:
                        copy = tensor.detach().to(device)
                        if isinstance(tensor, nn.Parameter):
                            copy = nn.Parameter(copy, requires_grad=False)
                        copies[id(tensor)] = copy
                    undo.append((entries, name, tensor))
                    entries[name] = copies[id(tensor)]
        yield
    finally:
        for entries, name, tensor in reversed(undo):
            entries[name] = tensor


@contextmanager
def failures_named(device: str) -> Iterator[None]:
    """Turn what a GPU or its compiler raises into one sentence.

    Raises:
        InconclusiveError: memory ran out, the GPU failed, a kernel could not be compiled, PyTorch has no
            deterministic kernel for an operator, or the model mixes devices.
    """
    if device == "cpu":
        yield
        return
    from triton.errors import TritonError

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise InconclusiveError(
            f"the memory of {device} ran out",
            hint=f"lower --batch-size or --prefill-chunk, or {_CPU_INSTEAD}",
        ) from error
    except torch.AcceleratorError as error:
        raise InconclusiveError(
            f"{device} failed: {_first_line(error)}", hint=f"check the GPU, or {_CPU_INSTEAD}"
        ) from error
    except (TritonError, RuntimeError, AssertionError, OSError, subprocess.SubprocessError) as error:
        # Triton needs a C compiler, Python's headers, ptxas and the driver's library; what it raises where
        # one of them is missing is no TritonError.
        if isinstance(error, TritonError) or _in_triton(error):
            said = (
                f"a kernel could not be compiled for {device}: {type(error).__name__}: {_first_line(error)}"
            )
        elif type(error) is RuntimeError and any(words in str(error) for words in _DEVICE_FAULTS):
            said = f"on {device}: {_first_line(error)}"
        else:
            raise
        raise InconclusiveError(said, hint=_CPU_INSTEAD) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _in_triton(error: Exception) -> bool:
    frames = traceback.walk_tb(error.__traceback__)
    return any(str(frame.f_globals.get("__name__")).startswith("triton.") for frame, _ in frames)
