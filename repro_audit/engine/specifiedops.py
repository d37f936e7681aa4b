"""Operators that run a kernel of the profile: from ATen's arguments to those of ``repro_kernels.cpu``."""

from __future__ import annotations

import math
from typing import Any

import torch
from repro_kernels.cpu.elementary import COMPOSITE, ELEMENTARY
from repro_kernels.ops import attention, elementary, gemm, reduce

from repro_audit.engine import masks
from repro_audit.engine.exactops import FLOATS, checked
from repro_audit.engine.storedparam import StoredParameter, stored_of

_Tensor = torch.Tensor


def _arg(args: Any, kwargs: Any, index: int, name: str, default: Any = None) -> Any:
    return args[index] if len(args) > index else kwargs.get(name, default)


def _plain(value: Any) -> Any:
    return value.materialise() if type(value) is StoredParameter else value


# --- matrix products ------------------------------------------------------------------------------


def linear(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """RN_out(RN(acc + b)); weight and bias as the file has them, the result in the activation's type."""
    bias = _arg(args, kwargs, 2, "bias")
    return gemm.linear(args[0], args[1], bias, out_dtype=args[0].dtype)


def _finite_values(mode: Any, func: Any, left: Any, right: Any) -> None:
    if masks.is_probabilities(left) and not bool(torch.isfinite(right).all()):
        raise mode.refuse(
            f"a non-finite value row meets the attention weights in {func}", "check the model's values"
        )


def _product_type(first: _Tensor, second: _Tensor) -> torch.dtype:
    return first.dtype if first.dtype is second.dtype else torch.promote_types(first.dtype, second.dtype)


def matmul(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """matmul, mm, bmm, mv, dot: a dot product per output, both operands at index = position."""
    first, second = args[0], args[1]
    kind = _product_type(first, second)
    first, second = stored_of(first), stored_of(second)
    if kind not in FLOATS:
        return checked(mode, func, func(first, second))
    if mode.tagging:
        _finite_values(mode, func, first, second)
    return gemm.matmul(first, second, out_dtype=kind)


def addmm(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """RN_out(RN(RN(beta * bias) + RN(alpha * acc))) for matrices."""
    return _bias_product(gemm.addmm, mode, func, args, kwargs)


def baddbmm(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """RN_out(RN(RN(beta * bias) + RN(alpha * acc))) for batches of matrices."""
    return _bias_product(gemm.baddbmm, mode, func, args, kwargs)


def _bias_product(kernel: Any, mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    bias, first, second = args[:3]
    kind = first.dtype
    if kind not in FLOATS:
        return checked(mode, func, func(*args, **kwargs))
    beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
    bias, first, second = stored_of(bias), stored_of(first), stored_of(second)
    return kernel(bias, first, second, beta=beta, alpha=alpha, out_dtype=kind)


def convolution(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """conv1d, conv2d, conv3d: contracts (c_in, kernel axes) in that order, padding as +0."""
    names = ("bias", "stride", "padding", "dilation", "groups")
    bias, stride, padding, dilation, groups = (
        _arg(args, kwargs, 2 + index, name, default)
        for index, (name, default) in enumerate(zip(names, (None, 1, 0, 1, 1), strict=True))
    )
    return gemm.conv(
        args[0],
        args[1],
        bias,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        out_dtype=args[0].dtype,
    )


# --- elementary functions -------------------------------------------------------------------------


#: ATen names of the elementwise functions; each is ``elementary.unary`` of that name.
UNARY = (
    *ELEMENTARY,
    *(name for name in COMPOSITE if name != "gelu_tanh"),
    "selu",
    "relu6",
)


def unary(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """A correctly rounded function, or a composite of the list; integers are converted to float32 first."""
    name = func._schema.name.removeprefix("aten::")
    value = args[0]
    if value.dtype not in FLOATS:
        if name in ("relu", "relu6", "hardtanh") and not value.dtype.is_floating_point:
            return func(*args, **kwargs)
        value = checked(
            mode, func, value.to(torch.get_default_dtype()) if not value.is_floating_point() else value
        )
    if name == "gelu":
        approximate = kwargs.get("approximate", "none")
        return elementary.unary("gelu_tanh" if approximate == "tanh" else "gelu", value)
    if len(args) > 1 or kwargs:
        return elementary.composite(name, value, *args[1:], **kwargs)
    return elementary.unary(name, value)


def square(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """RN(x * x), which is pow(x, 2)."""
    return mode.call("mul.Tensor", args[0], args[0])


def choose(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """maximum, minimum: of equals, +0 and -0 among them, the first wins; integers by PyTorch."""
    kind = torch.result_type(*args)
    if kind not in FLOATS:
        return checked(mode, func, func(*args))
    kernel = reduce.maximum if "max" in func._schema.name else reduce.minimum
    return kernel(args[0].to(kind), args[1].to(kind))


def clamp(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """minimum(maximum(x, low), high), x first; integers by PyTorch."""
    name, value = func._schema.name, args[0]
    low, high = _arg(args, kwargs, 1, "min"), _arg(args, kwargs, 2, "max")
    if "clamp_max" in name:
        low, high = None, _arg(args, kwargs, 1, "max")
    kind = value.dtype
    for bound in (low, high):
        if bound is not None:
            kind = torch.promote_types(kind, torch.result_type(value, bound))
    if kind not in FLOATS:
        return checked(mode, func, func(*args, **kwargs))
    bounds = [bound.to(kind) if isinstance(bound, _Tensor) else bound for bound in (low, high)]
    return reduce.clamp(value.to(kind), *bounds)


def power(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """pow, correctly rounded for every exponent; integer powers of integers by PyTorch."""
    base, exponent = args
    if not any(isinstance(v, float) or (isinstance(v, _Tensor) and v.dtype in FLOATS) for v in args):
        return checked(mode, func, func(base, exponent))
    kind = torch.result_type(base, exponent)
    if kind not in FLOATS:
        raise mode.refuse(f"operator {func} gives {kind}", "compute in float32")
    base = base.to(kind) if isinstance(base, _Tensor) else base
    exponent = exponent.to(kind) if isinstance(exponent, _Tensor) else exponent
    return elementary.pow(base, exponent)


# --- sums, order ----------------------------------------------------------------------------------


def total(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """sum over axes by the segment rule; integers by PyTorch."""
    return _reduction(reduce.sum, mode, func, args, kwargs)


def mean(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """RN(sum / RN(n))."""
    return _reduction(reduce.mean, mode, func, args, kwargs)


def _reduction(kernel: Any, mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    value, kind = args[0], kwargs.get("dtype")
    if kind is not None and kind is not value.dtype:
        value = mode.call("to.dtype", value, kind)
    if value.dtype not in FLOATS:
        return checked(mode, func, func(*args, **kwargs))
    dim, keepdim = _arg(args, kwargs, 1, "dim"), _arg(args, kwargs, 2, "keepdim", False)
    return kernel(value, dim=_axes(dim), keepdim=keepdim)


def _axes(dim: Any) -> Any:
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return None
    return tuple(dim) if isinstance(dim, (list, tuple)) else dim


def variance(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """var and std with torch's correction (1 unless given)."""
    kernel = reduce.std if "std" in func._schema.name else reduce.var
    dim, correction = _arg(args, kwargs, 1, "dim"), kwargs.get("correction")
    return kernel(
        args[0],
        dim=_axes(dim),
        keepdim=kwargs.get("keepdim", False),
        correction=1 if correction is None else correction,
    )


def cumsum(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Ascending sums; integers by PyTorch."""
    value, dim, kind = args[0], _arg(args, kwargs, 1, "dim"), kwargs.get("dtype")
    if kind is not None and kind is not value.dtype:
        value = mode.call("to.dtype", value, kind)
    return reduce.cumsum(value, dim) if value.dtype in FLOATS else checked(mode, func, func(value, dim))


def extreme(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """amax, amin, max, min, argmax, argmin over axes: the lowest index wins among equals; integers by
    PyTorch.
    """
    value = args[0]
    if value.dtype not in FLOATS:
        return func(*args, **kwargs)
    name = func._schema.name.removeprefix("aten::")
    dim, keepdim = _arg(args, kwargs, 1, "dim"), _arg(args, kwargs, 2, "keepdim", False)
    if name in ("max", "min") and dim is None:
        return getattr(reduce, "a" + name)(value)
    if name in ("amax", "amin") or dim is None:
        return getattr(reduce, name)(value, dim=_axes(dim), keepdim=keepdim)
    return getattr(reduce, name)(value, dim=_axes(dim), keepdim=keepdim)


def order(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """sort, argsort, topk: stable, lowest index first among equals."""
    value, name = args[0], func._schema.name.removeprefix("aten::")
    if name == "topk":
        k, dim = args[1], _arg(args, kwargs, 2, "dim", -1)
        return reduce.topk(value, k, dim=dim, largest=_arg(args, kwargs, 3, "largest", True))
    rest = [item for item in args[1:] if not isinstance(item, bool)]
    flags = [item for item in args[1:] if isinstance(item, bool)]
    dim = kwargs.get("dim", rest[0] if rest else -1)
    descending = kwargs.get("descending", flags[-1] if flags else False)
    values, indices = reduce.sort(value, dim=dim, descending=descending)
    return indices if name == "argsort" else (values, indices)


def accumulate(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """index_add and scatter_add: i ascending, self's value first, one rounding per addition."""
    target, dim, index, source = args[:4]
    if target.dtype not in FLOATS:
        return func(*args, **kwargs)
    if "scatter_add" in func._schema.name:
        return reduce.scatter_add(target, dim, index, source)
    return reduce.index_add(target, dim, index, source, alpha=kwargs.get("alpha", 1))


# --- softmax, attention, norms --------------------------------------------------------------------


def softmax(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """softmax(x, dim, dtype): x cast to dtype first; masked entries by provenance give +0."""
    value, dim, kind = args[0], args[1], _arg(args, kwargs, 2, "dtype")
    masked = masks.tag_of(value) if mode.tagging else None
    if isinstance(kind, torch.dtype) and kind is not value.dtype:
        value = mode.call("to.dtype", value, kind)
    if masked is None:
        return reduce.softmax(value, dim)
    if not bool((torch.isfinite(value) | masked).all()):
        raise mode.refuse("a non-finite attention score that no mask covers", "check the model's values")
    result = reduce.softmax(value, dim, mask=~masked)
    masks.mark_probabilities(result)
    return result


def log_softmax(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """log_softmax(x, dim, dtype): x cast to dtype first."""
    value, dim, kind = args[0], args[1], _arg(args, kwargs, 2, "dtype")
    if isinstance(kind, torch.dtype) and kind is not value.dtype:
        value = mode.call("to.dtype", value, kind)
    return reduce.log_softmax(value, dim)


def attend(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """scaled_dot_product_attention as the sequence matmul, scale, mask, softmax, matmul; keys at index =
    position.
    """
    query, key, value = args[:3]
    mask = _arg(args, kwargs, 3, "attn_mask")
    dropout, causal = _arg(args, kwargs, 4, "dropout_p", 0.0), _arg(args, kwargs, 5, "is_causal", False)
    scale = kwargs.get("scale")
    if dropout:
        raise mode.refuse("dropout is active in attention", "call model.eval() first")
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1])
    if mask is not None and mask.dtype is not torch.bool:
        tag = masks.tag_of(mask)
        masked = tag if tag is not None else masks.lowest_entries(mask)
        if bool(((mask != 0) & ~masked).any()):
            raise mode.refuse(
                "an additive attention bias in scaled_dot_product_attention", "select eager attention"
            )
        mask = ~masked
    if causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    batch = query.shape[:-3]
    flat = [tensor.reshape(-1, *tensor.shape[-3:]) for tensor in (query, key, value)]
    if mask is not None and mask.dim() > 4:
        mask = mask.expand(*batch, *mask.shape[-3:]).reshape(-1, *mask.shape[-3:])
    result = attention.attention(*flat, scale=scale, out_dtype=query.dtype, mask=mask)
    return result.reshape(*batch, *result.shape[-3:])


def layer_norm(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """RN(RN(RN(d * rsqrt(RN(var + eps))) * w) + b); 16-bit input rounds once, at the end."""
    weight, bias = _arg(args, kwargs, 2, "weight"), _arg(args, kwargs, 3, "bias")
    eps = _arg(args, kwargs, 4, "eps", 1e-5)
    return reduce.layer_norm(args[0], tuple(args[1]), weight, bias, eps)


def rms_norm(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """RN(RN(x * rsqrt(RN(mean(RN(x*x)) + eps))) * w); eps None is finfo(x.dtype).eps."""
    return reduce.rms_norm(
        args[0], tuple(args[1]), _arg(args, kwargs, 2, "weight"), _arg(args, kwargs, 3, "eps")
    )


def group_norm(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """group_norm(x, groups, w, b, eps)."""
    weight, bias = _arg(args, kwargs, 2, "weight"), _arg(args, kwargs, 3, "bias")
    return reduce.group_norm(args[0], args[1], weight, bias, _arg(args, kwargs, 4, "eps", 1e-5))


def batch_norm(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """batch_norm in evaluation, with the running statistics."""
    value, weight, bias, running_mean, running_var, training, _, eps = args[:8]
    if training or running_mean is None:
        raise mode.refuse("batch_norm over the batch's own statistics", "call model.eval() first")
    return reduce.batch_norm(value, mean=running_mean, variance=running_var, w=weight, b=bias, eps=eps)


def embedding(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Rows of the table, cast to the activation type."""
    table, index = args[0], args[1]
    stored = stored_of(table)
    if index.numel() and index is not mode.drawn:
        # Before a GPU would stop the whole process over it; and -1 is no row from the end. The ids that our
        # own sampler drew on the device are in range by construction (Session.decodes), and looking would
        # make the host wait.
        low, high = torch.aminmax(index)
        if bool((low < 0) | (high >= stored.shape[0])):
            raise mode.refuse(
                f"an index outside the {stored.shape[0]} rows of an embedding",
                "give tokens that the model has",
            )
    return stored[index].to(table.dtype)
