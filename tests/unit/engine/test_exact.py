"""What the table calls exact gives the spec's bits on inputs that hurt: ties, subnormals, signed zeros,
infinities, NaN; on the CPU, and on a GPU where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from repro_kernels.spec import convert, floats, order

from repro_audit.engine.context import audited
from repro_audit.engine.dispatch import ProfileMode
from repro_audit.engine.optable import table

_SPECIAL = [0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0x3F800001]
_SPECIAL += [0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x33800000]
_SPECIAL += [0x3F000000, 0x3FC00000, 0xC0200000, 0x4B000000, 0x4B000001, 0x5F000000, 0xDF000000, 0x4F7FFFFF]


def bits32() -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    drawn = torch.randint(-(2**31), 2**31, (400,), generator=generator)
    fixed = torch.tensor([b - 2**32 if b >= 2**31 else b for b in _SPECIAL])
    return torch.cat([fixed, drawn]).to(torch.int32)


VALUES = bits32().view(torch.float32)
OTHERS = VALUES.roll(7)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], autouse=True)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device, to which the values are moved."""
    for name in ("VALUES", "OTHERS"):
        monkeypatch.setitem(globals(), name, globals()[name].to(request.param))
    return str(request.param)


def run(compute: Callable[[], Any]) -> torch.Tensor:
    with audited(), ProfileMode(table(), {}):
        return compute()


def as_bits(tensor: torch.Tensor) -> list[int]:
    fmt = {torch.float32: floats.BINARY32, torch.bfloat16: floats.BFLOAT16, torch.float16: floats.BINARY16}
    return [floats.bits(value, fmt[tensor.dtype]) for value in tensor.cpu().double().tolist()]


def expect(values: list[float], fmt: floats.Format = floats.BINARY32) -> list[int]:
    return [floats.bits(value, fmt) for value in values]


BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[float, float], float]]] = {
    "add": (lambda a, b: a + b, floats.add),
    "sub": (lambda a, b: a - b, floats.sub),
    "rsub": (lambda a, b: torch.rsub(b, a), floats.sub),
    "mul": (lambda a, b: a * b, floats.mul),
    "div": (lambda a, b: a / b, floats.div),
    "maximum": (torch.maximum, order.maximum),
    "minimum": (torch.minimum, order.minimum),
}


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    ours, spec = BINARY[name]
    found = as_bits(run(lambda: ours(VALUES, OTHERS)))
    assert found == expect([spec(a, b) for a, b in zip(VALUES.tolist(), OTHERS.tolist(), strict=True)])


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_binary_of_halves(name: str, kind: torch.dtype) -> None:
    fmt = floats.BFLOAT16 if kind is torch.bfloat16 else floats.BINARY16
    ours, spec = BINARY[name]
    a, b = VALUES.to(kind), OTHERS.to(kind)
    found = as_bits(run(lambda: ours(a, b)))
    pairs = zip(a.double().tolist(), b.double().tolist(), strict=True)
    assert found == expect([floats.rn(spec(x, y), fmt) for x, y in pairs], fmt)


def _integral(function: Callable[[float], int]) -> Callable[[float], float]:
    def of(x: float) -> float:
        if not math.isfinite(x) or x == 0:
            return x
        return math.copysign(float(function(x)), x)

    return of


UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[float], float]]] = {
    "neg": (torch.neg, lambda x: -x),
    "abs": (torch.abs, abs),
    "floor": (torch.floor, _integral(math.floor)),
    "ceil": (torch.ceil, _integral(math.ceil)),
    "trunc": (torch.trunc, _integral(math.trunc)),
    "round": (torch.round, _integral(round)),
    "relu": (torch.relu, order.relu),
    "clamp": (lambda x: x.clamp(-0.5, 0.75), lambda x: order.clamp(x, -0.5, 0.75)),
    "divided by a scalar": (lambda x: x / 2560.0, lambda x: floats.div(x, 2560.0)),
    "divided by a third": (lambda x: x / 0.3, lambda x: floats.div(x, floats.rn32(0.3))),
    "times a scalar": (lambda x: x * 0.1, lambda x: floats.mul(x, floats.rn32(0.1))),
    "a scalar minus": (lambda x: 0.1 - x, lambda x: floats.sub(floats.rn32(0.1), x)),
    "square root": (torch.sqrt, floats.sqrt),
    "square": (torch.square, lambda x: floats.mul(x, x)),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    ours, spec = UNARY[name]
    assert as_bits(run(lambda: ours(VALUES))) == expect([spec(x) for x in VALUES.tolist()])


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_casts_to_halves_and_back(kind: torch.dtype) -> None:
    fmt = floats.BFLOAT16 if kind is torch.bfloat16 else floats.BINARY16
    found = run(lambda: VALUES.to(kind))
    assert as_bits(found) == expect([floats.rn(x, fmt) for x in VALUES.tolist()], fmt)
    assert as_bits(run(found.float)) == expect(found.double().tolist())


@pytest.mark.parametrize(("kind", "width"), [(torch.int64, 64), (torch.int32, 32), (torch.int8, 8)])
def test_casts_to_integers_saturate(kind: torch.dtype, width: int, place: str) -> None:
    found = run(lambda: VALUES.to(kind)).tolist()
    assert found == [convert.to_integer(x, width) for x in VALUES.tolist()]
    written = run(lambda: torch.zeros(VALUES.shape, dtype=kind, device=place).copy_(VALUES)).tolist()
    assert written == found


def test_integers_to_floats_round_once(place: str) -> None:
    whole = torch.tensor([2**24 + 1, 2**24 + 3, -(2**62) - 1, 2**53 + 1, 7, 0], device=place)
    assert as_bits(run(lambda: whole.to(torch.float32))) == expect([floats.rn32(x) for x in whole.tolist()])


def test_ranges(place: str) -> None:
    found = run(lambda: torch.arange(0.0, 1.0, 0.1, device=place))
    assert as_bits(found) == expect(convert.arange(0.0, 0.1, 10))


@pytest.mark.parametrize("operator", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_comparisons(operator: str) -> None:
    import operator as python

    found = run(lambda: getattr(torch, operator)(VALUES, OTHERS)).tolist()
    compare = getattr(python, operator)
    assert found == [compare(a, b) for a, b in zip(VALUES.tolist(), OTHERS.tolist(), strict=True)]


def test_leaky_relu_and_where() -> None:
    slope = floats.rn32(0.01)
    found = as_bits(run(lambda: torch.nn.functional.leaky_relu(VALUES)))
    assert found == expect([x if x > 0 else floats.mul(x, slope) for x in VALUES.tolist()])


def _numbers(place: str, value: float) -> list[Any]:
    """A number as model code holds it: in Python, and 0-dimensional on the host and on the device."""
    return [value, torch.tensor(value), torch.tensor(value, device=place), torch.tensor(value).double()]


SCALED: dict[str, tuple[Callable[[Any, Any], Any], Callable[[float, float], float]]] = {
    **{name: BINARY[name] for name in ("add", "sub", "mul", "div")},
    "rsub": (torch.rsub, lambda a, b: floats.sub(b, a)),
    "from the right": (lambda a, b: b + a, floats.add),
    "below": (lambda a, b: b - a, lambda a, b: floats.sub(b, a)),
}


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [0.3, 1001.0])
def test_numbers(name: str, kind: torch.dtype, value: float, place: str) -> None:
    """In Python or 0-dimensional, wherever it lies: RN of the fp32 operation with RN32 of the number."""
    formats = {
        torch.float32: floats.BINARY32,
        torch.bfloat16: floats.BFLOAT16,
        torch.float16: floats.BINARY16,
    }
    ours, spec = SCALED[name]
    x, c = VALUES[:150].to(kind), floats.rn32(value)
    expected = expect([floats.rn(spec(v, c), formats[kind]) for v in x.double().tolist()], formats[kind])
    numbers = _numbers(place, value) + ([1001, torch.tensor(1001)] if value == 1001 else [])
    for number in numbers:
        found = run(lambda: ours(x, number))  # noqa: B023  (run at once)
        assert found.dtype is kind and as_bits(found) == expected, repr(number)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_comparisons_with_numbers(kind: torch.dtype, place: str) -> None:
    x = torch.tensor([0.3, 1001.0, 1000.0, 1008.0, 0.1, float("nan")], device=place).to(kind)
    for value in (0.3, 1001.0):
        expected = [v < floats.rn32(value) for v in x.tolist()]
        assert all(run(lambda: x < n).tolist() == expected for n in _numbers(place, value))  # noqa: B023


def test_signs_and_fractions() -> None:
    def sign(x: float) -> float:
        return math.copysign(1.0, x) if x < 0 or x > 0 else 0.0

    def fraction(x: float) -> float:
        return floats.sub(x, _integral(math.trunc)(x))

    whole = VALUES.tolist()
    assert as_bits(run(lambda: torch.sign(VALUES))) == expect([sign(x) for x in whole])
    assert as_bits(run(lambda: torch.sgn(VALUES))) == expect([sign(x) for x in whole])
    assert as_bits(run(lambda: torch.frac(VALUES))) == expect([fraction(x) for x in whole])


def test_of_duplicate_indices_the_last_wins(place: str) -> None:
    index = (torch.arange(3000, device=place) * 7919) % 11
    source = torch.arange(3000, device=place).float()
    last = [max(i for i in range(3000) if i * 7919 % 11 == slot) for slot in range(11)]
    zeros = torch.zeros(11, device=place)
    for write in (
        lambda: zeros.scatter(0, index, source),
        lambda: zeros.index_copy(0, index, source),
        lambda: zeros.clone().index_put_((index,), source),
        lambda: zeros.index_put((index,), source),
    ):
        found = run(write)
        assert found.tolist() == last and found.device.type == place
