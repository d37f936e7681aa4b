"""``python:module:factory``: any nn.Module, made by code that the user names on the command line.

The only place that imports a user's code, and only ever for a name typed by the user.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from repro_kernels.errors import KernelError

from repro_audit.errors import InconclusiveError, ReproAuditError, UsageError
from repro_audit.manifest.omsroot import tensor_list_root
from repro_audit.models.account import named_tensors
from repro_audit.models.build import digest_tensors, first_line
from repro_audit.models.digests import sha256_of
from repro_audit.models.loaded import LoadedModel
from repro_audit.models.spec import ModelSpec
from repro_audit.progress import Observer


def load_python(spec: ModelSpec, *, observer: Observer) -> LoadedModel:
    """Import the module, call the factory, check what it returns.

    The factory takes no arguments and returns an ``nn.Module`` in evaluation mode, or that and a dict of its
    forward's keyword arguments, all tensors.

    Raises:
        UsageError: no such module or factory, the factory failed, or it returned something else.
        InconclusiveError: the module is in training mode, or a weight lies outside the contract.
    """
    observer.stage("Making the model")
    made = _call(spec)
    module, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(module, torch.nn.Module):
        raise UsageError(
            f"{spec.name} returned {type(module).__name__}",
            hint="return an nn.Module, or (nn.Module, inputs)",
        )
    training = next((path or "the model" for path, child in module.named_modules() if child.training), None)
    if training is not None:
        raise InconclusiveError(
            f"{spec.name}: {training} is in training mode", hint="call .eval() on the model in the factory"
        )
    tensors = digest_tensors(module, observer)
    module.requires_grad_(False)
    return LoadedModel(
        kind="python",
        name=spec.name,
        module=module,
        tensors=tensors,
        config_digest=_structure(module),
        root=tensor_list_root(tensors),
        tied=named_tensors(module)[1],
        example_inputs=_inputs(spec, inputs),
    )


def _call(spec: ModelSpec) -> object:
    with _working_directory_importable(), UserCode(f"making {spec.name}"):
        try:
            namespace = importlib.import_module(spec.module)
        except ImportError as error:
            raise UsageError(
                f"cannot import {spec.module} ({error})", hint="run where it can be imported, or install it"
            ) from error
        factory = getattr(namespace, spec.factory, None)
        if not callable(factory):
            raise UsageError(
                f"{spec.module} has no function {spec.factory}", hint="check the name after the colon"
            )
        made: object = factory()
    return made


class UserCode:
    """Context manager around code that is neither ours nor a library's: what it raises is its author's news.

    Args:
        what: what was going on, as ``making python:module:factory``.

    Raises:
        UsageError: on leaving the block by an exception or ``SystemExit`` that is not ours.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Replace the error, unless it is one of ours, of the kernels', or an interruption."""
        if isinstance(error, ReproAuditError | KernelError | MemoryError) or "allocate memory" in str(error):
            return
        if isinstance(error, Exception | SystemExit):
            raise UsageError(
                f"{self._what} failed: {type(error).__name__}: {first_line(error)}",
                hint="pass -v for its traceback",
            ) from error


def forward_of(model: LoadedModel) -> AbstractContextManager[None]:
    """Around a forward pass: :class:`UserCode` of a ``python:`` model, nothing of others."""
    return UserCode(f"the forward pass of {model.name}") if model.kind == "python" else nullcontext()


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    """A console script does not look in the working directory; ``python -m`` does, and so do we."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _inputs(spec: ModelSpec, inputs: object) -> dict[str, torch.Tensor] | None:
    if inputs is None:
        return None
    if not isinstance(inputs, Mapping):
        raise UsageError(
            f"{spec.name} returned inputs that are no dict", hint="return (module, {name: tensor})"
        )
    for key, value in inputs.items():
        if not (isinstance(key, str) and isinstance(value, torch.Tensor)):
            raise UsageError(
                f"{spec.name}: input {key!r} is not a tensor", hint="return (module, {name: tensor})"
            )
    return dict(inputs)


def _structure(module: torch.nn.Module) -> str:
    """A Python model's config: its modules' paths, classes and settings, as torch 2.11 prints them."""
    return sha256_of(
        [[path, type(child).__qualname__, _settings(child)] for path, child in module.named_modules()]
    )


def _settings(module: torch.nn.Module) -> str:
    if isinstance(module, torch.nn.LayerNorm):
        # Later versions print whether it has a bias, which its tensors say; a digest must not move with them.
        shape, affine = module.normalized_shape, module.elementwise_affine
        return f"{shape}, eps={module.eps}, elementwise_affine={affine}"
    return module.extra_repr()
