"""The dispatch mode: what runs, what is refused by name and module, and that views and in-place writes are
right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from repro_audit import engine
from repro_audit.engine.context import audited
from repro_audit.engine.dispatch import ProfileMode
from repro_audit.engine.optable import rows, table
from repro_audit.errors import InconclusiveError
from tests.helpers.engine_runs import loaded, settings

X = torch.linspace(-3, 3, 12).reshape(3, 4)


def run(compute: Callable[[], Any]) -> Any:
    with audited(), ProfileMode(table(), {}):
        return compute()


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    kinds = {2: torch.int16, 4: torch.int32}
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not a.dtype.is_floating_point:
        return bool((a == b).all())
    kind = kinds[a.element_size()]
    return bool((a.contiguous().view(kind) == b.contiguous().view(kind)).all())


def test_every_row_is_a_known_operator_and_stands_once() -> None:
    names = [name for name, _ in rows()]
    assert len(names) == len(set(names))
    assert len(table()) > 0.97 * len(names)
    assert {row.classed for row in table().values()} == {"exact", "specified", "structural", "refused"}


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "random": (lambda: torch.rand(2), "aten.rand.default is random"),
    "random in place": (lambda: torch.zeros(2).normal_(), "normal_"),
    "outside": (lambda: torch.linalg.svd(X), "aten._linalg_svd.default is outside profile fp32"),
    "item": (lambda: X.sum().item(), "takes a float out of a tensor"),
    "float condition": (lambda: bool(X[0, 0]), "takes a float out of a tensor"),
    "double": (lambda: X.double() + 1.0, "gives float64"),
    "complex": (lambda: X.to(torch.complex64), "gives complex64"),
    "bits": (lambda: X.view(torch.int32), "views the bits of a float"),
    "bits back": (lambda: torch.ones(2, dtype=torch.int32).view(torch.float32), "views the bits of a float"),
    "out": (lambda: torch.add(X, X, out=torch.zeros(3, 4)), "aten.add.out is outside"),
    "accumulate": (
        lambda: torch.zeros(3).index_put_((torch.tensor([0, 0]),), torch.ones(2), accumulate=True),
        "accumulate=True",
    ),
    "dropout": (lambda: F.dropout(X, 0.5, training=True), "dropout is active"),
    "product of floats": (X.prod, "on floats is outside"),
    "transposed convolution": (
        lambda: F.conv_transpose1d(X[None], X[:, None]),
        "convolution.default transposed",
    ),
    "fused multiply-add": (lambda: torch.addcmul(X, X, X), "aten.addcmul.default is outside"),
    "equal": (lambda: torch.equal(X, X), "on floats"),
    "batch statistics": (lambda: F.batch_norm(X, None, None, training=True), "batch's own statistics"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    compute, message = REFUSED[case]
    with pytest.raises(InconclusiveError, match=message) as caught:
        run(compute)
    assert caught.value.hint
    assert caught.value.exit_code == 5


def test_a_refusal_names_the_module() -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.pinv(x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.deep = nn.Sequential(nn.Identity(), Inner())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.deep(x)

    with pytest.raises(
        InconclusiveError, match=r"operator aten\S+ is outside profile fp32 in deep\.1 \(Inner\)"
    ):
        engine.score_module(loaded(Outer().eval()), {"x": X}, settings())


def test_training_mode_is_refused_with_the_module() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    module[1].train()
    with pytest.raises(InconclusiveError, match="1 is in training mode"):
        engine.score_module(loaded(module), {"input": X}, settings())


INPLACE: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda x: x.add_(1.5),
    "mul on a view": lambda x: x[1:].mul_(2.0),
    "column": lambda x: x[:, 1].add_(x[:, 2]),
    "transposed": lambda x: x.t()[2].sub_(0.25),
    "copy": lambda x: x[0].copy_(x[2]),
    "set item": lambda x: x.__setitem__((slice(None), 3), 7.0),
    "fill": lambda x: x[2].fill_(4.0),
    "zero": lambda x: x[:2].zero_(),
    "masked": lambda x: x.masked_fill_(x > 0, -1.0),
    "expanded source": lambda x: x.copy_(x[:1].clone().expand(3, 4)),
    "half into float": lambda x: x.add_(x.bfloat16()),
    "relu": lambda x: F.relu(x, inplace=True),
    "index": lambda x: x.index_put_((torch.tensor([0, 0]),), torch.stack([x[1], x[2]])),
}


@pytest.mark.parametrize("case", INPLACE)
def test_in_place_writes_through_views(case: str) -> None:
    ours, theirs = X.clone(), X.clone()
    run(lambda: INPLACE[case](ours))
    INPLACE[case](theirs)
    assert same(ours, theirs)


def test_overlapping_write_reads_first() -> None:
    ours, theirs = torch.arange(6.0), torch.arange(6.0)
    run(lambda: ours[1:].add_(ours[:-1]))
    theirs[1:] = theirs[1:] + theirs[:-1]
    assert same(ours, theirs)


def test_empty_is_zero() -> None:
    def make() -> list[torch.Tensor]:
        return [torch.empty(1000), torch.empty_like(X), X.new_empty(5), torch.empty_strided((2, 2), (2, 1))]

    for _ in range(3):
        torch.full((1000,), 7.0)
        assert all(bool((tensor == 0).all()) for tensor in run(make))


def test_alpha_is_two_roundings_and_scalars_on_halves_one() -> None:
    x, y = torch.tensor([1.0 + 2**-23]), torch.tensor([1.0 / 3])
    alpha = 0.1
    product = y * torch.tensor(alpha, dtype=torch.float32)
    assert same(run(lambda: torch.add(x, y, alpha=alpha)), x + product)
    assert same(run(lambda: torch.sub(x, y, alpha=alpha)), x - product)
    assert same(run(lambda: torch.rsub(x, y, alpha=alpha)), y - x * torch.tensor(alpha))
    half = torch.linspace(-2, 2, 401).bfloat16()
    for scalar in (0.1, 1 / 3, 1e-3):
        assert same(run(lambda c=scalar: half + c), (half.float() + c_(scalar)).bfloat16())
        assert same(run(lambda c=scalar: half * c), (half.float() * c_(scalar)).bfloat16())
        assert same(run(lambda c=scalar: half > c), half.float() > c_(scalar))


def c_(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float32)


def test_scalars_and_constants_are_recorded_once() -> None:
    mode = ProfileMode(table(), {})
    with audited(), mode:
        for _ in range(2):
            X * 0.1 + torch.tensor([0.5, 0.25, 0.125, 1.0])
            X * 3  # an integer is part of the program
    assert [(s.operator, s.argument, s.value) for s in mode.scalars()] == [
        ("aten.mul.Tensor", "other", (0.1).hex())
    ]
    assert [(c.dtype, c.shape) for c in mode.constants()] == [("float32", (4,))]
    counts = {operator.operator: operator for operator in mode.operators()}
    assert counts["aten.mul.Tensor"].calls == 4
    assert counts["aten.add.Tensor"].classed == "exact"


def test_composites_are_decomposed_into_rows() -> None:
    mode = ProfileMode(table(), {})
    with audited(), mode:
        result = torch.einsum("ij,kj->ik", X, X)
    assert result.shape == (3, 3)
    names = {operator.operator for operator in mode.operators()}
    assert "aten.bmm.default" in names
    assert "aten.einsum.default" not in names


def test_integers_steer_the_program() -> None:
    def steer() -> int:
        index = torch.tensor([3, 1, 2])
        return int(index.max()) + sum(index.tolist()) + int((index > 1).sum().item())

    assert run(steer) == 3 + 6 + 2


@pytest.mark.parametrize("way", ["tolist", "numpy"])
def test_floats_do_not_leave_by_a_back_door(way: str) -> None:
    class Leaky(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            taken = getattr(x, way)()
            return x * float(taken[0][0])

    class Counting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * len(getattr((x > 0), way)())

    with pytest.raises(InconclusiveError, match=f"Tensor.{way} takes floats out of a tensor in the model"):
        engine.score_module(loaded(Leaky().eval()), {"x": X}, settings())
    engine.score_module(loaded(Counting().eval()), {"x": X}, settings())
    assert getattr(X, way)() is not None
    assert "escape" not in getattr(torch.Tensor, way).__name__


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_outside_an_embedding_is_named(index: int) -> None:
    with pytest.raises(InconclusiveError, match="outside the 3 rows of an embedding"):
        run(lambda: F.embedding(torch.tensor([0, index]), X))


def test_threads_in_a_forward_pass_are_refused() -> None:
    """A dispatch mode is of one thread: what another computes would be in no record."""
    from concurrent.futures import ThreadPoolExecutor

    class Threaded(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(torch.exp, x).result()

    model = loaded(Threaded().eval(), example_inputs={"x": X})
    with pytest.raises(InconclusiveError, match="a thread is started"):
        engine.score_module(model, {"x": X}, settings(new_tokens=0))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(int).result() == 0


def test_what_writes_in_place_says_so() -> None:
    """The recorder holds tensors until the end of a step; before a write it is told."""
    silent = {
        str(func) for func, row in table().items() if func._schema.is_mutable and row.params != "written"
    }
    refused = {str(func) for func, row in table().items() if row.classed == "refused"}
    assert silent - refused == {"aten.detach_.default"}
    calls = []
    mode = ProfileMode(table(), {})
    mode.writing = lambda: calls.append(1)
    with audited(), mode:
        held = torch.zeros(3) + 1
        assert calls == []
        held += 1
        assert len(calls) == 1
        held[1:].mul_(2)
        held[0] = 5
        assert len(calls) == 3
    assert same(held, torch.tensor([5.0, 4.0, 4.0]))
