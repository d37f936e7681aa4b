"""Elementary functions, composites, powers, casts; undecided arguments, and sweeps of the bit patterns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from repro_kernels.cpu.elementary import SUPPORTED

from tests.gpu.cases import Kernels, add, case
from tests.gpu.hostile import FLOATS, error, strided, values

Results = Sequence[torch.Tensor]

# Zeros, subnormals, powers of two, ends of ranges, infinities and NaN, of both signs.
_MAGNITUDES = (
    0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F000000, 0x3EFFFFFF,
    0x40490FDB, 0x3FC90FDB, 0x42B17217, 0x42B17218, 0x42B17219, 0x42CFF1B4, 0x42CFF1B5, 0x43150000,
    0x43160000, 0x43168000, 0x43000000, 0x42FFFFFF, 0x4A800000, 0x4A800001, 0x4B000000, 0x4B800000,
    0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FC12345, 0x7FFFFFFF,
)  # fmt: skip
_MANTISSAS = (0, 1, 0x2AAAAA, 0x400000, 0x7FFFFF)
_STEP = 1021
"""A prime: a sweep by it takes 2^22 of the 2^32 patterns, all exponents and both signs among them."""


def of_bits(patterns: Sequence[int]) -> torch.Tensor:
    """Bit patterns below 2^32 as float32."""
    return torch.tensor(patterns, dtype=torch.int64).to(torch.int32).view(torch.float32)


def arguments(seed: int, count: int) -> torch.Tensor:
    """Special values, every exponent, and `count` each of any bits, moderate ones and such near 1."""
    every = [s << 31 | e << 23 | m for s in (0, 1) for e in range(256) for m in _MANTISSAS]
    special = of_bits([*_MAGNITUDES, *(m | 1 << 31 for m in _MAGNITUDES), *every])
    moderate = 4.0 * values((count,), seed + 1)
    near_one = 1.0 + values((count,), seed + 2) * 2.0**-7
    return torch.cat([special, values((count,), seed, kind="bits"), moderate, near_one])


def _add_function(name: str, seed: int) -> None:
    def small(kernels: Kernels, device: torch.device) -> Results:
        return [kernels.elementary.unary(name, arguments(seed, 2000).to(device))]

    def types(kernels: Kernels, device: torch.device) -> Results:
        found = []
        for source in FLOATS:
            x = arguments(seed + 7, 200_000).to(source).to(device)
            found += [kernels.elementary.unary(name, x, out_dtype=target) for target in FLOATS]
        return found

    def sweep(kernels: Kernels, device: torch.device) -> Results:
        patterns = torch.arange(seed, 2**32, _STEP, dtype=torch.int64).to(torch.int32)
        return [kernels.elementary.unary(name, patterns.view(torch.float32).to(device))]

    add(f"elementary: small {name}", small, small=True)
    add(f"elementary: types {name}", types, small=False)
    add(f"elementary: sweep {name}", sweep, small=False)


for _number, _name in enumerate(sorted(SUPPORTED)):
    _add_function(_name, 10 * _number)


def undecided() -> dict[str, torch.Tensor]:
    """Name -> arguments that a first step leaves open (pow: bases and exponents in turn)."""
    found: dict[str, list[int]] = {}
    for line in Path(__file__).with_name("undecided.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, *patterns = line.split()
            found.setdefault(name, []).extend(int(p, 16) for p in patterns)
    return {name: of_bits(patterns) for name, patterns in found.items()}


@case("elementary: small undecided arguments", small=True)
def open_arguments(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for name, x in undecided().items():
        if name == "pow":
            base, exponent = x.to(device).unflatten(0, (-1, 2)).unbind(1)
            found += [kernels.elementary.pow(base, exponent), kernels.elementary.pow(base, float(x[1]))]
        else:  # alone in a block, among decided arguments, and all together
            alone = [kernels.elementary.unary(name, t.to(device)) for t in x[:3].split(1)]
            mixed = torch.cat([x, values((1000,), 1), x]).view(2, -1).t().to(device)
            found += [
                *alone,
                kernels.elementary.unary(name, x.to(device)),
                kernels.elementary.unary(name, mixed),
            ]
    return found


@case("elementary: small layouts and types", small=True)
def layouts(kernels: Kernels, device: torch.device) -> Results:
    found = []
    for source in FLOATS:
        x = values((3, 5, 33), 4, source, special=0.05)
        held = x.to(device)
        operands = (
            strided(x, device),
            held.permute(2, 0, 1),
            held[:, 1:],
            held[0, 0, ::2],
            held[:0],
            held[0, 0, 0],
        )
        for target in (None, *FLOATS):
            found += [kernels.elementary.unary("exp", t, out_dtype=target) for t in operands]
        found += [torch.tensor(kernels.elementary.unary("exp", t).stride(), device=device) for t in operands]
    return found


@case("elementary: small parameters", small=True)
def parameters(kernels: Kernels, device: torch.device) -> Results:
    x = values((500,), 5, special=0.1).to(device)
    composite, inf, nan = kernels.elementary.composite, float("inf"), float("nan")
    softplus = ((0.3,), (1.0, 1), (-1.7, -inf), (0.0,), (1e300,), (nan,), (1e-45, 0.0))
    elu = ((0.1, 3, 0.7), (1.0, 1.0, 1e-40), (-2.5,), (inf, 0.0))
    hardtanh = ((-0.1, 0.1), (-0.0, 0.0), (0.0, -0.0), (1, -1), (nan, 1))
    found = [composite("softplus", x, *given) for given in softplus]
    found += [composite("elu", x, *given) for given in elu] + [composite("elu", x, input_scale=0.5, scale=-2)]
    found += [composite("hardtanh", x, *given) for given in hardtanh]
    found += [composite("leaky_relu", x, slope) for slope in (-0.3, inf, -0.0)]
    found += [composite("leaky_relu", x.bfloat16(), 1, out_dtype=torch.float16)]
    for c in (3.0, 7, 0.1, -0.0, inf, nan, 1e-45, 1e-320, 1e300, 0.3333333333333333):
        found += [kernels.elementary.div_scalar(x, c), kernels.elementary.div_scalar(x.half(), c)]
    return [*found, kernels.elementary.div_scalar(x[:0], 3.0)]


@case("elementary: small errors", small=True)
def errors(kernels: Kernels, device: torch.device) -> Results:
    x, e = values((4,), 1).to(device), kernels.elementary
    calls = (
        lambda: e.unary("gamma", x),
        lambda: e.composite("exp", x),
        lambda: e.composite("gelu", x, 1.0),
        lambda: e.composite("elu", x, 1.0, alpha=2.0),
        lambda: e.composite("elu", x, beta=2.0),
    )
    by_device = (
        lambda: e.unary("exp", x.double()),
        lambda: e.unary("exp", x.long()),
        lambda: e.unary("exp", x, out_dtype=torch.float64),
        lambda: e.div_scalar(x.int(), 2.0),
        lambda: kernels.convert.to_integer(x, torch.bool),
        lambda: kernels.convert.to_integer(x.double(), torch.int32),
    )
    named = [error(call) for call in calls]
    # these name the device, which differs: the class and the operand's type are the same
    kinds = [error(call)[: len("UnsupportedError: exp of torch.float64")] for call in by_device]
    return [t.to(device) for t in (*named, *kinds)]


@case("elementary: small casts to integers", small=True)
def casts(kernels: Kernels, device: torch.device) -> Results:
    edges = [
        2.0**31,
        -(2.0**31),
        2.0**63,
        -(2.0**63),
        2147483520.0,
        255.5,
        256.0,
        -0.5,
        1.9999999,
        -129.0,
        65504.0,
    ]
    found = []
    for source in FLOATS:
        wide = values((300,), 6, kind="wide", special=0.2) * 2.0**20
        x = torch.cat([torch.tensor(edges), wide, values((300,), 7, kind="bits")]).to(source).to(device)
        for target in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
            found += [kernels.convert.to_integer(x, target), kernels.convert.to_integer(x[::3], target)]
    return found


@case("elementary: small ranges", small=True)
def ranges(kernels: Kernels, device: torch.device) -> Results:
    convert, found = kernels.convert, []
    for kind in FLOATS:
        found += [convert.arange(0.1, 7.0, 0.3, dtype=kind), convert.arange(2**24 - 3, 2**24 + 9, dtype=kind)]
        found += [convert.linspace(-1.0, 3.0, 77, dtype=kind), convert.linspace(1.0, 2.0, 0, dtype=kind)]
    return [t.to(device) for t in found]


# ---- powers ----

_POWER_OPERANDS = (
    0.0, -0.0, 1, -1, float("inf"), float("-inf"), float("nan"), 2, -2, 3, -3, 0.5, -0.5, 1.5, -1.5, 1e-45,
    -1e-45, 3.4028235e38, -3.4028235e38, 4, 9, 16, 27, 81, 0.25, 2**24, 2**24 - 1, 2**24 + 2, -149, -150, 150,
    1 / 3, 127, 128, 1 + 2**-23, 1 - 2**-24, -(1 + 2**-23), 2.0**-75, 2.0**-126, 0.125, 0.75, 2.5, 15, 4097,
    1 + 2**-12,
)  # fmt: skip
_EXPONENTS = (2.0, 3.0, 4.0, 5.0, 7.0, 15.0, 0.5, 0.25, 0.125, 1.5, 0.75, 2.5, 1.125, -0.5, -1.0, -2.0, 1.0)


def few_bits(seed: int, count: int) -> torch.Tensor:
    """Few-bit bases, squares and fourth powers: their powers are exact, or half-way between two numbers."""
    integers = values((3, count), seed, kind="bits").view(torch.int32) & 0x7FFFFFFF
    few, square, fourth = integers[0] % 4098, integers[1] % 4096, integers[2] % 64
    whole = torch.cat([few, square * square, fourth * fourth * fourth * fourth]).to(torch.float32)
    shifts = values((whole.numel(),), seed + 1, kind="bits").view(torch.int32) % 75
    scale = torch.ldexp(torch.ones(shifts.shape), shifts)
    return torch.cat([whole, whole * scale])


def pairs(seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Any bits; results spread over binary32; bases near 1 and large exponents; integer exponents."""
    x, y = values((2, count), seed, kind="bits")
    base = torch.exp2(40 * values((count,), seed + 1))
    spread = (60 * values((count,), seed + 2) / torch.log2(base.double())).to(torch.float32)
    near, large = 1 + values((count,), seed + 3) * 1e-5, values((count,), seed + 4) * 1e6
    some, whole = 3 * values((count,), seed + 5), torch.round(12 * values((count,), seed + 6))
    return torch.cat([x, base, near, some]), torch.cat([y, spread, large, whole])


