"""The list of 110 is PyTorch's core set without what it says; every row's class is what the engine does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from repro_audit.engine import aten110
from repro_audit.engine.context import audited
from repro_audit.engine.dispatch import ProfileMode
from repro_audit.engine.optable import table
from repro_audit.errors import InconclusiveError

ROWS = {row.operator: row for row in aten110.coverage()}
X = torch.tensor([[0.5, -1.5, 2.0, 3.0], [0.25, 0.75, -0.5, 1.0]])
Y = X.flip(0) + 3
UNIT = X.abs().clamp(0.1, 0.9)
IMAGE = torch.linspace(-1, 1, 2 * 3 * 4 * 4).reshape(2, 3, 4, 4)
CUBE = IMAGE[None]
PLACES = torch.tensor([[0, 1, 0, 1]])
WHOLE = torch.tensor([5, 3, 9])

_ONE = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh elu erf exp expm1 floor gelu hardtanh isinf isnan "
    "leaky_relu log log10 log1p log2 logical_not neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt "
    "tan tanh trunc"
)
_TWO = (
    "add atan2 div eq fmod ge gt le logical_and logical_or logical_xor lt maximum minimum mul ne pow "
    "remainder sub"
)
_SCALAR = "add div eq fmod ge gt le lt mul ne pow remainder sub"
_OTHERS: dict[str, tuple[Any, ...]] = {
    "addmm": (X[:, :2], X[:, :2], Y[:, :2]),
    "amax": (X, [1]),
    "amin": (X, [1]),
    "any": (X > 1,),
    "arange": (0.0, 3.0, 0.5),
    "argmax": (X, 1),
    "argmin": (X, 1),
    "avg_pool2d": (IMAGE, [2, 2]),
    "avg_pool3d": (CUBE, [2, 2, 2]),
    "bitwise_and": (WHOLE, WHOLE),
    "bitwise_not": (WHOLE,),
    "bitwise_or": (WHOLE, WHOLE),
    "bitwise_xor": (WHOLE, WHOLE),
    "bmm": (IMAGE[0], IMAGE[1]),
    "cat": ([X, Y],),
    "clamp": (X, 0.0, 1.0),
    "col2im": (X[:, :, None].expand(2, 4, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
    "constant_pad_nd": (X, [1, 1], 0.5),
    "convolution": (IMAGE, IMAGE[:1, :, :2, :2], None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    "cumsum": (X, 1),
    "embedding": (X, PLACES),
    "flip": (X, [0]),
    "gather": (X, 0, PLACES),
    "grid_sampler_2d": (IMAGE, IMAGE[:, :2, :, :2].movedim(1, 3)[..., :2].contiguous(), 0, 0, False),
    "index": (X, [PLACES[0]]),
    "index_put": (X, [PLACES[0, :2]], Y),
    "index_select": (X, 1, PLACES[0]),
    "masked_scatter": (X, X > 0, Y),
    "max": (X, 1),
    "max_pool2d_with_indices": (IMAGE, [2, 2]),
    "max_pool3d_with_indices": (CUBE, [2, 2, 2]),
    "mean": (X, [1]),
    "min": (X, 1),
    "mm": (X, Y.t()),
    "native_group_norm": (IMAGE, None, None, 2, 3, 16, 3, 1e-5),
    "native_layer_norm": (X, [4], None, None, 1e-5),
    "prod": (X,),
    "reflection_pad1d": (X, [1, 1]),
    "reflection_pad2d": (IMAGE, [1, 1, 1, 1]),
    "reflection_pad3d": (CUBE, [1, 1, 1, 1, 1, 1]),
    "repeat": (X, [2, 1]),
    "replication_pad2d": (IMAGE, [1, 1, 1, 1]),
    "replication_pad3d": (CUBE, [1, 1, 1, 1, 1, 1]),
    "scatter": (X, 0, PLACES, Y),
    "scatter_add": (X, 0, PLACES, Y),
    "scatter_reduce": (X, 0, PLACES, Y, "sum"),
    "sort": (X, 1),
    "sum": (X, [1]),
    "topk": (X, 2),
    "upsample_bilinear2d": (IMAGE, [8, 8], False, None),
    "upsample_nearest2d": (IMAGE, [8, 8]),
    "var": (X, [1]),
    "where": (X > 0, X, Y),
}
_NAMED = {"var": {"correction": 1}}


def _calls() -> dict[str, list[Callable[[], Any]]]:
    """Operator -> calls of its overloads."""
    found: dict[str, list[Callable[[], Any]]] = {}

    def enter(name: str, *args: Any) -> None:
        function = getattr(torch.ops.aten, name)
        found.setdefault(name, []).append(lambda: function(*args, **_NAMED.get(name, {})))

    for name in _ONE.split():
        enter(name, UNIT + 1 if name == "acosh" else UNIT)
    for name in _TWO.split():
        enter(name, UNIT, Y)
    for name in _SCALAR.split():
        enter(name, UNIT, 0.3)
    for name, args in _OTHERS.items():
        enter(name, *args)
    found["div"].append(lambda: torch.ops.aten.div(UNIT, Y, rounding_mode="floor"))
    found["upsample_nearest2d"] = [lambda: torch.ops.aten.upsample_nearest2d.vec(IMAGE, [8, 8], None)]
    return found


CALLS = _calls()


def test_the_list_is_the_core_set_without_what_it_says() -> None:
    assert len(aten110.OPERATORS) == len(set(aten110.OPERATORS)) == 110
    assert list(aten110.OPERATORS) == sorted(aten110.OPERATORS)
    assert (aten110.OPERATORS[0], aten110.OPERATORS[-1]) == ("abs", "where")
    assert all(aten110.core_overloads(name) for name in aten110.OPERATORS)
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the core set of PyTorch 2.13 was sorted, others may have more")
    core = {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::") and hasattr(torch.ops.aten, schema.name.removeprefix("aten::"))
    }
    core = {name for name in core if hasattr(getattr(torch.ops.aten, name), "overloads")}
    core = {name for name in core if aten110.core_overloads(name)}
    left = {name for which in aten110.LEFT_OUT.values() if "that" not in which for name in which.split()}
    left |= {name for name in core if name.startswith(("_", "sym_")) or name.endswith("_backward")}
    assert len(core) == 164
    assert left <= core
    assert core - left == set(aten110.OPERATORS)


def test_every_row_has_a_call() -> None:
    assert sorted(CALLS) == list(aten110.OPERATORS)


@pytest.mark.parametrize("name", aten110.OPERATORS)
def test_the_class_is_what_the_engine_does(name: str) -> None:
    mode = ProfileMode(table(), {})
    refused = 0
    for call in CALLS[name]:
        call()  # PyTorch itself takes these arguments
        with audited(), mode:
            try:
                call()
            except InconclusiveError:
                refused += 1
    row = ROWS[name]
    assert (refused > 0) == (row.classed == "refused")
    assert (row.kernel == "") == (row.classed == "refused")
    assert (row.kernel == "torch") == (row.classed == "exact")
    if row.classed == "specified":
        assert any(count.classed == "specified" for count in mode.operators())


def test_the_document_and_the_readme_state_the_share() -> None:
    root = Path(__file__).parents[3]
    assert (root / "docs" / "operators.md").read_text(encoding="utf-8") == aten110.document()
    counts = aten110.summary(ROWS.values())
    covered = counts.exact + counts.specified
    assert covered + counts.refused == 110
    claim = f"Of 110 core ATen operators {covered} ({counts.percent} %) are exact or specified"
    assert claim in (root / "README.md").read_text(encoding="utf-8")
    assert counts.percent == round(100 * (110 - counts.refused) / 110, 1)
    assert counts.refused <= 9, "an operator was lost"
