"""Checks of arguments that the CPU's and the GPU's functions share: one text, one message, on any device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from repro_kernels.cpu.layout import axis, number
from repro_kernels.errors import UnsupportedError

Dims = int | Sequence[int] | None
"""An axis, several axes, or (None or an empty sequence) all of them."""


def reduced_axes(x: torch.Tensor, dim: Dims) -> list[int]:
    """The reduced axes, ascending.

    Raises:
        IndexError: no such axis, or one named twice.
    """
    if isinstance(dim, int):
        return [axis(x, dim)][: x.dim()]
    if not dim:
        return list(range(x.dim()))
    dims = sorted({axis(x, d) for d in dim})
    if len(dims) != len(dim):
        raise IndexError(f"dim {tuple(dim)} names an axis twice")
    return dims[: x.dim()]


def same_type(operation: str, x: torch.Tensor, source: torch.Tensor) -> int:
    """The C number of the one floating dtype of both.

    Raises:
        UnsupportedError: another dtype, or two dtypes.
    """
    if x.dtype != source.dtype:
        raise UnsupportedError(f"{operation} of {source.dtype} into {x.dtype}")
    return number(x.dtype, operation)


def require_index_add(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> None:
    """The shapes of an ``index_add`` along an axis counted from 0, x with at least one.

    Raises:
        ValueError: they do not fit.
    """
    expected = [*x.shape[:dim], index.numel(), *x.shape[dim + 1 :]]
    if index.dim() > 1 or list(source.shape) != expected:
        raise ValueError(f"index_add: source has shape {tuple(source.shape)}, not {tuple(expected)}")


def require_scatter_add(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> None:
    """The shapes of a ``scatter_add`` along an axis counted from 0, x with at least one.

    Raises:
        ValueError: they do not fit.
    """
    if (
        index.dim() != x.dim()
        or source.dim() != x.dim()
        or any(
            size > source.shape[d] or (d != dim and size > x.shape[d]) for d, size in enumerate(index.shape)
        )
    ):
        raise ValueError(
            f"scatter_add: index {tuple(index.shape)} does not fit x {tuple(x.shape)} "
            f"and source {tuple(source.shape)}"
        )


def checked_index(index: torch.Tensor, size: int) -> torch.Tensor:
    """The index as contiguous int64, every element in 0 .. size - 1.

    Raises:
        IndexError: one is not.
    """
    indices = index.to(torch.int64).contiguous()
    if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < size:
        raise IndexError(f"an index is out of range for an axis of {size}")
    return indices


def composite_parameters(
    name: str,
    defaults: Mapping[str, float] | None,
    parameters: Sequence[float],
    named: Mapping[str, float],
) -> tuple[float, ...]:
    """All parameters of an elementwise composite, in ATen's order.

    Args:
        name: of the composite.
        defaults: its parameters at their defaults; None if there is no such composite.
        parameters: the leading ones that were given.
        named: those given by name.

    Raises:
        UnsupportedError: no such composite, or a parameter that it does not have or that was given twice.
    """
    if defaults is None:
        raise UnsupportedError(f"elementwise function {name} with parameters")
    given = dict(zip(defaults, parameters, strict=False))
    unknown = [key for key in named if key not in defaults or key in given]
    if unknown or len(parameters) > len(defaults):
        raise UnsupportedError(f"{name} with the parameter {unknown[0] if unknown else parameters[-1]!r}")
    return tuple({**defaults, **given, **named}.values())
