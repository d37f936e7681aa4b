"""Fused attention, bit for bit against the specification, and against its unfused steps on larger shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import DTYPES, FORMATS, assert_bits, dtypes, raw_bits, restrided, seeds, tensor, values
from repro_kernels.cpu import elementary, gemm
from repro_kernels.cpu.attention import attention
from repro_kernels.cpu.reduce import softmax
from repro_kernels.errors import NonFiniteError, UnsupportedError
from repro_kernels.spec import attention as spec

SIZES = [1, 2, 127, 128, 129, 130, 257]
DEPTHS = [1, 3, 16, 64, 80, 128, 130]


def matrix(t: torch.Tensor) -> list[list[float]]:
    return [values(row) for row in t]


def allowed(q: torch.Tensor, k: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    """bool [B, H, Sq, Sk] from spec.may_attend."""
    (batch, heads, queries, _), keys = q.shape, k.shape[2]
    result = torch.zeros(batch, heads, queries, keys, dtype=torch.bool)
    positions, lengths = options.get("q_positions"), options.get("k_length")
    masks = options.get("mask")
    masks = None if masks is None else masks.expand(result.shape)
    for index in range(result.numel()):
        b, h, i, j = (int(n) for n in torch.unravel_index(torch.tensor(index), result.shape))
        result[b, h, i, j] = spec.may_attend(
            j,
            0 if positions is None else int(positions[b, i]),
            causal=positions is not None,
            window=options.get("window"),
            key_length=None if lengths is None else int(lengths[b]),
            mask=masks is None or bool(masks[b, h, i, j]),
        )
    return result


def check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    out_dtype: torch.dtype,
    scale: float = 0.3,
    softcap: float | None = None,
    rows: list[int] | None = None,
    **options: Any,
) -> None:
    """The kernel on everything, the specification on some query rows (it is slow)."""
    result = attention(q, k, v, scale=scale, out_dtype=out_dtype, softcap=softcap, **options)
    assert result.shape == (*q.shape[:3], v.shape[3])
    assert result.dtype == out_dtype
    rows = list(range(q.shape[2])) if rows is None else sorted({r % q.shape[2] for r in rows})
    some = dict(options)
    if "q_positions" in some:
        some["q_positions"] = some["q_positions"][:, rows]
    if some.get("mask") is not None:
        some["mask"] = some["mask"].expand(-1, -1, q.shape[2], -1)[:, :, rows]
    chosen = q[:, :, rows]
    open_keys = allowed(chosen, k, some)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            g = h // (q.shape[1] // k.shape[1])
            expected = spec.attention(
                matrix(chosen[b, h]),
                matrix(k[b, g]),
                matrix(v[b, g]),
                scale=scale,
                out=FORMATS[out_dtype],
                allowed=open_keys[b, h].tolist(),
                softcap=softcap,
            )
            assert_bits(result[b, h, rows], [x for row in expected for x in row])


@settings(max_examples=40, deadline=None)
@given(data=st.data(), dtype=dtypes, seed=seeds)
def test_against_the_specification(*, data: st.DataObject, dtype: torch.dtype, seed: int) -> None:
    batch, group, key_heads = (data.draw(st.sampled_from([1, 1, 2])) for _ in range(3))
    queries, keys = (data.draw(st.sampled_from([1, 2, 3, 15, 33])) for _ in range(2))
    depth, width = (data.draw(st.sampled_from([1, 3, 16, 17])) for _ in range(2))
    flavour = data.draw(st.sampled_from(["normal", "integers", "ties", "cancelling", "subnormal"]))
    q = tensor((batch, group * key_heads, queries, depth), seed=seed, flavour=flavour, dtype=dtype)
    k = tensor((batch, key_heads, keys, depth), seed=seed + 1, dtype=dtype)
    v = tensor((batch, key_heads, keys, width), seed=seed + 2, flavour=flavour, dtype=dtype)
    options: dict[str, Any] = {}
    if data.draw(st.booleans()):
        first = data.draw(st.integers(-2, keys))
        options["q_positions"] = (torch.arange(queries) + first).expand(batch, -1)
        options["window"] = data.draw(st.sampled_from([None, 1, 2, 20]))
    if data.draw(st.booleans()):
        options["mask"] = tensor((1, 1, queries, keys), seed=seed + 3) > -0.5
    if data.draw(st.booleans()):
        options["k_length"] = torch.tensor([data.draw(st.integers(0, keys)) for _ in range(batch)])
    softcap = data.draw(st.sampled_from([None, 2.5]))
    if dtype == torch.float16 and flavour == "cancelling":
        q, v = q.clamp(-100, 100), v.clamp(-100, 100)
    seen = [restrided(t, seed + n) for n, t in enumerate((q, k, v))]
    check(*seen, out_dtype=dtype, softcap=softcap, **options)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("depth", [1, 16])
def test_key_counts_around_segments(size: int, depth: int) -> None:
    q, k = tensor((1, 2, 3, depth), seed=1), tensor((1, 1, size, depth), seed=2)
    v = tensor((1, 1, size, 2), seed=3)
    check(q, k, v, out_dtype=torch.float32, rows=[0, 2])
    positions = torch.tensor([[size - 1, size // 2, 0]])
    check(q, k, v, out_dtype=torch.float32, rows=[0, 1], q_positions=positions, window=100)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_depths(depth: int, dtype: torch.dtype) -> None:
    q, k = tensor((1, 2, 4, depth), seed=4, dtype=dtype), tensor((1, 2, 20, depth), seed=5, dtype=dtype)
    v = tensor((1, 2, 20, depth), seed=6, dtype=dtype)
    check(q, k, v, out_dtype=dtype, rows=[0, 3], scale=depth**-0.5)


def test_operands_of_different_types() -> None:
    q, k = tensor((1, 1, 5, 8), seed=7), tensor((1, 1, 9, 8), seed=8, dtype=torch.bfloat16)
    v = tensor((1, 1, 9, 8), seed=9, dtype=torch.float16)
    for out in DTYPES:
        check(q, k, v, out_dtype=out)


def test_huge_scores() -> None:
    q, k, v = (tensor((1, 1, 6, 4), seed=n) for n in (10, 11, 12))
    k[0, 0, 2] = 1e32
    check(q, k, v, out_dtype=torch.float32)
    check(q, k, v, out_dtype=torch.float32, mask=(torch.arange(6) != 2).expand(1, 1, 6, 6))
    check(q, k, v, out_dtype=torch.float32, q_positions=torch.arange(6)[None])
    check(q * 1e-38, k, v, out_dtype=torch.float32)  # subnormal queries


def test_a_query_without_keys_gives_positive_zero() -> None:
    q, k, v = (tensor((2, 1, 3, 16), seed=n) for n in (13, 14, 15))
    v = -v.abs()
    q[0, 0, 1] = torch.nan  # reads nothing, so it does not matter
    mask = torch.ones(2, 1, 3, 3, dtype=torch.bool)
    mask[0, 0, 1] = False
    result = attention(q, k, v, scale=1.0, out_dtype=torch.float32, mask=mask)
    assert raw_bits(result[0, 0, 1]) == [0] * 16
    result = attention(q[1:], k[1:], v[1:], scale=1.0, out_dtype=torch.float32, k_length=torch.tensor([0]))
    assert raw_bits(result) == [0] * 48


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_no_query_attends_to_does_not_matter(bad: float) -> None:
    q, k, v = (tensor((1, 2, 20, 16), seed=n) for n in (16, 17, 18))
    mask = torch.ones(1, 1, 20, 20, dtype=torch.bool)
    mask[..., 7] = False
    clean = attention(q, k, v, scale=0.25, out_dtype=torch.float32, mask=mask, k_length=torch.tensor([15]))
    for t in (k, v):
        t[:, :, 7] = bad
        t[:, :, 15:] = bad
    dirty = attention(q, k, v, scale=0.25, out_dtype=torch.float32, mask=mask, k_length=torch.tensor([15]))
    assert raw_bits(dirty) == raw_bits(clean)
    check(q, k, v, out_dtype=torch.float32, mask=mask, k_length=torch.tensor([15]), rows=[0, 19])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_non_finite_operands_stop_the_run(bad: float, dtype: torch.dtype, softcap: float | None) -> None:
    positions = torch.arange(40)[None]
    for name in ("query", "key", "value"):
        q, k, v = (tensor((1, 4, 40, 24), seed=n, dtype=dtype) for n in (19, 20, 21))
        k, v = k[:, :2], v[:, :2]
        {"query": q, "key": k, "value": v}[name][0, 1, 33, 5] = bad
        head, key = {"query": (1, ""), "key": (2, ", key 33"), "value": (2, ", key 33")}[name]
        with pytest.raises(NonFiniteError, match=rf"attention {name}.*head {head}, query 33{key}"):
            attention(q, k, v, scale=1.0, out_dtype=dtype, q_positions=positions, softcap=softcap)
        # queries before it are not concerned
        attention(
            q[:, :, :33], k, v, scale=1.0, out_dtype=dtype, q_positions=positions[:, :33], softcap=softcap
        )


def test_a_value_with_weight_zero_still_counts() -> None:
    q, k, v = (tensor((1, 1, 4, 4), seed=n) for n in (22, 23, 24))
    q, k = q.abs(), k.abs()
    k[0, 0, 0] *= -1e6  # exp underflows to +0
    v[0, 0, 0, 1] = torch.inf
    with pytest.raises(NonFiniteError, match=r"value.*key 0"):
        attention(q, k, v, scale=1.0, out_dtype=torch.float32)


def test_overflow() -> None:
    q, k, v = (torch.full((1, 1, 3, 2), x) for x in (1e20, 1e20, 1.0))
    with pytest.raises(NonFiniteError, match="score"):
        attention(q, k, v, scale=1.0, out_dtype=torch.float32)
    check(q, k, v, out_dtype=torch.float32, softcap=2.0)  # the cap makes it finite
    v = torch.full(
        (1, 1, 2, 1), torch.finfo(torch.float32).max
    )  # and a weighted mean may round up to infinity
    check(torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 2, 1), v, out_dtype=torch.float32)
    check(torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 2, 1), v, out_dtype=torch.float16)


def test_refusals_and_empty_sizes() -> None:
    q, k = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 5, 4)
    run = {"scale": 1.0, "out_dtype": torch.float32}
    with pytest.raises(UnsupportedError, match="float64"):
        attention(q.double(), k, k, **run)
    with pytest.raises(UnsupportedError, match="window"):
        attention(q, k, k, window=3, **run)
    with pytest.raises(UnsupportedError, match="mask"):
        attention(q, k, k, mask=torch.zeros(3, 5), **run)
    with pytest.raises(ValueError, match="do not fit"):
        attention(q, k[..., :3], k, **run)
    with pytest.raises(ValueError, match="do not fit"):
        attention(q, k[:, [0, 0, 0]], k[:, [0, 0, 0]], **run)
    with pytest.raises(ValueError, match="q_positions"):
        attention(q, k, k, q_positions=torch.zeros(3, dtype=torch.int64), **run)
    assert attention(q[:, :, :0], k, k, **run).shape == (1, 2, 0, 4)
    assert raw_bits(attention(q, k[:, :, :0], k[:, :, :0], **run)) == [0] * 24
    check(q[..., :0], k[..., :0], k + 1.5, out_dtype=torch.float32)


def composed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, cap: float | None
) -> torch.Tensor:
    """The unfused steps with the operators of this package; scale 1/8."""
    a, group = q.dtype, q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    scores = gemm.matmul(q, k.transpose(2, 3)) * 0.125
    if cap is not None:
        scores = elementary.unary("tanh", elementary.div_scalar(scores, cap)) * cap
    y = softmax(scores.float(), -1, mask=mask.expand(scores.shape)).to(a)
    return gemm.matmul(y, v)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cap", [None, 4.0])
@pytest.mark.parametrize(
    ("heads", "key_heads", "queries", "keys", "depth"),
    [
        (9, 3, 1, 576, 64),
        (2, 2, 130, 130, 80),
        (6, 1, 40, 1100, 128),
        (4, 2, 257, 257, 64),
        (1, 1, 3, 2500, 256),
    ],
)
def test_fused_equals_unfused(
    *, heads: int, key_heads: int, queries: int, keys: int, depth: int, dtype: torch.dtype, cap: float | None
) -> None:
    q = tensor((2, heads, queries, depth), seed=30, dtype=dtype)
    k, v = (tensor((2, key_heads, keys, depth), seed=n, dtype=dtype) for n in (31, 32))
    positions = (torch.arange(queries) + keys - queries).expand(2, -1)
    lengths = torch.tensor([keys, keys - keys // 3])
    at = positions[:, None, :, None]
    key = torch.arange(keys)
    inside = (key <= at) & (key < lengths[:, None, None, None])
    window = inside & (at - key < keys // 2 + 1)
    sparse = inside & (tensor((2, heads, queries, keys), seed=33) > 0)
    run = {"scale": 0.125, "out_dtype": dtype, "softcap": cap, "k_length": lengths}
    for mask, options in (
        (inside, {"q_positions": positions}),
        (window, {"q_positions": positions, "window": keys // 2 + 1}),
        (sparse, {"q_positions": positions, "mask": sparse}),
        (window, {"mask": window}),
    ):
        assert raw_bits(attention(q, k, v, **run, **options)) == raw_bits(composed(q, k, v, mask, cap))
