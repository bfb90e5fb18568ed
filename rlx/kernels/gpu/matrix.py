"""Matrix units: instructions by which the threads of a wave multiply 16-bit floats together.

``D = A B + C`` for an A of m x k, a B of k x n and sums of m x n in f32, each spread over the
registers of a wave's lanes. A lane has pieces of a row of A and of a column of B, of a few
neighbouring k; its sums are of few rows and columns. Where they lie is in a ``MatrixUnit``, which
is what distinguishes one maker's instruction from another's; the makers' documents are

- NVIDIA: "PTX ISA", matrix fragments for mma.m16n8k8 and mma.m16n8k16
- AMD CDNA: "Instinct MI300 Instruction Set Architecture", chapter 7
- AMD RDNA: "RDNA3 Instruction Set Architecture", 7.9; "RDNA4 Instruction Set Architecture", 7.12

Sums are made in an order of the hardware's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from rlx.kernels.builder import Kernel, KernelTarget
from rlx.kernels.gpu.tile import Room
from rlx.kernels.reg import Reg
from rlx.types import DType, bf16, f16, f32, u16, u32

__all__ = [
    "UNITS", "Fragments", "MatrixUnit", "Panel", "multiply", "place_of", "unit_for",
]  # fmt: skip

Lane = TypeVar("Lane", int, Reg)


class Spread(NamedTuple):
    """How a place depends on the lane: ``lane // divide % modulo * times``."""

    divide: int
    modulo: int
    times: int = 1

    def of(self, lane: Lane) -> Lane:
        """The place of a lane: a number, or a register."""
        at = lane // self.divide if self.divide > 1 else lane
        return at % self.modulo * self.times


@dataclass(frozen=True)
class MatrixUnit:
    """An instruction for each of ``dtypes``, and how its matrices lie in a wave of ``wave`` lanes.

    A lane's part of A begins at ``row`` and ``depth``, and has for each of ``a_pieces`` (row, k),
    counted from there, ``run`` elements along k; its part of B the same for ``b_pieces`` from
    ``column`` and ``depth`` on. Its sums are at ``sums`` (row, column) from ``sum_row`` and
    ``sum_column`` on.
    """

    name: str
    dtypes: tuple[DType, ...]
    m: int
    n: int
    k: int
    wave: int
    run: int
    row: Spread
    column: Spread
    depth: Spread
    a_pieces: tuple[tuple[int, int], ...]
    b_pieces: tuple[tuple[int, int], ...]
    sum_row: Spread
    sum_column: Spread
    sums: tuple[tuple[int, int], ...]
    multiply: Callable[[Kernel, MatrixUnit, Operands], list[Reg]] = field(repr=False)

    @property
    def vector(self) -> bool:
        """Whether a lane's sums are one register of several lanes, not several registers."""
        return self.multiply is not _mma

    def zeros(self, k: Kernel) -> list[Reg]:
        """Sums of nothing."""
        count = len(self.sums)
        return [k.const(0, f32, count)] if self.vector else [k.const(0, f32)] * count

    def each(self, k: Kernel, sums: Sequence[Reg], number: int) -> list[Reg]:
        """The sums of a lane one by one, in the order of ``sums``, of one of several matrices."""
        count = len(self.sums)
        if self.vector:
            return [k.extract(sums[number], e) for e in range(count)]
        return list(sums[count * number : count * (number + 1)])


class Operands(NamedTuple):
    """Of one instruction: pieces of A and B as bits, and the sums so far, of elements ``dtype``."""

    a: Sequence[Reg]
    b: Sequence[Reg]
    sums: Sequence[Reg]
    dtype: DType


