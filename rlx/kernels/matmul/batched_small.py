"""Many products of small matrices, read where they lie: ``C[i] = epilogue(A[i] @ B[i], ...)``.

B is [K, N] with contiguous rows and stays in the L1 cache, so nothing is packed; A may lie in any
way, and C is [M, N] with contiguous rows. A task is one product:

    for each tile of columns, a few vectors of them:
        for each tile of rows:
            for k = 0, 1, ...: add a row of B times an element of each row of A, in registers
            the epilogue, to C

The vectors are as long as rows of B, where these are short. Columns that fill no vector are a part
of one, or go one by one where the target has no masks.

As in ``contraction``, every sum is one chain of multiply-adds over k, so that an element has the
same bits from either family where that multiplies one element at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.combine import multiply_add
from rlx.codegen.family import Launch
from rlx.codegen.program import Program
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul.plan import OperandKind
from rlx.kernels.matmul.tile import accumulate_type
from rlx.types import DType

__all__ = ["SmallProductConfig", "config_of", "emit", "launch", "name"]

name = "batched_small"

ROWS = 8
"""Rows of a tile at most."""

VECTORS = 3
"""Vectors of a tile at most."""

GRAIN = 1 << 14
"""Multiply-adds that are worth a thread of their own: a few microseconds."""


@frozen
class SmallProductConfig:
    """What the code depends on.

    ``epilogue`` takes the product and the ``operands``, as that of a contraction does. A tile has
    ``rows``, the last one ``rest`` (0: as many), and ``vectors`` of ``lanes``. ``several`` says
    that there are tiles of columns before the last one, which has ``last`` vectors; of its last
    vector only a part is there if it is ``ragged``.
    """

    dtype: DType
    epilogue: Program
    operands: tuple[OperandKind, ...]
    rows: int
    rest: int
    lanes: int
    vectors: int
    last: int
    several: bool
    ragged: bool

    @property
    def accumulate(self) -> DType:
        """The type of the sums."""
        return accumulate_type(self.dtype)


def config_of(
    target: KernelTarget, dt: DType, epilogue: Program, operands: Sequence[OperandKind],
    m: int, n: int,
) -> SmallProductConfig:  # fmt: skip
    """The config for products of ``m`` rows and ``n`` columns."""
    lanes = target.lanes(accumulate_type(dt))
    if n < lanes:
        lanes = 1 << ((n - 1).bit_length() if target.masks else n.bit_length() - 1)
    count = ceil_div(n, lanes) if target.masks else n // lanes
    tiles = ceil_div(count, VECTORS)
    vectors = ceil_div(count, tiles)
    fits = (target.registers - 1) // vectors - 1
    rows = ceil_div(m, ceil_div(m, maximum(1, minimum(ROWS, fits))))
    return SmallProductConfig(
        dt, epilogue, tuple(operands), rows, m % rows, lanes, vectors,
        count - vectors * (tiles - 1), tiles > 1, n % lanes > 0,
    )  # fmt: skip


def launch(
    sizes: tuple[int, int, int, int],
    a: Sequence[int],
    b: Sequence[int],
    c: Sequence[int],
    operands: Sequence[tuple[int, int]] = (),
) -> Launch:
    """The launch of ``sizes`` = (batch, m, n, k). ``a`` has the distances between batch elements,
    rows and columns of A; ``b`` and ``c`` those between batch elements and rows, and ``operands``
    of each operand between rows and batch elements. The buffers are A, B, the operands, C."""
    batch, m, n, k = sizes
    grain = maximum(1, GRAIN // maximum(1, m * n * k))
    return Launch(batch, grain, (m, n, k, *a, *b, *c, *(s for o in operands for s in o)))


def emit(name: str, config: SmallProductConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


@frozen
class _Columns:
    """A vector of columns: the first, its lanes (0: one column), and its mask if it has one."""

    at: Reg
    lanes: int
    mask: Reg | None = None


class _Emitter:
    """Emits one kernel. The places of a task's matrices are set as it begins."""

    def __init__(self, name: str, config: SmallProductConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config = config
        self.a, self.b = k.buffer("a", config.dtype), k.buffer("b", config.dtype)
        dtypes = config.epilogue.inputs[1:]
        self.operands = [k.buffer(f"operand{i}", dt) for i, dt in enumerate(dtypes)]
        self.c = k.buffer("c", config.epilogue.results[0])
        self.m, self.n, self.depth = k.size("m"), k.size("n"), k.size("depth")
        self.a_batch, self.a_row, self.a_step = (k.size(f"a_{x}") for x in ("batch", "row", "step"))
        self.b_batch, self.b_row = k.size("b_batch"), k.size("b_row")
        self.c_batch, self.c_row = k.size("c_batch"), k.size("c_row")
        self.strides = [
            (k.size(f"operand{i}_row"), k.size(f"operand{i}_batch")) for i in range(len(dtypes))
        ]

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, index: Reg) -> None:
        """One product."""
        k, config, lanes = self.k, self.config, self.config.lanes
        self.index = index
        width = config.vectors * lanes
        one_by_one = config.ragged and not k.target.masks
        end = self.n - self.n % lanes if one_by_one else self.n

        def whole(j: Reg) -> None:
            self.columns([_Columns(j + v * lanes, lanes) for v in range(config.vectors)])

        begin = k.index(0)
        if config.several:
            begin = (end - 1) / width * width
            k.loop(0, begin, width, whole)
        last = [_Columns(begin + v * lanes, lanes) for v in range(config.last)]
        if config.ragged and not one_by_one:
            at = last[-1].at
            last[-1] = _Columns(at, lanes, k.first_lanes(self.n - at, lanes))
        self.columns(last)
        if one_by_one:
            k.loop(end, self.n, 1, lambda j: self.columns([_Columns(j, 0)]))

    def columns(self, columns: list[_Columns]) -> None:
        """All rows of some columns."""
        k, rows, rest = self.k, self.config.rows, self.config.rest
        whole = self.m - rest if rest else self.m
        k.loop(0, whole, rows, lambda i: self.tile(i, rows, columns))
        if rest:
            self.tile(whole, rest, columns)

    def tile(self, first: Reg, rows: int, columns: list[_Columns]) -> None:
        """Some rows of some columns: their sums, and what becomes of them."""
        k, dt = self.k, self.config.accumulate
        a, b = self.index * self.a_batch + first * self.a_row, self.index * self.b_batch

        def step(i: Reg, *sums: Reg) -> list[Reg]:
            row = b + i * self.b_row
            across = [k.cast(k.load(self.b, row + c.at, c.lanes, c.mask), dt) for c in columns]
            out: list[Reg] = []
            at = a + i * self.a_step
            for r in range(rows):
                at = at + self.a_row if r else at
                x = k.cast(k.load(self.a, at), dt)
                out += [multiply_add(k, y, x, sums[len(out) + v]) for v, y in enumerate(across)]
            return out

        zeros = [k.const(0, dt, c.lanes) for _ in range(rows) for c in columns]
        sums = iter(k.loop(0, self.depth, 1, step, zeros))
        for r in range(rows):
            finish = self.row(first + r if r else first)
            for c in columns:
                finish(next(sums), c)

    def row(self, r: Reg) -> Callable[[Reg, _Columns], None]:
        """What becomes of sums of a row of C."""
        k, program = self.k, self.config.epilogue
        place = self.index * self.c_batch + r * self.c_row
        dt = program.inputs[0]
        operands = [self.operand(i, r) for i in range(len(self.operands))]

        def finish(total: Reg, c: _Columns) -> None:
            product = k.round_to(total, dt) if dt.is_float else k.cast(total, dt)
            result = program.emit(k, [product, *(operand(c) for operand in operands)])[0]
            result = k.splat(result, c.lanes) if c.lanes else result
            k.store(result, self.c, place + c.at, c.lanes, c.mask)

        return finish

    def operand(self, i: int, r: Reg) -> Callable[[_Columns], Reg]:
        """An operand of the epilogue at a row, as a function of columns."""
        k, buffer, kind = self.k, self.operands[i], self.config.operands[i]
        row, batch = self.strides[i]
        at = self.index * batch + r * row if kind in ("full", "column") else self.index * batch
        if kind in ("full", "row"):
            return lambda c: k.load(buffer, at + c.at, c.lanes, c.mask)
        value = k.load(buffer, at)
        return lambda c: value
