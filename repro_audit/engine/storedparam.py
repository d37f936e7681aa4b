"""Parameters that say one dtype and hold another: the file's bits in memory, the activation type to model
code.

numerics.md, Ground rules: parameters keep their file's bits and are upcast exactly inside the kernel, while
``model.dtype`` and every ``.dtype`` that model code reads report the activation type.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

from repro_audit.errors import InconclusiveError

#: Types a parameter may have in memory; anything else is outside the profile.
STORED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class StoredParameter(torch.Tensor):
    """A tensor that reports the activation dtype ``a`` and holds the file's tensor in ``stored``.

    Views of it stay lazy: a transpose of a stored parameter is the stored parameter of the transpose. Kernels
    of the linear family read ``stored``; every other operator reads :meth:`materialise`.
    """

    stored: torch.Tensor
    _is_param: bool

    @staticmethod
    def __new__(cls, stored: torch.Tensor, dtype: torch.dtype) -> StoredParameter:
        """Wrap ``stored`` (any shape, strides; a dtype of :data:`STORED_DTYPES`) so that it reports
        ``dtype``.
        """
        wrapper: StoredParameter = torch.Tensor._make_wrapper_subclass(
            cls,
            stored.size(),
            strides=stored.stride(),
            storage_offset=stored.storage_offset(),
            dtype=dtype,
            device=stored.device,
            requires_grad=False,
        )
        wrapper.stored = stored
        # nn.Parameter's instance check asks for this flag; model code that tells parameters apart keeps
        # working.
        wrapper._is_param = True
        return wrapper

    def materialise(self) -> torch.Tensor:
        """The value as the activation type: exact when the stored type is narrower, else RN_a."""
        return self.stored.to(self.dtype)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> NoReturn:
        raise InconclusiveError(
            f"a parameter reached {func} outside the engine",
            hint="run the model through repro_audit.engine only",
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"StoredParameter({tuple(self.shape)}, {self.stored.dtype} as {self.dtype})"


def stored_of(tensor: torch.Tensor) -> torch.Tensor:
    """The file's tensor behind ``tensor``, or ``tensor`` itself."""
    return tensor.stored if type(tensor) is StoredParameter else tensor


def check_stored(name: str, tensor: torch.Tensor) -> None:
    """Refuse a floating parameter or buffer whose type the profile does not define.

    Raises:
        InconclusiveError: for float64, float8 and complex tensors, by name.
    """
    if (tensor.is_floating_point() or tensor.is_complex()) and tensor.dtype not in STORED_DTYPES:
        raise InconclusiveError(
            f"{name} is {str(tensor.dtype).removeprefix('torch.')}, which profile fp32 does not define",
            hint="store it as float32, bfloat16 or float16",
        )


@contextmanager
def stored_parameters(module: torch.nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Swap a :class:`StoredParameter` in for every floating parameter and floating persistent buffer.

    A tensor that already has the activation type stays as it is: there is nothing to hide. Tied parameters
    share one wrapper. Everything is put back on the way out, whatever happened.

    Raises:
        InconclusiveError: for a dtype outside the profile, or a parameter that the forward pass wrote to.
    """
    undo: list[tuple[dict[str, Any], str, torch.Tensor]] = []
    wrapped: dict[int, StoredParameter] = {}
    versions: list[tuple[str, torch.Tensor, int]] = []
    try:
        for path, child in module.named_modules():
            persistent = {
                k: v for k, v in child._buffers.items() if k not in child._non_persistent_buffers_set
            }
            for table, names in ((child._parameters, child._parameters), (child._buffers, persistent)):
                for name in list(names):
                    tensor = table[name]
                    if tensor is None:
                        continue
                    full = f"{path}.{name}" if path else name
                    check_stored(full, tensor)
                    if not tensor.is_inference():
                        versions.append((full, tensor, tensor._version))
                    if not tensor.is_floating_point() or tensor.dtype == dtype:
                        continue
                    undo.append((table, name, tensor))
                    if id(tensor) not in wrapped:
                        wrapped[id(tensor)] = StoredParameter(tensor.detach(), dtype)
                    table[name] = wrapped[id(tensor)]
        yield
        for full, tensor, version in versions:
            if tensor._version != version:
                raise InconclusiveError(
                    f"the forward pass wrote to {full}",
                    hint="audit a model whose parameters and buffers do not change",
                )
    finally:
        for table, name, tensor in undo:
            table[name] = tensor
