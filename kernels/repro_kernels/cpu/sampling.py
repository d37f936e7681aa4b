"""Drawing tokens under profile ``fp32``: Philox4x32-10, temperature, top-k, top-p, greedy.

The bit contract is ``repro_kernels.spec.sampling``, step by step. Tests:
``tests/kernels/test_sampling.py``.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np
import torch

from repro_kernels.cpu import native, order
from repro_kernels.cpu.softmax import softmax
from repro_kernels.errors import NonFiniteError, UnsupportedError
from repro_kernels.spec.floats import rn32
from repro_kernels.spec.philox import philox, uniform

__all__ = ["philox", "sample", "sample_rows", "top_two"]

_FIRST_LOOK = 1024


@functools.cache
def _functions() -> tuple[Any, Any, Any]:
    pointer, size, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    scale, prefix, draw = native.fn("scale_logits"), native.fn("prefix"), native.fn("draw")
    scale.argtypes, scale.restype = [pointer, size, real, pointer], None
    prefix.argtypes, prefix.restype = [pointer, size, real], size
    draw.argtypes, draw.restype = [pointer, pointer, size, real, pointer], size
    return scale, prefix, draw


def sample(
    logits: torch.Tensor,
    *,
    temperature: float,
    seed: int,
    position: int,
    sequence_id: int,
    top_k: int = 0,
    top_p: float = 1.0,
) -> int:
    """Pick a token from one row of logits.

    Args:
        logits: float32, bfloat16 or float16 [vocabulary], upcast exactly; -inf cannot be drawn.
        temperature: >= 0; 0 is greedy (ties to the lowest id), draws nothing and ignores top-k and top-p.
        seed: 64 bits, unsigned.
        position: 0-based index of the token being drawn, from the sequence's first real token; 32 bits.
        sequence_id: the sequence's recorded id, never its index in a batch; 64 bits, unsigned.
        top_k: how many to keep, the lowest ids among equals at the edge; 0 keeps all.
        top_p: in (0, 1]: keep the shortest prefix, by descending probability, whose sum reaches it.

    Returns:
        The token's id.

    Raises:
        NonFiniteError: a NaN logit; when drawing, +inf or nothing above -inf.
        UnsupportedError: a temperature, top_k or top_p outside its range.
        ValueError: logits are not one row of at least one element; seed, position or id too wide.
    """
    if logits.dim() != 1 or logits.numel() == 0:
        raise ValueError(f"sample: logits have shape {tuple(logits.shape)}, not one row")
    t, p = rn32(float(temperature)), rn32(float(top_p))
    if not (math.isfinite(t) and t >= 0 and (t > 0 or temperature == 0)):
        raise UnsupportedError(f"sampling at temperature {temperature}")
    if top_k < 0 or not 0 < p <= 1:
        raise UnsupportedError(f"sampling with top_k {top_k} and top_p {top_p}")
    best = int(order.argmax(logits))
    if bool(logits[best].isnan()):  # a NaN wins every maximum
        raise NonFiniteError("logits")
    if temperature == 0:
        return best
    scale, _, draw = _functions()
    row, n = logits.to(torch.float32).contiguous(), logits.numel()
    z = torch.empty(n, dtype=torch.float32)
    scale(row.data_ptr(), n, t, z.data_ptr())
    if not bool(z[best].isfinite()):  # division keeps the order, so the greatest stays greatest
        raise NonFiniteError("logits / temperature")
    kept = None
    if 0 < top_k < n:
        kept = torch.zeros(n, dtype=torch.bool)
        kept[order.topk(z, top_k).indices] = True
    y = softmax(z, 0, mask=kept)
    if top_p < 1:
        nucleus = torch.zeros(n, dtype=torch.bool)
        nucleus[_nucleus(y, p)] = True
        kept = nucleus if kept is None else kept & nucleus
    u = uniform(seed, position, sequence_id)
    chosen = None if kept is None else kept.data_ptr()
    return int(draw(y.data_ptr(), chosen, n, u, z.data_ptr()))


def _nucleus(y: torch.Tensor, p: float) -> torch.Tensor:
    """The ids of the shortest prefix whose running sum reaches p; looks at few first: they usually do."""
    prefix = _functions()[1]
    n = y.numel()
    for looked in (min(n, _FIRST_LOOK), n):
        values, ids = order.topk(y, looked)
        count = prefix(values.contiguous().data_ptr(), looked, p)
        if count < looked or looked == n:
            break
    return ids[:count]


def top_two(logits: torch.Tensor) -> torch.Tensor:
    """The two largest logits of each row, ties to the lowest id; a NaN is above every number.

    Args:
        logits: float32, bfloat16 or float16 [rows, vocabulary], at least one column.

    Returns:
        int64 [rows, 2, 2]: (token id, float32 bits) of the largest and of the second; the second of a
        vocabulary of one is (0, 0).
    """
    values = logits.to(torch.float32, copy=True).contiguous().numpy()
    rows = np.arange(values.shape[0])
    found = np.zeros((values.shape[0], 2, 2), dtype=np.int64)
    first = values.argmax(axis=1)
    found[:, 0, 0], found[:, 0, 1] = first, values[rows, first].view(np.uint32)
    if values.shape[1] > 1:
        values[rows, first] = -np.inf
        second = values.argmax(axis=1)
        # Nothing above -inf is left: the lowest id that is not the first.
        second = np.where(second == first, (first == 0).astype(np.int64), second)
        found[:, 1, 0], found[:, 1, 1] = second, values[rows, second].view(np.uint32)
    return torch.from_numpy(found)


def sample_rows(
    logits: torch.Tensor,
    *,
    temperature: float,
    seed: int,
    positions: torch.Tensor,
    ids: torch.Tensor,
    flag: torch.Tensor,
    top_k: int = 0,
    top_p: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`sample` of every row and :func:`top_two`; on a GPU nothing is read back to the host.

    Args:
        logits: float32, bfloat16 or float16 [rows, vocabulary].
        temperature: as in :func:`sample`, as are seed, top_k and top_p.
        positions: int64 [rows], of the tokens being drawn.
        ids: int64 [rows], recorded ids; one of 2^63 or more as its two's complement.
        flag: int32 [1], set to 1 where :func:`sample` would raise NonFiniteError; that row's token is void.

    Returns:
        int64 [rows], the tokens; int64 [rows, 2, 2], as :func:`top_two` gives them.

    Raises:
        UnsupportedError, ValueError: as :func:`sample`.
    """
    tokens = []
    for row, position, identity in zip(logits, positions.tolist(), ids.tolist(), strict=True):
        how = {"position": position, "sequence_id": identity % 2**64, "top_k": top_k, "top_p": top_p}
        try:
            tokens.append(sample(row, temperature=temperature, seed=seed, **how))
        except NonFiniteError:
            flag.fill_(1)
            tokens.append(0)
    return torch.tensor(tokens), top_two(logits)
