"""Matrices in kernels: what factorizations are written in.

A matrix of a tensor is read and written by element. One of work memory has rows that end in
padding, so that a vector may start at any of its columns: it runs over into the padding, whose
values mean nothing and reach no other column. Loops over columns therefore have no tails.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.base.guards import prefers
from rlx.codegen.builder import Kernel
from rlx.codegen.reg import Buffer, Number, Reg
from rlx.types import DType

__all__ = ["LINE_BYTES", "Matrix", "padded"]

Index = Reg | int
Span = tuple[Index, Index]

LINE_BYTES = 64
"""The widest vector of any target: work memory has one size on all of them."""

PAGE_BYTES = 4096

ROWS = 4
"""Rows of a register tile of ``subtract_product``."""


def padded(columns: int, dt: DType) -> int:
    """The distance between rows of work memory: room for a vector at the last column. Never whole
    pages, which would put all of a column into few sets of a cache."""
    line = LINE_BYTES // dt.bytes
    stride = -(-(columns + line - 1) // line) * line
    pages = prefers(lambda: stride * dt.bytes % PAGE_BYTES == 0, otherwise=False)
    return stride + line if pages else stride


class Matrix:
    """Elements of a buffer: (i, j) lies at ``base + i * stride + j * step``."""

    def __init__(self, k: Kernel, buffer: Buffer, base: Index, stride: int, step: int = 1) -> None:
        self.k, self.buffer, self.base, self.stride, self.step = k, buffer, base, stride, step
        lanes = k.target.lanes(buffer.dtype)
        self.lanes = lanes if lanes > 1 else 0

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.buffer.dtype

    @property
    def width(self) -> int:
        """Columns of a vector."""
        return max(self.lanes, 1)

    @property
    def T(self) -> Matrix:
        """The transposed matrix: the same elements, to be read one by one."""
        return Matrix(self.k, self.buffer, self.base, self.step, self.stride)

    def _place(self, i: Index, j: Index) -> Index:
        row = i * self.stride if self.stride != 1 else i
        return self.base + row + (j * self.step if self.step != 1 else j)

    def get(self, i: Index, j: Index) -> Reg:
        """One element."""
        return self.k.load(self.buffer, self._place(i, j))

    def set(self, i: Index, j: Index, value: Reg | Number) -> None:
        """Write one element."""
        self.k.store(value, self.buffer, self._place(i, j))

    def vec(self, i: Index, j: Index) -> Reg:
        """A vector of row i from column j on."""
        return self.k.load(self.buffer, self._place(i, j), self.lanes)

    def put(self, i: Index, j: Index, value: Reg | Number) -> None:
        """Write a vector (or a number to all its columns) to row i from column j on."""
        self.k.store(value, self.buffer, self._place(i, j), self.lanes)

    def const(self, value: Number) -> Reg:
        """A number of the element type."""
        return self.k.const(value, self.dtype)

    def spread(self, value: Reg) -> Reg:
        """A number in all columns of a vector."""
        return self.k.splat(value, self.lanes) if self.lanes else value

    # -- whole rows ------------------------------------------------------------------------

    def span(self, lo: Index, hi: Index, body: Callable[[Reg], None]) -> None:
        """``body(j)`` for every vector of the columns [lo, hi), and some padding."""
        self.k.loop(lo, hi, self.width, body)

    def spans(
        self, lo: Index, hi: Index, body: Callable[[Reg, int], None], most: int | None = None
    ) -> None:
        """``body(j, n)`` for groups of n vectors: as many as a tile has, then one by one."""
        if most is None:
            most = 1 if not self.lanes else 4 if self.k.target.registers >= 32 else 2
        _grouped(self.k, lo, hi, self.width, most, body)

    def fill(self, rows: int, columns: int, value: Number = 0.0) -> None:
        """Set all elements and the padding."""
        wide = padded(columns, self.dtype) // self.width * self.width

        def row(i: Reg) -> None:
            self.span(0, wide, lambda j: self.put(i, j, value))

        self.k.loop(0, rows, 1, row)

    def load(self, source: Matrix, rows: int, columns: int, scale: Reg | None = None) -> None:
        """Fill work memory from a tensor's matrix, times ``scale``; the padding becomes 0."""
        k, tail = self.k, padded(columns, self.dtype)

        def take(i: Reg, j: Reg, lanes: int) -> None:
            value = k.load(source.buffer, source._place(i, j), lanes)
            value = value if scale is None else value * scale
            k.store(value, self.buffer, self._place(i, j))

        def row(i: Reg) -> None:
            if source.step == 1 and self.lanes and columns >= self.lanes:
                k.vector_loop(k.index(columns), self.lanes, lambda j, n: take(i, j, n))
            else:
                k.loop(0, columns, 1, lambda j: take(i, j, 0))
            k.loop(columns, tail, 1, lambda j: self.set(i, j, 0.0))

        k.loop(0, rows, 1, row)

    def save(
        self,
        target: Matrix,
        rows: int,
        columns: int,
        value: Callable[[Reg, Reg, Reg], Reg] | None = None,
    ) -> None:
        """Copy to a tensor's matrix; ``value(i, j, x)`` is what becomes of an element x."""

        def element(i: Reg, j: Reg) -> None:
            x = self.get(i, j)
            target.set(i, j, x if value is None else value(i, j, x))

        self.k.loop(0, rows, 1, lambda i: self.k.loop(0, columns, 1, lambda j: element(i, j)))

    def swap_rows(self, i: Index, p: Index, columns: int) -> None:
        """Exchange two rows."""

        def exchange(j: Reg) -> None:
            upper, lower = self.vec(i, j), self.vec(p, j)
            self.put(i, j, lower)
            self.put(p, j, upper)

        self.span(0, columns, exchange)

    # -- products --------------------------------------------------------------------------

    def subtract_product(
        self, a: Matrix, b: Matrix, rows: Span, columns: Span, depth: Span, *, tall: bool = True
    ) -> None:
        """``self -= a @ b`` on a range of rows and columns, summed over a range of depth.

        Register tiles of ``ROWS`` rows, or of one if not ``tall``; a is read one by one.
        """
        self._product(a, b, rows, columns, depth, clear=False, tall=tall)

    def set_product(
        self, a: Matrix, b: Matrix, rows: Span, columns: Span, depth: Span, *, tall: bool = True
    ) -> None:
        """``self = a @ b``, by the same rules."""
        self._product(a, b, rows, columns, depth, clear=True, tall=tall)

    def dot(self, i: Index, other: Matrix, r: Index, lo: Index, hi: Index) -> Reg:
        """Row i times row r of another matrix, in the columns [lo, hi). One of them must hold zeros
        in its padding, and the other numbers."""
        k = self.k

        def step(j: Reg, total: Reg) -> Reg:
            return k.fma(self.vec(i, j), other.vec(r, j), total)

        (total,) = k.loop(lo, hi, self.width, step, [k.const(0.0, self.dtype, self.lanes)])
        return k.reduce("add", total) if self.lanes else total

    def _product(
        self, a: Matrix, b: Matrix, rows: Span, columns: Span, depth: Span, clear: bool, tall: bool
    ) -> None:
        k, w = self.k, self.width

        def tile(i: Reg, j: Reg, mr: int, nv: int) -> None:
            places = [(i + r, j + v * w) for r in range(mr) for v in range(nv)]

            def step(d: Reg, *sums: Reg) -> list[Reg]:
                across = [b.vec(d, j + v * w) for v in range(nv)]
                out: list[Reg] = []
                for r in range(mr):
                    x = a.get(i + r, d)
                    x = x if clear else -x
                    out += [k.fma(y, x, sums[len(out) + n]) for n, y in enumerate(across)]
                return out

            zero = k.const(0.0, self.dtype, self.lanes)
            start = [zero if clear else self.vec(*p) for p in places]
            for p, value in zip(places, k.loop(*depth, 1, step, start), strict=True):
                self.put(*p, value)

        def panel(j: Reg, nv: int) -> None:
            most = ROWS if tall and self.lanes else 1
            _grouped(k, *rows, 1, most, lambda i, mr: tile(i, j, mr, nv))

        self.spans(*columns, panel)


def _grouped(
    k: Kernel, lo: Index, hi: Index, width: int, most: int, body: Callable[[Reg, int], None]
) -> None:
    """``body(i, n)`` over [lo, hi) in steps of n * width: n is ``most`` while that fits, then 1."""
    middle = lo
    if most > 1:
        count = hi - lo
        if not isinstance(count, int) or count > (most - 1) * width:
            # The last group may reach into the padding, but not by a whole vector.
            steps = (count + (width - 1)) // width // most
            middle = lo + steps * (most * width)
            k.loop(lo, middle, most * width, lambda i: body(i, most))
    if not (isinstance(middle, int) and isinstance(hi, int) and middle >= hi):
        k.loop(middle, hi, width, lambda i: body(i, 1))
