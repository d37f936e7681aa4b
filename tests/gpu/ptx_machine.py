"""A machine for compiled kernels: runs the PTX that Triton makes for a GPU, all threads in step, in numpy.

It needs no GPU and shares nothing with Triton's interpreter: constants, types of integers, selections and
special values are those of the compiled text. Floating-point operations are IEEE as PTX defines them
(``.rn``, subnormals kept); NaN results have a payload of ones, the most hostile one. What it does not know it
refuses: approximate instructions, ``.ftz``, matrix instructions and float atomics among them.

Threads that diverge run by the lowest position first, so that structured branches meet again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.gpu import exact_interpreter

Array = np.ndarray[Any, np.dtype[Any]]
ALIGNMENT = 256
"""Arrays start at multiples of it, as a GPU allocator's do."""

LANES = 1 << 15
"""Threads run at a time: programs beyond that follow."""

_WIDTH = {"%rs": np.uint16, "%rd": np.uint64, "%p": np.bool_, "%r": np.uint32}
_TYPES = {
    kind + str(width): np.dtype(f"{letter}{width // 8}")
    for kind, letter, widths in (("b", "u", (8, 16, 32, 64)), ("u", "u", (8, 16, 32, 64)),
                                 ("s", "i", (8, 16, 32, 64)), ("f", "f", (16, 32, 64)))
    for width in widths
}  # fmt: skip
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip


def _umulhi(a: Array, b: Array) -> Array:
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> half) + (other >> half)


def _shift(value: Array, count: Array, left: bool) -> Array:
    width = value.dtype.itemsize * 8
    over = count >= width
    amount = np.where(over, 0, count).astype(value.dtype)
    moved = value << amount if left else value >> amount
    empty = np.where(value < 0, -1, 0).astype(value.dtype) if not left else np.zeros_like(value)
    return np.where(over, empty, moved).astype(value.dtype)


def odd(value: Array) -> Array:
    """binary64 to binary32 by rounding to odd, so that a further rounding is that of the exact value."""
    nearest = value.astype(np.float32)
    bits = nearest.view(np.int32)
    away = np.abs(nearest.astype(np.float64)) > np.abs(value)
    inexact = (nearest != value) & ~np.isnan(value)
    truncated = np.where(inexact & away, bits - 1, bits)
    return np.where(inexact, truncated | 1, bits).astype(np.int32).view(np.float32)


