"""Sums over an axis that is not the last one: the segments of a column are those of a row."""

from __future__ import annotations

import pytest
import torch
from kernel_support import DTYPES, FORMATS, assert_bits, rows, tensor
from repro_kernels.cpu import reduce
from repro_kernels.spec import reduce as spec


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(129, 3), (2, 300, 5), (1, 257, 70)])
def test_columns_longer_than_a_segment(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, dim = tensor(shape, seed=sum(shape), flavour="normal", dtype=dtype), len(shape) - 2
    columns = rows(x, [dim])
    out = FORMATS[dtype]
    assert_bits(reduce.sum(x, dim), [spec.sum(column, out) for column in columns])
    assert_bits(reduce.mean(x, dim), [spec.mean(column, out) for column in columns])
    some = x[..., :3]
    assert_bits(reduce.var(some, dim), [spec.var(column, out=out) for column in rows(some, [dim])])
