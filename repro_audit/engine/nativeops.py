"""Operators of the core ATen set that other rows of the table compute: the native norms, convolution; and
division with a whole quotient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from repro_kernels.cpu import remainder

from repro_audit.engine.exactops import FLOATS, checked

_Tensor = torch.Tensor


def convolution(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """convolution as conv1d, conv2d or conv3d; transposed it is refused."""
    value, weight, bias, stride, padding, dilation, transposed, _, groups = args
    if transposed:
        raise mode.refuse(f"operator {func} transposed", "ask for the operator to be specified")
    name = f"conv{weight.dim() - 2}d.default"
    return mode.call(name, value, weight, bias, stride, padding, dilation, groups)


def layer_norm(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """native_layer_norm: layer_norm, the mean, and rsqrt(RN(var + eps)), each rounded to x's type."""
    value, shape, weight, bias, eps = args
    axes = list(range(value.dim() - len(shape), value.dim()))
    found = mode.call("layer_norm.default", value, shape, weight, bias, eps)
    return found, *_statistics(mode, value, axes, eps)


def group_norm(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """native_group_norm: group_norm, and per sample and group the mean and rsqrt(RN(var + eps))."""
    value, weight, bias, batch, _, _, groups, eps = args
    found = mode.call("group_norm.default", value, groups, weight, bias, eps)
    mean, factor = _statistics(mode, value.reshape(batch, groups, -1), [2], eps)
    return found, mean[..., 0], factor[..., 0]


def _statistics(mode: Any, value: _Tensor, axes: list[int], eps: float) -> tuple[_Tensor, _Tensor]:
    wide = value.float()
    mean = mode.call("mean.dim", wide, axes, True)
    variance = mode.call("var.correction", wide, axes, correction=0, keepdim=True)
    factor = mode.call("rsqrt.default", mode.call("add.Scalar", variance, eps))
    return mean.to(value.dtype), factor.to(value.dtype)


def divide_whole(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """div with a rounding mode, floor_divide; integers by PyTorch."""
    rounding = kwargs.get("rounding_mode", "floor")
    if rounding is None:
        return mode.call("div.Tensor" if isinstance(args[1], _Tensor) else "div.Scalar", *args)
    kernel = remainder.div_trunc if rounding == "trunc" else remainder.div_floor
    return _whole(kernel, mode, func, args, kwargs)


def remain(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """fmod, exact, and remainder, which adds the divisor where the signs differ; integers by PyTorch."""
    kernel = remainder.fmod if "fmod" in func._schema.name else remainder.remainder
    return _whole(kernel, mode, func, args, kwargs)


def _whole(kernel: Callable[..., _Tensor], mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    kind = torch.result_type(args[0], args[1])
    if kind not in FLOATS:
        return checked(mode, func, func(*args, **kwargs))
    pair = [v if isinstance(v, _Tensor) else torch.full((), v, device=args[0].device) for v in args[:2]]
    return kernel(*(v.to(torch.float32) for v in pair)).to(kind)
