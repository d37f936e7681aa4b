"""Row digests equal the blake3 package on canonical bytes: every length, layout, dtype, instruction set."""

from __future__ import annotations

import subprocess
import sys

import blake3
import numpy as np
import pytest
import torch
from repro_kernels.cpu import native
from repro_kernels.cpu.digest import digest_many, row_digests
from repro_kernels.errors import UnsupportedError

KEY = bytes(range(100, 132))
LENGTHS = [0, 1, 63, 64, 65, 127, 128, 1023, 1024, 1025, 2047, 2048, 2049, 2304, 3072, 3073, 4096, 5121]
LENGTHS += [7168, 8191, 16384, 31 * 1024 + 1, 65537, 200_000]


def expected(rows: list[bytes], key: bytes = KEY) -> list[bytes]:
    return [blake3.blake3(row, key=key).digest() for row in rows]


def digests(found: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in found]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("rows", [0, 1, 3, 16, 37])
def test_every_length(length: int, rows: int) -> None:
    data = np.random.default_rng(length).integers(0, 256, (rows, length), np.uint8)
    found = row_digests(data, KEY)
    assert found.shape == (rows, 32)
    assert found.dtype == np.uint8
    assert digests(found) == expected([row.tobytes() for row in data])


def test_every_length_up_to_three_chunks_in_one_call() -> None:
    data = np.random.default_rng(1).integers(0, 256, 3100, np.uint8)
    keys = [bytes([i]) * 32 for i in range(3)]
    items = [(data[:n], keys[n % 3], 0) for n in range(3100)]
    for n, found in enumerate(digest_many(items)):
        assert digests(found) == expected([data[:n].tobytes()], keys[n % 3]), n


def test_many_units_over_threads() -> None:
    data = np.random.default_rng(2).integers(0, 256, (3000, 1500), np.uint8)
    want = expected([row.tobytes() for row in data])
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            assert digests(row_digests(data, KEY)) == want
    finally:
        torch.set_num_threads(before)


NANS = {
    torch.float32: (torch.int32, [0x7F800001, -1, 0x7FC00000, -0x400000], 0x7FC00000),
    torch.bfloat16: (torch.int16, [0x7F81, -1, 0x7FC0, -0x40], 0x7FC0),
    torch.float16: (torch.int16, [0x7C01, -1, 0x7E00, -0x200], 0x7E00),
    torch.float64: (torch.int64, [0x7FF0000000000001, -1, 0x7FF8 << 48, -0x8000000000000], 0x7FF8 << 48),
    torch.float8_e5m2: (torch.int8, [0x7D, -1, 0x7E, -2], 0x7E),
    torch.float8_e4m3fn: (torch.int8, [0x7F, -1, 0x7F, -1], 0x7F),
}


@pytest.mark.parametrize("dtype", NANS)
def test_nans_are_canonical_and_nothing_else_changes(dtype: torch.dtype) -> None:
    integer, nans, quiet = NANS[dtype]
    width = 8 * integer.itemsize
    every = torch.arange(-(2 ** min(15, width - 1)), 2 ** min(15, width - 1), dtype=torch.int64)
    bits = (every << max(0, width - 16)).to(integer)  # all 16-bit patterns, or all leading ones
    bits[torch.randperm(bits.numel(), generator=torch.Generator().manual_seed(0))[:64]] = torch.tensor(
        nans * 16, dtype=integer
    )
    bits = bits[: bits.numel() - 3] if width < 64 else bits
    values = bits.view(dtype)
    wanted = torch.where(values.double().isnan(), torch.tensor(quiet, dtype=integer), bits)
    infinite = int(values.double().isinf().sum())
    assert infinite == (0 if dtype == torch.float8_e4m3fn else 2)
    assert digests(row_digests(values, KEY, row_dims=0)) == expected([wanted.numpy().tobytes()])
    # the same bits as integers are left alone
    assert digests(row_digests(bits, KEY, row_dims=0)) == expected([bits.numpy().tobytes()])


