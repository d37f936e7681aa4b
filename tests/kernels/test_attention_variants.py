"""What must not show in attention: how it was asked for, on what, with how many threads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kernel_support import DTYPES, instruction_sets, output_under, raw_bits, tensor
from repro_kernels.cpu.attention import attention

PROGRAM = f"""
import hashlib, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
from kernel_support import DTYPES, tensor
from repro_kernels.cpu.attention import attention

SHAPES = [(3, 1, 1, 1, 64, 64), (9, 3, 1, 577, 64, 64), (4, 2, 150, 150, 80, 33), (2, 2, 31, 1030, 7, 128)]
digest = hashlib.sha256()
for dtype in DTYPES:
    for heads, key_heads, queries, keys, depth, width in SHAPES:
        q = tensor((2, heads, queries, depth), seed=1, dtype=dtype)
        k = tensor((2, key_heads, keys, depth), seed=2, dtype=dtype)
        v = tensor((2, key_heads, keys, width), seed=3, flavour="subnormal", dtype=dtype)
        positions = (torch.arange(queries) + keys - queries).expand(2, -1)
        mask = tensor((queries, keys), seed=4) > 0
        for options in ({{}}, {{"q_positions": positions, "softcap": 2.0}}, {{"mask": mask}}):
            both = []
            for flush in (False, True):
                torch.set_flush_denormal(flush)
                both.append(attention(q, k, v, scale=0.2, out_dtype=dtype, **options))
                torch.set_flush_denormal(False)
            first, second = (y.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for y in both)
            assert first == second
            digest.update(first)
print(digest.hexdigest())
"""


def test_instruction_sets_threads_and_flushed_subnormals() -> None:
    sets = instruction_sets()
    outputs = {output_under(PROGRAM, isa=isa, threads=1 + i) for i, isa in enumerate(sets)}
    assert len(outputs) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [None, 50])
def test_prefill_equals_decode_and_chunks(dtype: torch.dtype, window: int | None) -> None:
    length, capacity = 300, 512
    q = tensor((1, 6, length, 64), seed=1, dtype=dtype)
    cache_k, cache_v = (tensor((1, 2, capacity, 64), seed=n, dtype=dtype) for n in (2, 3))
    cache_k[:, :, length:], cache_v[:, :, length:] = torch.nan, torch.nan  # never read
    run = {"scale": 0.125, "out_dtype": dtype, "window": window}
    positions = torch.arange(length)[None]
    k, v = cache_k[:, :, :length], cache_v[:, :, :length]
    prefill = attention(q, k, v, q_positions=positions, **run)
    for step in (0, 1, 15, 16, 127, 128, 129, 255, 299):
        at, end = slice(step, step + 1), step + 1
        decode = attention(
            q[:, :, at], cache_k[:, :, :end], cache_v[:, :, :end], q_positions=positions[:, at], **run
        )
        assert raw_bits(decode) == raw_bits(prefill[:, :, at])
        whole_cache = attention(
            q[:, :, at], cache_k, cache_v, q_positions=positions[:, at], k_length=torch.tensor([end]), **run
        )
        assert raw_bits(whole_cache) == raw_bits(decode)
    parts = [slice(0, 100), slice(100, 101), slice(101, 260), slice(260, 300)]
    chunks = [
        attention(q[:, :, p], k[:, :, : p.stop], v[:, :, : p.stop], q_positions=positions[:, p], **run)
        for p in parts
    ]
    assert raw_bits(torch.cat(chunks, 2)) == raw_bits(prefill)


def test_batch_and_padding() -> None:
    lengths = [5, 130, 64, 200]
    longest = max(lengths)
    q, k, v = (tensor((4, heads, longest, 32), seed=n) for n, heads in ((1, 4), (2, 2), (3, 2)))
    for b, n in enumerate(lengths):
        for t in (k, v):
            t[b, :, n:] = torch.inf
    positions = torch.arange(longest).expand(4, -1)
    run = {"scale": 0.2, "out_dtype": torch.float32}
    together = attention(q, k, v, q_positions=positions, k_length=torch.tensor(lengths), **run)
    for b, n in enumerate(lengths):
        one = slice(b, b + 1)
        alone = attention(q[one, :, :n], k[one, :, :n], v[one, :, :n], q_positions=positions[one, :n], **run)
        assert raw_bits(alone) == raw_bits(together[one, :, :n])


def test_grouped_heads_equal_repeated_ones_and_a_mask_equals_positions() -> None:
    q, k, v = (tensor((2, heads, 70, 64), seed=n) for n, heads in ((1, 6), (2, 2), (3, 2)))
    positions = torch.arange(70).expand(2, -1)
    run = {"scale": 0.2, "out_dtype": torch.float32}
    grouped = attention(q, k, v, q_positions=positions, **run)
    repeated = [t.repeat_interleave(3, 1) for t in (k, v)]
    assert raw_bits(attention(q, *repeated, q_positions=positions, **run)) == raw_bits(grouped)
    assert raw_bits(attention(q, k, v, mask=torch.ones(70, 70).tril().bool(), **run)) == raw_bits(grouped)


def test_strided_views_are_read_in_place() -> None:
    packed = tensor((2, 40, 3, 4, 32), seed=5)  # batch, position, q k v, head, depth
    views = [packed[:, :, n].transpose(1, 2) for n in range(3)]
    run = {"scale": 0.2, "out_dtype": torch.float32}
    plain = attention(*(t.contiguous() for t in views), **run)
    assert raw_bits(attention(*views, **run)) == raw_bits(plain)
    scattered = [t.transpose(2, 3).contiguous().transpose(2, 3) for t in views]
    assert raw_bits(attention(*scattered, **run)) == raw_bits(plain)
    assert plain.transpose(1, 2).is_contiguous()