def _mma(k: Kernel, unit: MatrixUnit, of: Operands) -> list[Reg]:
    """NVIDIA's instruction: each piece is a register of 32 bits."""

    def pair(x: Reg) -> str:
        if of.dtype is f16:
            return k.op(f"vector.bitcast {x.name} : {x.mlir} to vector<2xf16>", f16, 2).name
        word = k.op(f"vector.bitcast {x.name} : {x.mlir} to vector<1xi32>", u32, 1)
        return k.extract(word, 0).name

    a, b = (", ".join(pair(x) for x in pieces) for pieces in (of.a, of.b))
    sums = ", ".join(s.name for s in of.sums)
    piece = "vector<2xf16>" if of.dtype is f16 else "i32"
    kinds = "" if of.dtype is f16 else "".join(
        f"multiplicand{x}PtxType = #nvvm.mma_type<bf16>, " for x in "AB"
    )  # fmt: skip
    struct = f"!llvm.struct<({', '.join(['f32'] * len(of.sums))})>"
    name = k.fresh()
    k.line(
        f"{name} = nvvm.mma.sync A[{a}] B[{b}] C[{sums}] {{{kinds}layoutA = #nvvm.mma_layout<row>, "
        f"layoutB = #nvvm.mma_layout<col>, shape = #nvvm.shape<m = {unit.m}, n = {unit.n}, "
        f"k = {unit.k}>}} : ({piece}, {piece}, f32) -> {struct}"
    )
    return [k.op(f"llvm.extractvalue {name}[{e}] : {struct}", f32, 0) for e in range(len(of.sums))]


def _amd(k: Kernel, unit: MatrixUnit, of: Operands) -> list[Reg]:
    """AMD's instructions: one piece each of A and B."""
    ((a,), (b,), (sums,)) = of.a, of.b, of.sums
    kind = f"vector<{a.lanes}x{of.dtype.name}>"
    a, b = (
        k.op(f"vector.bitcast {x.name} : {x.mlir} to {kind}", of.dtype, a.lanes) for x in (a, b)
    )
    verb, end = ("wmma", "") if unit.wave == 32 else ("mfma", " blgp = none")
    text = f"{unit.m}x{unit.n}x{unit.k} {a.name} * {b.name} + {sums.name}{end}"
    return [k.op(f"amdgpu.{verb} {text} : {kind}, {kind}, {sums.mlir}", f32, sums.lanes)]


_HALVES = (f16, bf16)


def _nvidia(name: str, dtypes: tuple[DType, ...], k: int) -> MatrixUnit:
    """A lane has pairs of A in the rows lane // 4 and 8 after it, the k twice lane % 4."""
    return MatrixUnit(
        name, dtypes, 16, 8, k, 32, 2, Spread(4, 8), Spread(4, 8), Spread(1, 4, 2),
        tuple((row, step) for step in range(0, k, 8) for row in (0, 8)),
        tuple((0, step) for step in range(0, k, 8)),
        Spread(4, 8), Spread(1, 4, 2), ((0, 0), (0, 1), (8, 0), (8, 1)), _mma,
    )  # fmt: skip


def _cdna(name: str, dtypes: tuple[DType, ...], k: int) -> MatrixUnit:
    """A lane has a quarter of a row of A and of a column of B, and four sums below each other."""
    along = Spread(1, 16)
    return MatrixUnit(
        name, dtypes, 16, 16, k, 64, k // 4, along, along, Spread(16, 4, k // 4),
        ((0, 0),), ((0, 0),),
        Spread(16, 4, 4), along, tuple((e, 0) for e in range(4)), _amd,
    )  # fmt: skip


def _rdna(name: str, depth: Spread, run: int, sum_row: Spread, distance: int) -> MatrixUnit:
    """A lane has a row of A and a column of B, or half of them, and eight sums of a column."""
    along = Spread(1, 16)
    return MatrixUnit(
        name, _HALVES, 16, 16, 16, 32, run, along, along, depth, ((0, 0),), ((0, 0),),
        sum_row, along, tuple((distance * e, 0) for e in range(8)), _amd,
    )  # fmt: skip


UNITS: dict[str, MatrixUnit] = {
    unit.name: unit
    for unit in (
        _nvidia("mma.m16n8k16", _HALVES, 16),
        _nvidia("mma.m16n8k8", (f16,), 8),
        _cdna("mfma.16x16x32", _HALVES, 32),
        _cdna("mfma.16x16x16", _HALVES, 16),
        # Where subnormal numbers count as 0: those of f16 are numbers that graphs do compute with.
        _cdna("mfma.16x16x16.bf16", (bf16,), 16),
        # Both halves of a wave have all of A and B, and take turns at the rows of the sums.
        _rdna("wmma.rdna3", Spread(1, 1, 0), 16, Spread(16, 2), 2),
        _rdna("wmma.rdna4", Spread(16, 2, 8), 8, Spread(16, 2, 8), 1),
    )
}
"""By the names that they go by in ``KernelTarget.has``; of those that a target has, the first is
the fastest."""


def unit_for(target: KernelTarget, a: DType, b: DType) -> MatrixUnit | None:
    """The unit of a target that multiplies two element types, if it has one."""
    found = (u for u in UNITS.values() if u.name in target.has and a is b and a in u.dtypes)
    return next(found, None)


