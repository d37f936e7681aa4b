"""The operator table: what every ATen operator is under profile ``fp32``, one row per operator, readable
whole.

``exact``: PyTorch's CPU kernel gives the specified bits (tests/unit/engine/test_exact.py holds it to that).
``specified``: a kernel of ``repro_kernels``. ``structural``: moves, makes, compares or counts. ``refused``:
stops the run by name. In-place twins (``add_``) follow their row and copy; what is not here and is a
composition by PyTorch's own definition is decomposed into rows; all else is refused, ``out=`` variants
included.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from repro_audit.engine import exactops as e
from repro_audit.engine import nativeops as n
from repro_audit.engine import specifiedops as k
from repro_audit.engine import structuralops as s
from repro_audit.engine import windowops as w
from repro_audit.engine.tables import Row

Run = Callable[..., Any]


def _exact(
    names: str, run: Run = e.plain, tags: str = "value", params: str = "value"
) -> Iterator[tuple[str, Row]]:
    for name in names.split():
        yield name, Row("exact", "torch", run, params=params, tags=tags)


def _kernel(
    names: str, run: Run, kernel: str, params: str = "value", tags: str = ""
) -> Iterator[tuple[str, Row]]:
    for name in names.split():
        yield name, Row("specified", kernel, run, params=params, tags=tags)


def _moves(
    names: str, run: Run = s.move, tags: str = "view", params: str = "value"
) -> Iterator[tuple[str, Row]]:
    for name in names.split():
        yield name, Row("structural", "torch", run, params=params, scalars=False, tags=tags)


def _makes(
    names: str, run: Run = s.create, tags: str = "value", params: str = "value"
) -> Iterator[tuple[str, Row]]:
    for name in names.split():
        yield name, Row("structural", "torch", run, params=params, scalars=True, tags=tags)


def _refused(names: str, run: Run) -> Iterator[tuple[str, Row]]:
    for name in names.split():
        yield name, Row("refused", "", run, params="through", scalars=False)


def rows() -> Iterator[tuple[str, Row]]:
    """The table in reading order: (``operator.overload``, row)."""
    # Arithmetic with one rounding.
    yield from _exact(
        "add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar", e.add_like, tags="add"
    )
    yield from _exact("mul.Tensor mul.Scalar", e.arithmetic)
    yield from _exact("div.Tensor div.Scalar", e.divide)
    yield from _exact(
        "neg.default abs.default sign.default sgn.default floor.default ceil.default trunc.default"
    )
    yield from _exact("round.default frac.default")
    # Integers and bools only.
    yield from _moves("prod.default prod.dim_int bincount.default cumprod.default", e.integer_only, "")
    yield from _moves(
        "bitwise_and.Tensor bitwise_and.Scalar bitwise_or.Tensor bitwise_or.Scalar", e.integer_only, ""
    )
    yield from _moves("bitwise_xor.Tensor bitwise_xor.Scalar bitwise_not.default", e.integer_only, "")
    yield from _moves("bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar", e.integer_only, "")
    yield from _moves("bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar", e.integer_only, "")
    yield from _moves("__and__.Tensor __and__.Scalar __or__.Tensor __or__.Scalar", e.integer_only, "")
    yield from _moves("__xor__.Tensor __xor__.Scalar", e.integer_only, "")
    # Comparisons and predicates.
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield from _makes(f"{name}.Tensor {name}.Scalar", e.compare, "")
    yield from _moves(
        "logical_and.default logical_or.default logical_xor.default logical_not.default", tags=""
    )
    yield from _moves(
        "isnan.default isinf.default isfinite.default isposinf.default isneginf.default", tags=""
    )
    yield from _moves("all.default all.dim all.dims any.default any.dim any.dims nonzero.default", tags="")
    yield from _moves("_assert_async.default _assert_async.msg", e.integer_only, "")
    yield from _moves("isin.Tensor_Tensor isin.Tensor_Scalar", e.integer_only, "")
    yield from _moves("equal.default", s.equal, "")
    # Views: lazy on parameters.
    yield from _moves("view.default _unsafe_view.default reshape.default expand.default", params="view")
    yield from _moves(
        "transpose.int t.default permute.default unsqueeze.default detach.default", params="view"
    )
    yield from _moves(
        "squeeze.default squeeze.dim squeeze.dims slice.Tensor select.int narrow.default", params="view"
    )
    yield from _moves(
        "split.Tensor split_with_sizes.default chunk.default unbind.int alias.default", params="view"
    )
    yield from _moves(
        "flatten.using_ints unflatten.int movedim.int diagonal.default unfold.default", params="view"
    )
    yield from _moves("contiguous.default numpy_T.default mT.default view_as.default", params="view")
    yield from _moves("expand_as.default swapaxes.default adjoint.default", params="view")
    yield from _moves("as_strided.default", tags="")
    yield from _moves("view.dtype", s.bits, "")
    # Copies and gathers.
    yield from _moves(
        "clone.default cat.default stack.default repeat.default tile.default roll.default flip.default"
    )
    yield from _moves(
        "index.Tensor index_select.default gather.default take_along_dim.default masked_select.default"
    )
    yield from _moves(
        "repeat_interleave.self_int repeat_interleave.self_Tensor repeat_interleave.Tensor", tags=""
    )
    yield from _moves("tril.default triu.default", tags="value")
    yield from _moves("slice_scatter.default select_scatter.default index_fill.int_Scalar", tags="")
    yield from _moves("index_copy.default scatter.src", s.on_host, "")
    yield from _moves("scatter.value masked_scatter.default", tags="")
    yield from _moves(
        "index_put.default _index_put_impl_.default index_put_.default", s.put, "", params="written"
    )
    yield from _moves("where.self", tags="where")
    yield from _makes("masked_fill.Scalar masked_fill.Tensor", s.create, tags="fill")
    yield from _makes("constant_pad_nd.default", s.create)
    yield from _moves("embedding.default", k.embedding, "", params="through")
    yield from _moves("broadcast_tensors.default meshgrid.default meshgrid.indexing")
    # Casts.
    yield from _exact(
        "to.dtype to.dtype_layout to.device to.other _to_copy.default type_as.default", s.cast, "cast"
    )
    # Makers.
    yield from _makes("zeros.default zeros_like.default new_zeros.default ones.default ones_like.default")
    yield from _makes(
        "new_ones.default full.default full_like.default new_full.default scalar_tensor.default"
    )
    yield from _makes("eye.default eye.m tril_indices.default triu_indices.default")
    yield from _makes(
        "empty.memory_format empty_like.default new_empty.default empty_strided.default", s.empty
    )
    yield from _makes("new_empty_strided.default", s.empty)
    yield from _makes("arange.default arange.start arange.start_step", s.span)
    yield from _makes("linspace.default", s.line)
    yield from _moves("lift_fresh.default lift.default lift_fresh_copy.default", s.constant, "")
    yield from _moves("detach_.default", s.same, "")
    yield from _moves("copy_.default", s.write, "", params="written")
    yield from _makes("fill_.Scalar fill_.Tensor zero_.default", s.fill, "", params="written")
    yield from _moves("item.default _local_scalar_dense.default is_nonzero.default", s.scalar_out, "")
    yield from _moves("sym_size.int sym_stride.int is_same_size.default size.int", tags="")
    # Products.
    yield from _kernel("linear.default", k.linear, "gemm.linear", params="stored")
    yield from _kernel(
        "matmul.default mm.default bmm.default mv.default dot.default", k.matmul, "gemm.matmul", "through"
    )
    yield from _kernel("addmm.default", k.addmm, "gemm.addmm", "through")
    yield from _kernel("baddbmm.default", k.baddbmm, "gemm.baddbmm", "through")
    yield from _kernel("conv1d.default conv2d.default conv3d.default", k.convolution, "gemm.conv", "stored")
    yield from _kernel("conv1d.padding conv2d.padding conv3d.padding", k.convolution, "gemm.conv", "stored")
    yield from _kernel("convolution.default", n.convolution, "gemm.conv", "stored")
    # Elementary functions and composites.
    for name in k.UNARY:
        yield from _kernel(f"{name}.default", k.unary, f"elementary.{name}", tags="value")
    yield from _kernel(
        "maximum.default minimum.default max.other min.other", k.choose, "reduce.maximum", tags="value"
    )
    yield from _kernel(
        "clamp.default clamp.Tensor clamp_min.default clamp_min.Tensor", k.clamp, "reduce.clamp"
    )
    yield from _kernel("clamp_max.default clamp_max.Tensor", k.clamp, "reduce.clamp")
    yield from _kernel("pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar", k.power, "elementary.pow")
    yield from _kernel("square.default", k.square, "elementary.pow")
    yield from _kernel(
        "floor_divide.default floor_divide.Scalar div.Tensor_mode div.Scalar_mode",
        n.divide_whole,
        "remainder.div_floor",
    )
    yield from _kernel(
        "remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar", n.remain, "remainder.fmod"
    )
    # Sums and order.
    yield from _kernel("sum.default sum.dim_IntList", k.total, "reduce.sum")
    yield from _kernel("mean.default mean.dim", k.mean, "reduce.mean")
    yield from _kernel("var.correction std.correction", k.variance, "reduce.var")
    yield from _kernel("cumsum.default", k.cumsum, "reduce.cumsum")
    yield from _kernel(
        "amax.default amin.default max.default min.default max.dim min.dim", k.extreme, "reduce.max"
    )
    yield from _kernel("argmax.default argmin.default", k.extreme, "reduce.argmax")
    yield from _kernel(
        "sort.default sort.stable argsort.default argsort.stable topk.default", k.order, "reduce.sort"
    )
    yield from _kernel("index_add.default scatter_add.default", k.accumulate, "reduce.index_add")
    # Softmax, attention, norms.
    yield from _kernel("softmax.int _softmax.default", k.softmax, "reduce.softmax")
    yield from _kernel("log_softmax.int _log_softmax.default", k.log_softmax, "reduce.log_softmax")
    yield from _kernel("scaled_dot_product_attention.default", k.attend, "attention.attention")
    yield from _kernel("layer_norm.default", k.layer_norm, "reduce.layer_norm")
    yield from _kernel("rms_norm.default", k.rms_norm, "reduce.rms_norm")
    yield from _kernel("group_norm.default", k.group_norm, "reduce.group_norm")
    yield from _kernel("batch_norm.default", k.batch_norm, "reduce.batch_norm")
    yield from _kernel("native_layer_norm.default", n.layer_norm, "reduce.layer_norm")
    yield from _kernel("native_group_norm.default", n.group_norm, "reduce.group_norm")
    # Windows: padding, pooling, resampling.
    yield from _moves("reflection_pad1d.default reflection_pad2d.default reflection_pad3d.default", w.pad)
    yield from _moves("replication_pad1d.default replication_pad2d.default replication_pad3d.default", w.pad)
    yield from _kernel("avg_pool2d.default avg_pool3d.default", w.average, "reduce.mean")
    yield from _kernel(
        "max_pool2d_with_indices.default max_pool3d_with_indices.default", w.maximum, "reduce.max"
    )
    yield from _moves("upsample_nearest2d.vec", w.nearest)
    # Random numbers and dropout.
    yield from _moves("dropout.default feature_dropout.default alpha_dropout.default", s.dropout, "")
    yield from _refused(
        "rand.default rand_like.default randn.default randn_like.default randint.default", s.random
    )
    yield from _refused(
        "randint.low randperm.default bernoulli.default bernoulli.p bernoulli_.float", s.random
    )
    yield from _refused("multinomial.default normal_.default uniform_.default exponential_.default", s.random)
    yield from _refused(
        "native_dropout.default normal.float_float normal.Tensor_float rand.generator", s.random
    )


@functools.cache
def table() -> dict[Any, Row]:
    """Operator overload to row; operators that this PyTorch lacks are left out."""
    found: dict[Any, Row] = {}
    for name, row in rows():
        packet, _, overload = name.partition(".")
        operator = getattr(torch.ops.aten, packet, None)
        if operator is not None and overload in operator.overloads():
            found[getattr(operator, overload)] = row
    return found
