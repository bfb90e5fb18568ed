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
from dataclasses import field
from typing import NamedTuple, TypeVar

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.reg import Reg
from rlx.types import DType, bf16, f16, f32, u32

__all__ = ["UNITS", "MatrixUnit", "Operands", "unit_for"]

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


@frozen
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