@dataclass(frozen=True)
class Fragments:
    """A tile of a product by the matrix units of a block: ``waves_y`` x ``waves_x`` waves, each
    with ``rows`` x ``columns`` matrices of sums of the unit; ``depth`` is that of a piece in shared
    memory."""

    unit: str
    waves_y: int
    waves_x: int
    rows: int
    columns: int
    depth: int

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return self.waves_y * self.waves_x * UNITS[self.unit].wave

    @property
    def height(self) -> int:
        """Rows of the tile."""
        return self.waves_y * self.rows * UNITS[self.unit].m

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.waves_x * self.columns * UNITS[self.unit].n

    def fits(self, target: KernelTarget) -> bool:
        """Whether a block of the target can hold it."""
        shared = 2 * (self.height + self.width) * (self.depth + _APART)
        return shared <= target.shared_bytes and self.threads <= target.most_threads

    @staticmethod
    def tiles(unit: MatrixUnit) -> list[Fragments]:
        """The tiles for a unit, squares of 128, 64 and 32, the largest first: by 256 threads where
        each has something to do."""
        found: list[Fragments] = []
        for side in (128, 64, 32):
            y, x = 2, 4 if unit.wave == 32 and side > 32 else 2
            rows, columns = side // y // unit.m, side // x // unit.n
            found.append(Fragments(unit.name, y, x, rows, columns, 32))
        return found


_APART = 8
"""Elements between two rows of shared memory: so neighbouring rows begin in different banks, and
every piece at a multiple of 16 bytes."""


@dataclass(frozen=True)
class Panel(Room):
    """Shared memory for ``size`` rows of A, or columns of B, each of ``depth`` elements as bits."""

    @staticmethod
    def of(k: Kernel, dt: DType, size: int, depth: int) -> Panel:
        """New shared memory, for bits of type ``dt``."""
        return Panel(k.shared(dt, size * (depth + _APART)), size, depth)

    def at(self, step: Reg | int, place: Reg) -> Reg:
        return place * (self.depth + _APART) + step

    def piece(self, k: Kernel, step: Reg, place: Reg, run: int) -> Reg:
        """``run`` elements along the depth, of which the first is at a multiple of ``run``."""
        at = self.at(step, place)
        aligned = f"{{alignment = {min(16, 2 * run)} : i64}}"
        kind = f"{self.buffer.mlir}, vector<{run}xi16>"
        return k.op(f"vector.load {self.buffer.name}[{at.name}] {aligned} : {kind}", u16, run)


def multiply(
    k: Kernel, form: Fragments, panels: tuple[Panel, Panel], thread: Reg, dt: DType,
    sums: Sequence[Reg],
) -> list[Reg]:  # fmt: skip
    """``sums``, of one matrix after the other, row by row, plus the product of two panels."""
    unit = UNITS[form.unit]
    row0, column0, lane = place_of(form, thread)
    left, right = panels
    row, column, step = (
        row0 + unit.row.of(lane),
        column0 + unit.column.of(lane),
        unit.depth.of(lane),
    )
    each = len(sums) // (form.rows * form.columns)

    def one(i: Reg, *acc: Reg) -> list[Reg]:
        def pieces(panel: Panel, first: Reg, places: Sequence[tuple[int, int]]) -> list[Reg]:
            return [panel.piece(k, i + step + s, first + p, unit.run) for p, s in places]

        rows = [pieces(left, row + r * unit.m, unit.a_pieces) for r in range(form.rows)]
        columns = [pieces(right, column + c * unit.n, unit.b_pieces) for c in range(form.columns)]
        out: list[Reg] = []
        for n, (a, b) in enumerate((a, b) for a in rows for b in columns):
            so_far = acc[each * n : each * (n + 1)]
            out += unit.multiply(k, unit, Operands(a, b, so_far, dt))
        return out

    return k.loop(0, form.depth, unit.k, one, sums)


def place_of(form: Fragments, thread: Reg) -> tuple[Reg, Reg, Reg]:
    """Where in the tile a thread's wave has its first matrix of sums, and its lane."""
    unit = UNITS[form.unit]
    wave, lane = thread // unit.wave, thread % unit.wave
    row = wave // form.waves_x * (form.rows * unit.m)
    return row, wave % form.waves_x * (form.columns * unit.n), lane