class Machine:
    """One kernel's PTX, parsed.

    Args:
        ptx: the text, one entry.
    """

    def __init__(self, ptx: str) -> None:
        head, body = ptx[ptx.index(".entry") :].split("\n{\n", 1)
        self.parameters = re.findall(r"\.param \.\w+ .*?(\w+_param_\d+)", head)
        sizes = re.search(r"\.reqntid (\d+)", head)
        assert sizes is not None
        self.threads = int(sizes.group(1))
        self.code: list[tuple[str, bool, str, list[str]]] = []
        self.labels: dict[str, int] = {}
        for line in body[: body.index("\n}\n")].split("\n"):
            text = line.split("//")[0].strip().rstrip(";")
            if text.endswith(":"):
                self.labels[text[:-1]] = len(self.code)
            elif text and not text.startswith((".", "{", "}")):
                found = re.fullmatch(r"(?:@(!?)(%p\d+)\s+)?([\w.:]+)\s*(.*)", text)
                assert found is not None, text
                operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", found.group(4))
                self.code.append((found.group(2) or "", found.group(1) == "!", found.group(3), operands))

    def run(self, programs: int, arguments: Sequence[Array | int | float]) -> list[Array]:
        """Run `programs` programs.

        Args:
            programs: the grid's first axis.
            arguments: arrays (given by pointer) and scalars, in the kernel's order.

        Returns:
            The arrays as the kernel leaves them.
        """
        values: list[int | float] = []
        places, end = [], ALIGNMENT
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                values.append(end)
                places.append((end, argument))
                end += (argument.nbytes // ALIGNMENT + 2) * ALIGNMENT
            else:
                values.append(argument)
        memory = np.full(end, 0xAB, np.uint8)
        for start, array in places:
            memory[start : start + array.nbytes] = array.reshape(-1).view(np.uint8)
        self.execute((programs, 1, 1), memory, values)
        return [memory[at : at + a.nbytes].copy().view(a.dtype).reshape(a.shape) for at, a in places]

    def execute(
        self, grid: tuple[int, int, int], memory: Array, values: Sequence[int | float], shared: int = 1024
    ) -> None:
        """Run a grid over a memory, which changes.

        Args:
            grid: programs per axis.
            memory: bytes; a pointer is an index into them.
            values: the kernel's parameters in order.
            shared: bytes of shared memory of a program.
        """
        named = dict(zip(self.parameters, values, strict=False))
        total = grid[0] * grid[1] * grid[2]
        step = max(1, LANES // self.threads)
        for first in range(0, total, step):
            programs = np.arange(first, min(first + step, total), dtype=np.uint32)
            _Run(self, grid, programs, memory, named, shared)


class _Run:
    """Some programs of a grid, in step."""

    def __init__(  # noqa: PLR0917
        self,
        machine: Machine,
        grid: tuple[int, int, int],
        programs: Array,
        memory: Array,
        values: dict[str, int | float],
        shared: int,
    ) -> None:
        self.machine, self.lanes = machine, programs.size * machine.threads
        self.memory, self.values = memory, values
        self.registers: dict[str, Array] = {}
        lane = np.arange(self.lanes, dtype=np.uint32)
        program = np.repeat(programs, machine.threads)
        self.special = {
            "%tid.x": lane % machine.threads,
            "%laneid": lane % 32,
            "%ctaid.x": program % grid[0],
            "%ctaid.y": program // grid[0] % grid[1],
            "%ctaid.z": program // (grid[0] * grid[1]),
            "global_smem": np.zeros(self.lanes, np.uint32),
        }
        for axis, size in zip("xyz", grid, strict=True):
            self.special[f"%nctaid.{axis}"] = np.full(self.lanes, size, np.uint32)
        shared = (shared + 15) // 16 * 16
        self.shared = np.full(programs.size * shared, 0xAB, np.uint8)
        self.window = lane // machine.threads * shared
        with np.errstate(all="ignore"):
            self._execute()

    # ---- control ----

    def _execute(self) -> None:
        groups: dict[int, Array] = {0: np.ones(self.lanes, np.bool_)}
        while groups:
            at = min(groups)
            mask = groups.pop(at)
            while at not in groups:
                guard, negated, op, operands = self.machine.code[at]
                if op == "ret":
                    assert not guard
                    break
                if op.startswith("bra"):
                    taken = mask & self._guard(guard, negated)
                    for target, part in ((self.machine.labels[operands[0]], taken), (at + 1, mask & ~taken)):
                        if part.any():
                            groups[target] = groups.get(target, np.zeros_like(part)) | part
                    break
                active = mask & self._guard(guard, negated) if guard else mask
                try:
                    self._step(op, operands, active)
                except (KeyError, IndexError, AttributeError, ValueError) as error:
                    raise AssertionError(f"not known: {op} {operands} ({error!r})") from error
                at += 1
            else:
                groups[at] |= mask

    def _guard(self, guard: str, negated: bool) -> Array:
        if not guard:
            return np.ones(self.lanes, np.bool_)
        return ~self.registers[guard] if negated else self.registers[guard]

    # ---- operands ----

    def _read(self, operand: str, dtype: np.dtype[Any]) -> Array:
        if operand in self.special:
            return self.special[operand].view(dtype)
        if operand.startswith("%"):
            register = self.registers[operand]
            if register.dtype == np.bool_:
                return register
            return register.astype(f"u{min(dtype.itemsize, register.itemsize)}").view(dtype)
        if operand.startswith(("0f", "0d")):
            bits = np.array([int(operand[2:], 16)], f"u{dtype.itemsize}")
            return np.broadcast_to(bits.view(dtype), (self.lanes,))
        value = int(operand, 0) % (1 << (8 * dtype.itemsize)) if dtype != np.bool_ else int(operand != "0")
        return np.broadcast_to(np.array([value], f"u{dtype.itemsize}").view(dtype), (self.lanes,))

    def _write(self, name: str, value: Array, active: Array) -> None:
        if name == "_":
            return
        prefix = next(p for p in _WIDTH if name.startswith(p) and name[len(p) :].isdigit())
        kind = np.dtype(_WIDTH[prefix])
        if value.dtype.kind == "f":
            ones = np.array([2 ** (value.dtype.itemsize * 8 - 1) - 1], f"i{value.dtype.itemsize}")
            value = np.where(np.isnan(value), ones.view(value.dtype), value)
        if kind == np.bool_:
            new = value.astype(np.bool_)
        else:
            new = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}").astype(kind)
        old = self.registers.get(name)
        self.registers[name] = new if active.all() or old is None else np.where(active, new, old)

    def _address(self, operand: str) -> Array:
        parts = operand.strip("[] ").split("+")
        base, offset = parts[0].strip(), int(parts[1]) if len(parts) > 1 else 0
        wide = np.dtype(np.uint64) if base.startswith("%rd") else np.dtype(np.uint32)
        return self._read(base, wide).astype(np.int64) + offset

    # ---- instructions ----

    def _step(self, op: str, operands: list[str], active: Array) -> None:
        base, *suffixes = op.split(".")
        assert not {"approx", "ftz", "sat", "full"} & set(suffixes), op
        if base in ("ld", "st"):
            self._move(base, suffixes, operands, active)
        elif base in ("ldmatrix", "stmatrix"):
            self._matrix(op, operands, active)
        elif base == "bar":
            return
        elif base == "cp":
            self._copy(suffixes, operands, active)
        elif base == "atom":
            self._atom(op, operands, active)
        elif base == "mov":
            if suffixes[-1] == "pred":
                self._write(operands[0], self._read(operands[1], np.dtype(np.bool_)), active)
            else:
                self._mov(_TYPES[suffixes[-1]], operands, active)
        else:
            handler = getattr(self, f"_{base}", self._arithmetic)
            kinds = [_TYPES.get(s, np.dtype(np.bool_) if s == "pred" else None) for s in suffixes]
            types = [k for k in kinds if k is not None]
            self._write(operands[0], handler(op, suffixes, types, operands[1:]), active)

    def _mov(self, kind: np.dtype[Any], operands: list[str], active: Array) -> None:
        """A copy; or the parts of a register, low one first, to or from several."""
        into, source = (o.strip("{} ").replace(",", " ").split() for o in operands)
        part = np.dtype(f"u{kind.itemsize // max(len(into), len(source))}")
        pieces = [self._read(name, part if len(source) > 1 else kind) for name in source]
        whole = np.ascontiguousarray(np.stack(pieces, axis=1)).view(part).reshape(self.lanes, -1)
        joined = whole if len(into) > 1 else whole.view(kind)
        for index, name in enumerate(into):
            self._write(name, joined[:, index].copy(), active)

    def _move(self, base: str, suffixes: list[str], operands: list[str], active: Array) -> None:
        space, kind = suffixes[0], _TYPES[suffixes[-1]]
        listed, place = (operands[0], operands[1]) if base == "ld" else (operands[1], operands[0])
        names = listed.strip("{} ").replace(",", " ").split()
        if space == "param":
            value = np.array([self.values[place.strip("[]")]])
            cell = value.astype(np.float32).view(np.uint32) if value.dtype.kind == "f" else value.astype(kind)
            return self._write(names[0], np.repeat(cell, self.lanes), active)
        address = self._address(place)
        width = kind.itemsize
        for index, name in enumerate(names):
            at = np.where(active, address + index * width, 0)
            assert not (at % width).any()
            memory = self.memory if space == "global" else self.shared
            assert space in ("global", "shared"), space
            cells = memory[: memory.size // width * width].view(f"u{width}")
            at = (at if space == "global" else np.where(active, at + self.window, 0)) // width
            if base == "ld":
                self._write(name, cells[at], active)
            else:
                cells[at[active]] = self._read(name, np.dtype(f"u{width}"))[active]
        return None

    def _copy(self, suffixes: list[str], operands: list[str], active: Array) -> None:
        """cp.async, at once; zeros behind the bytes that a fourth operand says. Groups have nothing to do."""
        assert suffixes[0] == "async", suffixes
        if suffixes[1] in ("commit_group", "wait_group"):
            return
        assert suffixes[-2:] == ["shared", "global"], suffixes
        width = int(operands[2], 0)
        taken = self._read(operands[3], np.dtype(np.uint32)).astype(np.int64) if len(operands) > 3 else width
        into, source = self._address(operands[0]) + self.window, self._address(operands[1])
        assert not (into % width)[active].any() and not (source % width)[active].any()
        for byte in range(width):
            real = active & (byte < taken)
            self.shared[(into + byte)[active]] = 0
            self.shared[(into + byte)[real]] = self.memory[(source + byte)[real]]

    def _atom(self, op: str, operands: list[str], active: Array) -> None:
        """An atomic addition of integers: the threads one after the other."""
        assert op.startswith("atom.global.") and op.endswith(".add.u32"), op
        cells, at = self.memory[: self.memory.size // 4 * 4].view(np.uint32), self._address(operands[1])
        value = self._read(operands[2], np.dtype(np.uint32))
        old = np.zeros(self.lanes, np.uint32)
        for lane in np.flatnonzero(active):
            assert at[lane] % 4 == 0
            old[lane] = cells[at[lane] // 4]
            cells[at[lane] // 4] += value[lane]
        self._write(operands[0], old, active)

    def _matrix(self, op: str, operands: list[str], active: Array) -> None:
        """ldmatrix, stmatrix: 8 x 8 matrices of 16 bits; lane 8k + r has the address of row r of matrix k."""
        load = op.startswith("ld")
        listed, place = operands if load else operands[::-1]
        names = listed.strip("{} ").replace(",", " ").split()
        address = (self._address(place) + self.window).reshape(-1, 32)
        shorts, lane = self.shared.view(np.uint16), np.arange(32)
        assert ".b16" in op and active.reshape(-1, 32).all(axis=1).sum() * 32 == active.sum(), op
        for k, name in enumerate(names):
            rows = address[:, 8 * k : 8 * k + 8]
            if ".trans" in op:
                at = [(rows[:, 2 * (lane % 4) + half] + 2 * (lane // 4)) // 2 for half in (0, 1)]
            else:
                at = [(rows[:, lane // 4] + 4 * (lane % 4) + 2 * half) // 2 for half in (0, 1)]
            both = [np.where(active.reshape(-1, 32), a, 0) for a in at]
            if load:
                halves = np.stack([shorts[b].reshape(-1) for b in both], axis=1)
                self._write(name, np.ascontiguousarray(halves).view(np.uint32).reshape(-1), active)
            else:
                halves = np.ascontiguousarray(self._read(name, np.dtype(np.uint32))).view(np.uint16)
                for half in (0, 1):
                    shorts[both[half].reshape(-1)[active]] = halves[half::2][active]

    def _arithmetic(self, op: str, suffixes: list[str], types: list[Any], names: list[str]) -> Array:
        if suffixes[-1] in ("bf16", "bf16x2", "f16", "f16x2"):
            return self._short(op, names)
        if suffixes[-1] == "f32x2":
            pair = np.dtype(np.uint64)
            values = [np.ascontiguousarray(self._read(n, pair)).view(np.float32) for n in names]
            return self._operation(op, suffixes, np.dtype(np.float32), values).view(pair)
        return self._operation(op, suffixes, types[-1], [self._read(n, types[-1]) for n in names])

    def _operation(self, op: str, suffixes: list[str], kind: np.dtype[Any], values: list[Array]) -> Array:
        base = op.split(".", maxsplit=1)[0]
        simple: dict[str, Callable[..., Array]] = {
            "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
            "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "abs": np.abs, "sqrt": np.sqrt,
        }  # fmt: skip
        assert kind.kind != "f" or base in ("abs", "neg") or "rn" in suffixes or base in ("min", "max"), op
        if base == "fma":
            return exact_interpreter.fma(*values)
        if base in ("min", "max") and kind.kind == "f":
            return (np.fmin if base == "min" else np.fmax)(*values)
        if base == "neg":
            return -values[0] if kind.kind == "f" else (0 - values[0]).astype(kind)
        if base == "mul":
            if "hi" in suffixes:
                assert kind == np.uint64, op
                return _umulhi(*values)
            return self._product(suffixes, kind, values)
        if base == "div":
            return values[0] / values[1] if kind.kind == "f" else values[0] // np.maximum(values[1], 1)
        if base == "rem":
            return values[0] % np.maximum(values[1], 1)
        return simple[base](*values)

    def _short(self, op: str, names: list[str]) -> Array:
        """16-bit arithmetic, packed or not, rounded once; of fma a product (c = -0) or a sum (b = 1)."""
        packed, bfloat = op.endswith("x2"), "bf16" in op
        operands = []
        for name in names:
            raw = np.ascontiguousarray(self._read(name, np.dtype(np.uint32 if packed else np.uint16)))
            short = raw.view(np.uint16)
            exact = exact_interpreter.from_bfloat16(short) if bfloat else short.view(np.float16)
            operands.append(exact.astype(np.float64))
        base = op.split(".", maxsplit=1)[0]
        if base == "fma":
            a, b, c = operands
            product = (c == 0) & np.signbit(c)
            assert (product | (b == 1)).all(), op
            result = np.where(product, a * b, a * b + c)
        elif base == "neg":
            result = -operands[0]
        else:
            simple = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
            result = simple[base](*operands)
        rounded = odd(result)
        bits = (
            exact_interpreter.to_bfloat16(rounded) if bfloat else rounded.astype(np.float16).view(np.uint16)
        )
        return bits.view(np.uint32) if packed else bits

    def _product(self, suffixes: list[str], kind: np.dtype[Any], values: list[Array]) -> Array:
        wide = f"{kind.kind}{2 * kind.itemsize}" if "wide" in suffixes else kind
        return values[0].astype(wide) * values[1].astype(wide)

    def _mad(self, op: str, suffixes: list[str], types: list[Any], names: list[str]) -> Array:
        assert {"lo", "wide"} & set(suffixes), op
        product = self._product(suffixes, types[0], [self._read(n, types[0]) for n in names[:2]])
        return product + self._read(names[2], product.dtype)

    def _shl(self, _op: str, _suffixes: list[str], types: list[Any], names: list[str]) -> Array:
        return _shift(self._read(names[0], types[0]), self._read(names[1], np.dtype(np.uint32)), True)

    def _shr(self, _op: str, _suffixes: list[str], types: list[Any], names: list[str]) -> Array:
        return _shift(self._read(names[0], types[0]), self._read(names[1], np.dtype(np.uint32)), False)

    def _shf(self, op: str, _suffixes: list[str], types: list[Any], names: list[str]) -> Array:
        assert op == "shf.l.wrap.b32"
        low, high, count = (self._read(n, np.dtype(np.uint32)).astype(np.uint64) for n in names)
        joined = (high << np.uint64(32)) | low
        return (joined << (count & np.uint64(31)) >> np.uint64(32)).astype(types[0])

    def _bfe(self, _op: str, _suffixes: list[str], types: list[Any], names: list[str]) -> Array:
        start, length = (int(n) for n in names[1:])
        width = types[0].itemsize * 8
        assert 0 < length <= width - start
        value = self._read(names[0], types[0])
        return (value << (width - start - length)).astype(types[0]) >> (width - length)

    def _selp(self, _op: str, _suffixes: list[str], types: list[Any], names: list[str]) -> Array:
        kind = np.dtype(f"u{types[0].itemsize}")
        return np.where(self.registers[names[2]], self._read(names[0], kind), self._read(names[1], kind))

    def _setp(self, op: str, suffixes: list[str], types: list[Any], names: list[str]) -> Array:
        how = suffixes[0]
        if suffixes[-1] == "bf16":
            a, b = (exact_interpreter.from_bfloat16(self._read(n, np.dtype(np.uint16))) for n in names)
        else:
            a, b = (self._read(n, types[0]) for n in names)
        unordered = np.isnan(a) | np.isnan(b) if a.dtype.kind == "f" else np.zeros(self.lanes, np.bool_)
        if how in ("nan", "num"):
            return unordered if how == "nan" else ~unordered
        if how in _COMPARE:
            return _COMPARE[how](a, b) & ~unordered
        assert how.endswith("u"), op
        return _COMPARE[how[:-1]](a, b) | unordered

    def _cvt(self, op: str, suffixes: list[str], types: list[Any], names: list[str]) -> Array:
        bfloat = np.dtype(np.uint16)
        if op == "cvt.f32.bf16":
            return exact_interpreter.from_bfloat16(self._read(names[0], bfloat))
        if op == "cvt.rn.bf16.f32":
            return exact_interpreter.to_bfloat16(self._read(names[0], np.dtype(np.float32)))
        target, source = types
        value = self._read(names[0], source)
        if target.kind == "f" and (source.kind != "f" or target.itemsize < source.itemsize):
            assert "rn" in suffixes, op
        if suffixes[0] == "rmi":
            return np.floor(value)
        if target.kind != "f" and source.kind == "f":
            assert suffixes[0] == "rzi" and target == np.int32, op
            return np.clip(np.nan_to_num(np.trunc(value)), -(2.0**31), 2.0**31 - 1).astype(target)
        return value.astype(target)

    def _redux(self, op: str, suffixes: list[str], types: list[Any], names: list[str]) -> Array:
        warps = self._read(names[0], types[0]).reshape(-1, 32)
        reduce = {"max": np.max, "min": np.min, "or": np.bitwise_or.reduce, "and": np.bitwise_and.reduce}
        return np.repeat(reduce[suffixes[1]](warps, axis=1), 32)

    def _shfl(self, op: str, _suffixes: list[str], types: list[Any], names: list[str]) -> Array:
        assert op in ("shfl.sync.bfly.b32", "shfl.sync.idx.b32") and names[2] == "31", op
        lane = np.arange(self.lanes)
        other = self._read(names[1], np.dtype(np.uint32)).astype(np.int64)
        source = lane ^ other if "bfly" in op else lane // 32 * 32 + other % 32
        return self._read(names[0], types[0])[source]
