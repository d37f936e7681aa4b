"""The same bits under every instruction set, thread count and floating-point environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_support import instruction_sets, output_under

PROGRAM = f"""
import hashlib
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
from kernel_support import DTYPES, tensor
from repro_kernels.cpu import reduce as r

inputs = [
    tensor(shape, seed=seed, flavour=flavour, dtype=dtype, specials=0.001)
    for seed, flavour in enumerate(('cancelling', 'subnormal', 'any bits'))
    for dtype in DTYPES
    for shape in ((5, 130), (3, 1025), (300, 200), (1, 40_001), (1, 576))
]
cases = [
    (x, x[0].clone(), x[0].abs(), x > 0, torch.arange(len(x)) % min(3, len(x)), x.nan_to_num().long() % 5)
    for x in inputs
]
torch.set_flush_denormal(FLUSH)  # only now: it would change the inputs too
digest = hashlib.sha256()
for x, w, size, mask, rows, places in cases:
    n = x.shape[1:]
    results = [
        r.sum(x, 1), r.sum(x, 0), r.sum(x), r.mean(x, 1), r.var(x, 1), r.std(x, 0),
        r.cumsum(x, 1), r.cumsum(x, 0), r.softmax(x, 1), r.softmax(x, 1, mask=mask), r.log_softmax(x, 1),
        r.layer_norm(x, n, w, w), r.rms_norm(x, n, w, 1e-5), r.group_norm(x[:, :, None], 1, w, w),
        r.batch_norm(x, w, size, w), r.index_add(x, 0, rows, x, alpha=0.3), r.scatter_add(x, 1, places, x),
        r.argmax(x, 1), r.maximum(x, w), r.topk(x, 5, 1).indices, r.relu(x), r.to_integer(x, torch.int32),
    ]
    for y in results:
        digest.update(y.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.fixture(scope="module")
def reference() -> str:
    """The fastest instruction set with one thread, in a process that flushes subnormals elsewhere."""
    return output_under(PROGRAM.replace("FLUSH", "True"), isa=instruction_sets()[-1])


@pytest.mark.parametrize("isa", instruction_sets())
def test_every_instruction_set_with_two_threads(isa: str, reference: str) -> None:
    assert output_under(PROGRAM.replace("FLUSH", "False"), isa=isa, threads=2) == reference
