"""Padding, pooling and resampling by windows: index arithmetic on the host, gathers, and rows of the table.

A window that hangs over an edge is gathered with its outside positions replaced by its first inside one, so
every gathered element is real; averages then replace them by +0. Everything on floats is a move, or an
operator that the table has: a sum by the segment rule, a division, a maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch
from repro_kernels.spec.floats import mul, rn32

_Tensor = torch.Tensor


def pad(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """reflection_pad and replication_pad: copies of elements; PyTorch checks the sizes on an empty tensor."""
    value, amounts = args[0], args[1]
    func(value.new_empty(value.shape, device="meta"), amounts)
    reflects = "reflection" in func._schema.name
    for axis in range(len(amounts) // 2):
        before, after = amounts[2 * axis], amounts[2 * axis + 1]
        size = value.shape[-1 - axis]
        places = range(-before, size + after)
        inside = [_reflected(i, size) if reflects else min(max(i, 0), size - 1) for i in places]
        value = value.index_select(value.dim() - 1 - axis, torch.tensor(inside, device=value.device))
    return value


def _reflected(i: int, size: int) -> int:
    return size - 1 - abs(size - 1 - abs(i))


def average(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """avg_pool2d, avg_pool3d: RN_out(RN(segment sum of the window in C order, padding as +0) / RN(count))."""
    axes = 3 if "3d" in func._schema.name else 2
    kernel, stride, padding, ceil, whole, divisor = _take(
        args, kwargs, (None, (), 0, False, True, None),
        ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    )  # fmt: skip
    value = args[0]
    _check(func, value, args, kwargs)
    spans = _spans(value, axes, kernel, stride, padding, ceil=ceil)
    inside, counts = _mask(spans, value.device), []
    for span in spans:
        counts.append([len(w) if not whole else span.reach(o) for o, w in enumerate(span.windows)])
    elements = _windows(value, spans).masked_fill(~inside, 0.0)
    total = mode.call("sum.dim_IntList", elements.float(), [-1])
    number = torch.tensor(counts[0])
    for more in counts[1:]:
        number = number[..., None] * torch.tensor(more)
    if divisor is not None:
        number = torch.full_like(number, divisor)
    by = number.to(torch.float32).to(value.device)
    return mode.call("div.Tensor", total, by).to(value.dtype)


def maximum(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """max_pool2d, max_pool3d with indices: of equals the first in C order, a NaN above every number."""
    axes = 3 if "3d" in func._schema.name else 2
    kernel, stride, padding, dilation, ceil = _take(
        args, kwargs, (None, (), 0, 1, False), ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    )
    value = args[0]
    _check(func, value, args, kwargs)
    spans = _spans(value, axes, kernel, stride, padding, dilation=dilation, ceil=ceil)
    found, chosen = mode.call("max.dim", _windows(value, spans), -1)
    places = _windows(
        torch.arange(math.prod(value.shape[-axes:]), device=value.device).reshape(value.shape[-axes:]), spans
    )
    indices = places.expand(*chosen.shape, places.shape[-1]).gather(-1, chosen[..., None])[..., 0]
    return found, indices


def nearest(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """upsample_nearest2d: result i is element min(floor(RN(i * s)), size - 1), s = RN(size / result's size).

    With scale factors s is RN of the double 1 / factor.
    """
    value, sizes, scales = args[0], _at(args, kwargs, 1, "output_size"), _at(args, kwargs, 2, "scale_factors")
    for axis in (-2, -1):
        size = value.shape[axis]
        if sizes is not None:
            count, step = sizes[axis], rn32(Fraction(size, sizes[axis]))
        else:
            count, step = math.floor(float(size) * scales[axis]), rn32(1.0 / scales[axis])
        chosen = [min(math.floor(mul(float(i), step)), size - 1) for i in range(count)]
        value = value.index_select(value.dim() + axis, torch.tensor(chosen, device=value.device))
    return value


class _Span:
    """The windows along one axis: for each result, the positions inside, and its slot for every element."""

    def __init__(
        self, size: int, kernel: int, stride: int, padding: int, *, dilation: int, ceil: bool
    ) -> None:
        self.size, self.kernel, self.stride, self.padding = size, kernel, stride, padding
        reach = dilation * (kernel - 1) + 1
        extra = size + 2 * padding - reach
        count = (-(-extra // stride) if ceil else extra // stride) + 1
        if ceil and (count - 1) * stride >= size + padding:
            count -= 1  # the last window must begin inside
        starts = [o * stride - padding for o in range(count)]
        slots = [[start + k * dilation for k in range(kernel)] for start in starts]
        self.windows = [[i for i in slot if 0 <= i < size] for slot in slots]
        self.places = [
            [i if 0 <= i < size else inside[0] for i in slot]
            for slot, inside in zip(slots, self.windows, strict=True)
        ]
        self.inside = [[0 <= i < size for i in slot] for slot in slots]

    def reach(self, o: int) -> int:
        """Elements of window `o`, padding counted but not what lies beyond it."""
        start = o * self.stride - self.padding
        return min(start + self.kernel, self.size + self.padding) - start


def _spans(
    value: _Tensor, axes: int, kernel: Any, stride: Any, padding: Any, *, dilation: Any = 1, ceil: bool
) -> list[_Span]:
    kernels, paddings, dilations = (_each(v, axes) for v in (kernel, padding, dilation))
    strides = kernels if stride is None or stride in ((), []) else _each(stride, axes)
    each = zip(value.shape[-axes:], kernels, strides, paddings, dilations, strict=True)
    return [_Span(size, k, step, p, dilation=d, ceil=ceil) for size, k, step, p, d in each]


def _each(value: Any, axes: int) -> list[int]:
    given = [value] if isinstance(value, int) else list(value)
    return given * axes if len(given) == 1 else given


def _outer(spans: Sequence[_Span], table: Callable[[_Span], Any], axis: int) -> _Tensor:
    """A table [results, slots] of one axis, laid out to broadcast against those of the others."""
    shape = [1] * (2 * len(spans))
    grid = torch.tensor(table(spans[axis]))
    shape[axis], shape[len(spans) + axis] = grid.shape
    return grid.reshape(shape)


def _windows(value: _Tensor, spans: Sequence[_Span]) -> _Tensor:
    """[..., results..., elements of a window in C order]."""
    places = [_outer(spans, lambda span: span.places, axis).to(value.device) for axis in range(len(spans))]
    chosen: tuple[Any, ...] = (..., *places)
    return value[chosen].flatten(-len(spans))


def _mask(spans: Sequence[_Span], device: torch.device) -> _Tensor:
    inside = _outer(spans, lambda span: span.inside, 0)
    for axis in range(1, len(spans)):
        inside = inside & _outer(spans, lambda span: span.inside, axis)
    return inside.flatten(-len(spans)).to(device)


def _check(func: Any, value: _Tensor, args: Any, kwargs: Any) -> None:
    """PyTorch's own checks of shapes and arguments, on a tensor without data."""
    func(torch.empty(value.shape, dtype=value.dtype, device="meta"), *args[1:], **kwargs)


def _at(args: Any, kwargs: Any, index: int, name: str, default: Any = None) -> Any:
    return args[index] if len(args) > index else kwargs.get(name, default)


def _take(args: Any, kwargs: Any, defaults: Sequence[Any], names: Sequence[str]) -> list[Any]:
    pairs = enumerate(zip(names, defaults, strict=True), start=1)
    return [_at(args, kwargs, index, name, default) for index, (name, default) in pairs]