def test_complex_parts_are_canonical_one_by_one() -> None:
    values = torch.tensor([complex(float("nan"), 1.0), complex(2.0, -float("nan"))], dtype=torch.complex64)
    parts = np.array([0x7FC00000, 0x3F800000, 0x40000000, 0x7FC00000], np.uint32)
    assert digests(row_digests(values, KEY, row_dims=0)) == expected([parts.tobytes()])
    parts[3], parts[1] = 0x7FC00000, 0xBF800000
    assert digests(row_digests(values.conj(), KEY, row_dims=0)) == expected([parts.tobytes()])


def test_strides_offsets_and_two_row_dimensions() -> None:
    base = torch.randn(2, 7, 50, 24, generator=torch.Generator().manual_seed(3))
    views = {
        "a cache: positions by heads, in place": (base[1].transpose(0, 1)[3:41], 2),
        "a slice of rows": (base.view(-1, 24)[5::3], 1),
        "transposed rows": (base[0, 0].t(), 1),
        "a transposed block in each row": (base.transpose(2, 3), 1),
        "expanded": (base[0, 0, :1].expand(9, 24), 1),
        "three row dimensions": (base.transpose(1, 2), 3),
        "one row": (base[:, 1:], 0),
        "odd offset": (base.view(-1)[1:101].view(10, 10), 1),
        "0-d": (base[0, 0, 0, 0], 0),
    }
    for name, (view, dims) in views.items():
        count = int(np.prod(view.shape[:dims]))
        rows = view.contiguous().numpy().reshape(count, -1)
        want = expected([row.tobytes() for row in rows])
        assert digests(row_digests(view, KEY, row_dims=dims)) == want, name
        assert digests(row_digests(view.numpy(), KEY, row_dims=dims)) == want, name


def test_numpy_negative_strides_and_big_endian() -> None:
    data = np.arange(60, dtype=np.float32).reshape(6, 10)
    assert digests(row_digests(data[::-1], KEY)) == expected([row.tobytes() for row in data[::-1]])
    assert digests(row_digests(data[:, ::-1], KEY)) == expected([row.tobytes() for row in data[:, ::-1]])
    assert digests(row_digests(data.astype(">f4"), KEY)) == expected([row.tobytes() for row in data])


def test_mixed_jobs_equal_single_ones() -> None:
    generator = torch.Generator().manual_seed(4)
    items = []
    for i in range(60):
        shape = (i % 4, 1 + 37 * (i % 11))
        values = torch.randn(shape, generator=generator)
        values[values > 1.5] = float("nan")
        items.append((values.to([torch.float32, torch.bfloat16, torch.float64][i % 3]), bytes([i]) * 32, 1))
    for found, item in zip(digest_many(items), items, strict=True):
        assert found.tobytes() == row_digests(*item[:2]).tobytes()
    assert digest_many([]) == []


def test_refusals() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        row_digests(np.zeros((1, 4), np.float32), b"short")
    with pytest.raises(UnsupportedError, match="object"):
        row_digests(np.array([["a"]], object), KEY)
    with pytest.raises(UnsupportedError, match="meta"):
        row_digests(torch.empty(2, 2, device="meta"), KEY)
    with pytest.raises(ValueError, match="2 dimensions"):
        row_digests(np.zeros(4, np.float32), KEY, row_dims=2)


PROGRAM = """
import sys, numpy as np
from repro_kernels.cpu.digest import digest_many
data = np.random.default_rng(5).integers(0, 2**32, 60000, np.uint32).view(np.float32)
items = [(data[:n], bytes(range(32)), 0) for n in (0, 1, 15, 16, 17, 255, 256, 257, 576, 3000, 60000)]
items += [(data[:57600].reshape(100, 576), bytes(32), 1)]
print(b"".join(d.tobytes() for d in digest_many(items)).hex(), "torch" in sys.modules)
"""


def test_instruction_sets_agree_without_torch() -> None:
    outputs = set()
    for isa in native.available():
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"REPRO_KERNELS_ISA": isa, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1
    digest_hex, torch_loaded = outputs.pop().split()
    assert torch_loaded == "False"
    assert len(digest_hex) == 2 * 32 * 111