def _powers(kernels: Kernels, device: torch.device, count: int) -> Results:
    special = torch.tensor(_POWER_OPERANDS).to(device)
    x, y = (t.to(device) for t in pairs(3, count))
    few = few_bits(4, count).to(device)
    found = [kernels.elementary.pow(special[:, None], special[None, :]), kernels.elementary.pow(x, y)]
    found += [kernels.elementary.pow(few, exponent) for exponent in _EXPONENTS]
    return [*found, kernels.elementary.pow(few, torch.full_like(few, 0.75))]


@case("elementary: small powers", small=True)
def small_powers(kernels: Kernels, device: torch.device) -> Results:
    return _powers(kernels, device, 300)


@case("elementary: powers", small=False)
def powers(kernels: Kernels, device: torch.device) -> Results:
    return _powers(kernels, device, 400_000)


@case("elementary: small types of powers", small=True)
def types_of_powers(kernels: Kernels, device: torch.device) -> Results:
    x, y = values((4, 1, 3), 8).to(device), values((5, 1), 9).to(device)
    power, found = kernels.elementary.pow, []
    for source in FLOATS:
        found += [
            power(x.to(source), y),
            power(x, y.to(source)),
            power(2.7, y.to(source)),
            power(x.to(source), 2),
        ]
        found += [power(x.to(source), 2.2, out_dtype=target) for target in FLOATS]
        found += [
            power(strided(x.cpu(), device).to(source), 1.7),
            power(x[:0], y[:1]),
            power(x[0, 0, 0], y[0, 0]),
        ]
        found += [
            power(x, y, out_dtype=source),
            power(1e300, y),
            power(x, 1e300),
            power(x[:, :, ::2], y.half()),
        ]
    return [*found, *(error(call).to(device) for call in (lambda: power(2.0, 3.0), lambda: power("2", 3.0)))]
