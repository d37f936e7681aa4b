"""The dot product of profile ``fp32`` and what is built from it (numerics.md, "Profile fp32 (v1)").

Vectors are sequences of floats of any format: an upcast to binary32 is exact, so no conversion is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from repro_kernels.spec.floats import BINARY32, Format, add, fma, mul, rn, rn32

SEGMENT = 128
"""L: a segment holds the positions with one value of floor(position / L)."""

Vector = Sequence[float]
Matrix = Sequence[Vector]


def segments(count: int, start: int = 0) -> Iterator[range]:
    """The index ranges of the segments of `count` elements, the first of which has position `start`."""
    index = 0
    while index < count:
        end = min(count, index + SEGMENT - (start + index) % SEGMENT)
        yield range(index, end)
        index = end


def dot(x: Vector, w: Vector, start: int = 0) -> float:
    """acc of the ``fp32`` rule: p = fma(x_k, w_k, p) inside a segment, acc = RN(acc + p) over the segments.

    Args:
        x: left vector.
        w: right vector, as long.
        start: position of the first contracted index; 0 unless the axis is a position axis.
    """
    acc = 0.0
    for segment in segments(len(x), start):
        p = 0.0
        for k in segment:
            p = fma(x[k], w[k], p)
        acc = add(acc, p)
    return acc


def linear(x: Matrix, w: Matrix, b: Vector | None = None, out: Format = BINARY32) -> list[list[float]]:
    """RN_out(RN(acc + b)) for x [M, K], w [N, K], b [N]."""
    accs = [[dot(row, weight) for weight in w] for row in x]
    return [[rn(acc if b is None else add(acc, b[n]), out) for n, acc in enumerate(row)] for row in accs]


def matmul(a: Matrix, b: Matrix, out: Format = BINARY32, start: int = 0) -> list[list[float]]:
    """RN_out(acc) for a [M, K], b [K, N]."""
    columns = list(zip(*b, strict=True))
    return [[rn(dot(row, column, start), out) for column in columns] for row in a]


def addmm(
    bias: Matrix, a: Matrix, b: Matrix, *, beta: float = 1.0, alpha: float = 1.0, out: Format = BINARY32
) -> list[list[float]]:
    """RN_out(RN(RN(beta*b) + RN(alpha*acc))); with beta = 0, bias is not read: RN_out(RN(alpha*acc)).

    Args:
        bias: [M, N].
        a: [M, K].
        b: [K, N].
        beta: a double, used as its RN.
        alpha: a double, used as its RN.
        out: the result's format.
    """
    scaled = [[mul(rn32(alpha), acc) for acc in row] for row in matmul(a, b)]
    if beta == 0:
        return [[rn(t, out) for t in row] for row in scaled]
    return [
        [rn(add(mul(rn32(beta), c), t), out) for c, t in zip(bias_row, row, strict=True)]
        for bias_row, row in zip(bias, scaled, strict=True)
    ]


def conv(
    x: Sequence[float],
    w: Sequence[float],
    b: Vector | None,
    *,
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
    out: Format = BINARY32,
) -> tuple[list[float], tuple[int, ...]]:
    """Convolution over any spatial axes: contracts (c_in, kernel axes) in that order, padding as +0.

    Args:
        x: input in C order, shape `x_shape` = (batch, c_in, *spatial).
        w: kernel in C order, shape `w_shape` = (c_out, c_in / groups, *kernel).
        b: one bias per output channel, or None.
        x_shape: see x.
        w_shape: see w.
        stride: one per spatial axis.
        padding: one per spatial axis, on both sides.
        dilation: one per spatial axis.
        groups: channel groups.
        out: the result's format.

    Returns:
        The result in C order and its shape (batch, c_out, *spatial).
    """
    batch, spatial = x_shape[0], x_shape[2:]
    c_out, c_group, kernel = w_shape[0], w_shape[1], w_shape[2:]
    axes = range(len(spatial))
    sizes = [(spatial[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in axes]
    taps = list(product(*(range(size) for size in kernel)))
    result = []
    for n, o in product(range(batch), range(c_out)):
        first_channel = o // (c_out // groups) * c_group
        weights = [w[_flat((o, c, *tap), w_shape)] for c in range(c_group) for tap in taps]
        for place in product(*(range(size) for size in sizes)):
            field = []
            for c, tap in product(range(c_group), taps):
                at = [place[i] * stride[i] - padding[i] + tap[i] * dilation[i] for i in axes]
                inside = all(0 <= at[i] < spatial[i] for i in axes)
                field.append(x[_flat((n, first_channel + c, *at), x_shape)] if inside else 0.0)
            acc = dot(field, weights)
            result.append(rn(acc if b is None else add(acc, b[o]), out))
    return result, (batch, c_out, *sizes)


def _flat(index: Sequence[int], shape: Sequence[int]) -> int:
    """The C-order offset of an index."""
    offset = 0
    for i, size in zip(index, shape, strict=True):
        offset = offset * size + i
    return offset
