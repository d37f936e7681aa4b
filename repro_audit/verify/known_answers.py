"""Known-answer test: every kernel, on the device that computes, on fixed inputs against committed digests.

PyTorch's own kernels that the operator table calls exact are among them: a build or a device whose kernel
is not exact says so here, and not in a record.
A machine that fails cannot decide about a record (RA501). Inputs come from the Philox generator that numpy
guarantees not to change; digests are BLAKE3 over the outputs' bits, NaN canonical. The committed digests are
bound to the specification by the kernels' own tests, which compare every kernel with it bit for bit;
``python -m repro_audit.verify.known_answers`` prints the table anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from repro_kernels.cpu import digest, remainder
from repro_kernels.errors import KernelError
from repro_kernels.ops import (
    attention,
    convert,
    elementary,
    fused,
    gemm,
    index,
    norm,
    order,
    reduce,
    sampling,
    softmax,
)

from repro_audit.devices import failures_named
from repro_audit.verify import exact_rows
from repro_audit.verify.known_answer_digests import DIGESTS

Outputs = torch.Tensor | tuple[torch.Tensor, ...]
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


class Inputs:
    """Deterministic inputs for one case.

    Args:
        name: the case; its digest is the generator's key.
        device: where the tensors are made.
    """

    def __init__(self, name: str, device: str = "cpu") -> None:
        self._device = device
        key = int.from_bytes(blake3(name.encode()).digest()[:16], "little")
        self._bits = np.random.Philox(key=key)

    def words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        """uint32 [count] uniform random words."""
        return (self._bits.random_raw(count) >> np.uint64(32)).astype(np.uint32)

    def tame(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Finite values of both signs with exponents -6 to 1, as weights and activations have."""
        return self._floats(shape, 121, 8, dtype)

    def wild(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Finite values of both signs with exponents -24 to 7, zeros and a subnormal among them."""
        values = self._floats(shape, 103, 32, torch.float32)
        special = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0**-140, 0.5], device=self._device)
        flat = values.view(-1)
        flat[: min(6, flat.numel())] = special[: flat.numel()]
        return values.to(dtype)

    def integers(self, below: int, *shape: int) -> torch.Tensor:
        """int64 in 0 .. below - 1."""
        count = int(np.prod(shape))
        return torch.from_numpy((self.words(count) % below).astype(np.int64)).reshape(shape).to(self._device)

    def _floats(self, shape: tuple[int, ...], low: int, exponents: int, dtype: torch.dtype) -> torch.Tensor:
        words = self.words(int(np.prod(shape)))
        bits = (words & np.uint32(0x807FFFFF)) | (
            (low + (words >> np.uint32(23)) % exponents) << np.uint32(23)
        )
        values = torch.from_numpy(bits.astype(np.uint32).view(np.float32)).reshape(shape).to(dtype)
        return values.to(self._device)


@dataclass(frozen=True)
class Case:
    """A kernel and how it is called.

    Attributes:
        name: ``module.function`` and, after a slash, what is particular about the call.
        call: inputs -> outputs.
    """

    name: str
    call: Callable[[Inputs], Outputs]


def cases() -> Iterator[Case]:
    """Every case, in a fixed order."""
    yield from _products()
    yield from _attention()
    yield from _elementwise()
    yield from _reductions()
    yield from _orders()
    yield from _rest()
    yield from _exact_rows()


def _linear(dtype: torch.dtype, i: Inputs) -> Any:
    return gemm.linear(i.tame(5, 300), i.tame(37, 300, dtype=dtype))


def _products() -> Iterator[Case]:
    for dtype in _FLOATS:
        name = str(dtype).removeprefix("torch.")
        yield Case(f"gemm.linear/{name}", partial(_linear, dtype))
    yield Case(
        "gemm.linear/one row", lambda i: gemm.linear(i.tame(1, 517), i.tame(70, 517, dtype=torch.bfloat16))
    )
    yield Case(
        "gemm.linear/bias, bfloat16 out",
        lambda i: gemm.linear(i.tame(33, 129), i.tame(65, 129), i.tame(65), out_dtype=torch.bfloat16),
    )
    yield Case("gemm.matmul", lambda i: gemm.matmul(i.wild(3, 17, 140), i.wild(3, 140, 19)))
    yield Case(
        "gemm.matmul/from position 100",
        lambda i: gemm.matmul(i.wild(2, 5, 140), i.wild(2, 140, 9), k_start=100),
    )
    yield Case(
        "gemm.addmm", lambda i: gemm.addmm(i.tame(20), i.tame(7, 130), i.tame(130, 20), beta=0.5, alpha=2.0)
    )
    yield Case(
        "gemm.baddbmm",
        lambda i: gemm.baddbmm(i.tame(2, 7, 20), i.tame(2, 7, 130), i.tame(2, 130, 20), alpha=0.3),
    )
    yield Case(
        "gemm.conv",
        lambda i: gemm.conv(i.tame(2, 6, 9, 9), i.tame(8, 3, 3, 3), i.tame(8), stride=2, padding=1, groups=2),
    )


def _causal(dtype: torch.dtype, window: int | None, i: Inputs) -> Any:
    """The last 9 of 150 positions attend to all before them, two query heads to a key head."""
    q = i.tame(2, 4, 9, 32, dtype=dtype)
    k, v = i.tame(2, 2, 150, 32, dtype=dtype), i.tame(2, 2, 150, 32, dtype=dtype)
    positions = torch.arange(141, 150, device=q.device).repeat(2, 1)
    return attention.attention(q, k, v, scale=32**-0.5, out_dtype=dtype, q_positions=positions, window=window)


def _attention() -> Iterator[Case]:
    for dtype in _FLOATS:
        name = str(dtype).removeprefix("torch.")
        yield Case(f"attention.attention/{name}", partial(_causal, dtype, None))
    yield Case("attention.attention/window", partial(_causal, torch.float32, 40))
    yield Case(
        "fused.rms_norm_module",
        lambda i: fused.rms_norm_module(
            i.tame(7, 96, dtype=torch.bfloat16), i.tame(96, dtype=torch.bfloat16), 1e-5
        ),
    )
    yield Case("fused.swiglu", lambda i: fused.swiglu(i.wild(5, 70), i.wild(5, 70)))
    yield Case(
        "fused.rotary",
        lambda i: tuple(
            fused.rotary(i.tame(1, 4, 6, 32), i.tame(1, 2, 6, 32), i.tame(1, 6, 32), i.tame(1, 6, 32))
        ),
    )


def _unary(name: str, dtype: torch.dtype, count: int, i: Inputs) -> Any:
    return elementary.unary(name, i.wild(count, dtype=dtype))


def _elementwise() -> Iterator[Case]:
    for name in sorted(elementary.SUPPORTED):
        yield Case(f"elementary.unary/{name}", partial(_unary, name, torch.float32, 600))
        yield Case(f"elementary.unary/{name}, bfloat16", partial(_unary, name, torch.bfloat16, 300))
    yield Case("elementary.pow", lambda i: elementary.pow(i.wild(400).abs(), i.tame(400)))
    yield Case("elementary.pow/cube", lambda i: elementary.pow(i.wild(400), 3.0))
    yield Case("elementary.div_scalar", lambda i: elementary.div_scalar(i.wild(400), 0.3))
    yield Case(
        "elementary.composite", lambda i: elementary.composite("leaky_relu", i.wild(400), negative_slope=0.2)
    )


def _reductions() -> Iterator[Case]:
    yield Case("reduce.sum", lambda i: reduce.sum(i.wild(5, 300), 1))
    yield Case("reduce.mean", lambda i: reduce.mean(i.wild(5, 300, dtype=torch.bfloat16), 1, True))
    yield Case("reduce.var", lambda i: reduce.var(i.wild(5, 300), 1))
    yield Case("reduce.std", lambda i: reduce.std(i.wild(300, 5), 0, correction=0))
    yield Case("reduce.cumsum", lambda i: reduce.cumsum(i.wild(3, 300), 1))
    yield Case("softmax.softmax", lambda i: softmax.softmax(i.tame(5, 300), -1))
    yield Case(
        "softmax.softmax/mask",
        lambda i: softmax.softmax(i.tame(5, 300), -1, mask=i.integers(2, 5, 300).bool()),
    )
    yield Case("softmax.log_softmax", lambda i: softmax.log_softmax(i.tame(5, 300), -1))
    yield Case("norm.layer_norm", lambda i: norm.layer_norm(i.tame(5, 200), [200], i.tame(200), i.tame(200)))
    yield Case("norm.rms_norm", lambda i: norm.rms_norm(i.tame(5, 200), [200], i.tame(200), 1e-6))
    yield Case("norm.group_norm", lambda i: norm.group_norm(i.tame(2, 6, 20), 3, i.tame(6), i.tame(6)))
    yield Case(
        "norm.batch_norm",
        lambda i: norm.batch_norm(i.tame(3, 6, 9), i.tame(6), i.tame(6).abs(), w=i.tame(6), b=i.tame(6)),
    )


def _along(function: Any, i: Inputs) -> tuple[torch.Tensor, ...]:
    return _tensors(function(i.wild(7, 90), 1))


def _pairwise(function: Any, i: Inputs) -> torch.Tensor:
    x = i.wild(200)
    y: torch.Tensor = function(x, i.wild(200).flip(0))
    return y


def _orders() -> Iterator[Case]:
    for name in ("argmax", "argmin", "amax", "amin", "max", "min"):
        yield Case(f"order.{name}", partial(_along, getattr(order, name)))
    for name in ("maximum", "minimum"):
        yield Case(f"order.{name}", partial(_pairwise, getattr(order, name)))
    yield Case("order.relu", lambda i: order.relu(i.wild(200)))
    yield Case("order.clamp", lambda i: order.clamp(i.wild(200), -0.3, 0.7))
    yield Case("order.sort", lambda i: _tensors(order.sort(i.wild(4, 90), 1, True)))
    yield Case("order.argsort", lambda i: order.argsort(i.wild(4, 90)))
    yield Case("order.topk", lambda i: _tensors(order.topk(i.wild(4, 90), 7)))


def _rest() -> Iterator[Case]:
    yield Case(
        "index.index_add", lambda i: index.index_add(i.tame(9, 4), 0, i.integers(9, 50), i.tame(50, 4))
    )
    yield Case(
        "index.scatter_add", lambda i: index.scatter_add(i.tame(9, 4), 0, i.integers(9, 50, 4), i.tame(50, 4))
    )
    yield Case("convert.to_integer", lambda i: convert.to_integer(i.wild(300) * 2.0**30, torch.int32))
    yield Case("convert.arange", lambda i: convert.arange(0.1, 7.0, 0.3, dtype=torch.float32))
    yield Case("convert.linspace", lambda i: convert.linspace(-1.0, 3.0, 77, dtype=torch.float32))

    def draw(i: Inputs, **more: Any) -> torch.Tensor:
        logits = i.tame(8, 500) * 4
        tokens = [
            sampling.sample(row, temperature=0.8, seed=2**63 + 5, position=p, sequence_id=3, **more)
            for p, row in enumerate(logits)
        ]
        return torch.tensor(tokens)

    def words(i: Inputs) -> torch.Tensor:
        counters = i.integers(2**31, 20, 3).tolist()
        return torch.tensor([sampling.philox(a << 32 | b, b, c << 31 | a) for a, b, c in counters])

    yield Case("sampling.philox", words)
    yield Case("sampling.sample", draw)
    yield Case("sampling.sample/top-k, top-p", lambda i: draw(i, top_k=40, top_p=0.9))
    yield Case(
        "digest.row_digests",
        lambda i: torch.from_numpy(
            digest.row_digests(i.tame(5, 700, dtype=torch.bfloat16).cpu(), bytes(range(32)))
        ),
    )


def _quotients(name: str, i: Inputs) -> torch.Tensor:
    x, y = i.wild(400), i.wild(400).flip(0)
    found: torch.Tensor = getattr(remainder, name)(x, y)
    return found


def _under_the_table(
    function: exact_rows.Function, dtype: torch.dtype, i: Inputs
) -> tuple[torch.Tensor, ...]:
    return exact_rows.under_the_table(function, i.wild(400, dtype=dtype), i.wild(400, dtype=dtype).flip(0))


def _exact_rows() -> Iterator[Case]:
    for name in ("fmod", "remainder", "div_trunc", "div_floor"):
        yield Case(f"remainder.{name}", partial(_quotients, name))
    for name, row in exact_rows.ROWS.items():
        for dtype in (torch.float32, torch.bfloat16):
            kind = "" if dtype is torch.float32 else ", bfloat16"
            yield Case(f"torch/{name}{kind}", partial(_under_the_table, row, dtype))


def _tensors(found: Any) -> tuple[torch.Tensor, ...]:
    return (found,) if isinstance(found, torch.Tensor) else tuple(found)


def answer(case: Case, device: str = "cpu") -> str:
    """Digest (hex, 16 bytes) of a case's outputs on a device; the reason, where the kernel refuses.

    Raises:
        InconclusiveError: the device fails, or a kernel cannot be compiled for it.
    """
    hasher = blake3()
    with torch.inference_mode(), failures_named(device):
        try:
            outputs = [output.cpu() for output in _tensors(case.call(Inputs(case.name, device)))]
        except KernelError as error:
            return f"refused: {error}"
    for output in outputs:
        flat = output.contiguous().reshape(-1)
        if flat.is_floating_point():
            flat = torch.where(torch.isnan(flat), torch.full((), float("nan"), dtype=flat.dtype), flat)
        hasher.update(f"{output.dtype} {tuple(output.shape)} ".encode())
        hasher.update(flat.view(torch.uint8).numpy().tobytes())
    return hasher.digest()[:16].hex()


def failures(device: str = "cpu") -> list[str]:
    """Names of the cases whose answer on this machine's device is not the committed one."""
    return [case.name for case in cases() if DIGESTS.get(case.name) != answer(case, device)]


def main() -> None:
    """Print the module of committed digests."""
    print(
        '"""Committed answers of :mod:`repro_audit.verify.known_answers`, which also prints this file."""\n'
    )
    print("DIGESTS = {")
    for case in cases():
        found = answer(case)
        if found.startswith("refused"):
            raise SystemExit(f"{case.name}: {found}")
        print(f'    "{case.name}": "{found}",')
    print("}")


if __name__ == "__main__":
    main()
