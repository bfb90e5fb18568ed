"""The epilogue of a contraction: from sums to C, as soon as they are complete.

Each element of C is written once, so that C may be the very buffer of a "full" operand. What is
written is often in no cache, and waits in the queue of stores while the multiply-adds of the next
tile go on: so a tile is finished before the next one begins, not a strip at a time. A short
epilogue takes the sums of a tile from its registers. A longer one, and whatever is no whole tile of
a whole panel, finds them in the strip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.kernels.bfloat import rounds_fast
from rlx.kernels.builder import Kernel, KernelTarget
from rlx.kernels.contraction_plan import SHORT, ContractionConfig
from rlx.kernels.contraction_tile import CACHE_LINE, STRIP_PANELS
from rlx.kernels.probe import step_cost
from rlx.kernels.reg import INDEX, Buffer, Reg
from rlx.ops.cast import Cast
from rlx.records import frozen
from rlx.types import bf16

__all__ = ["Epilogue", "Rows", "Strip", "Task"]


@frozen
class Rows:
    """A task's rows of A: where the first one begins, and the distance between them."""

    buffer: Buffer
    offset: Reg
    distance: Reg


@frozen
class Task:
    """What a task works on: ``rows`` rows from ``row0`` on, of A, and B from its offset ``b`` on.

    ``sums`` is the scratch in which a strip of products waits for the epilogue, and ``panel`` that
    for a block of a panel of a plain B.
    """

    batch: Reg
    row0: Reg
    rows: Reg
    a: Rows
    b: Reg
    sums: Buffer
    panel: Buffer | None


@frozen
class Strip:
    """The panels [begin, end) of B that a task finishes together; sums begin at ``column``."""

    task: Task
    begin: Reg
    end: Reg
    column: Reg


Operand = Reg | tuple[Buffer, Reg]
"""What a row needs of an operand: its one value, or where its columns are."""


class Epilogue:
    """Declares the arguments of a kernel, and emits what becomes of its sums."""

    def __init__(self, name: str, config: ContractionConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config = config
        self.shape = config.shape(target)
        self.lanes = self.shape.lanes if self.shape.lanes > 1 else 0
        self.a, self.b = k.buffer("a", config.a), k.buffer("b", config.b)
        dtypes = config.epilogue.inputs[1:]
        self.operands = [k.buffer(f"operand{i}", dt) for i, dt in enumerate(dtypes)]
        self.c = k.buffer("c", config.c)
        self.m, self.n, self.depth = k.size("m"), k.size("n"), k.size("depth")
        self.lda, self.ldb, self.ldc = (k.size(f"ld{x}") for x in "abc")
        self.a_batch, self.b_batch, self.c_batch = (k.size(f"{x}_batch") for x in "abc")
        self.chunk_rows, self.group_panels = k.size("chunk_rows"), k.size("group_panels")
        self.strip_panels, self.block_depth = k.size("strip_panels"), k.size("block_depth")
        self.operand_strides = [
            (k.size(f"operand{i}_row"), k.size(f"operand{i}_batch")) for i in range(len(dtypes))
        ]
        self._finish: Callable[[Sequence[Reg | Buffer]], None] | None = None

    def start(self) -> None:
        """What the whole kernel needs once it has begun."""
        # A task of one row may have more panels in its only row.
        self.strip_width = STRIP_PANELS * self.shape.width

    @property
    def is_short(self) -> bool:
        """Whether a tile finishes its sums in registers."""
        program, dt = self.config.epilogue, self.config.accumulate
        steps, result = program.steps, program.results[0]
        if steps and result is bf16 and steps[-1].op == Cast.name and rounds_fast(self.k.target):
            steps, result = steps[:-1], steps[-1].dtypes[0]
        same = all(x is dt for x in (*program.inputs, result))
        return same and dt.is_float and sum(map(step_cost, steps)) <= SHORT

    def request_operands(self, s: Strip, first: Reg, panel: Reg, wanted: Reg) -> None:
        """Ask before a tile's products for what its epilogue reads of matrices: those of many rows
        are in no cache that is near, and the next tile would wait for them. If it is not
        ``wanted`` yet, the first row stands for all: that costs less than a branch."""
        k, t = self.k, s.task
        for i, kind in enumerate(self.config.operands):
            if kind == "full":
                row = k.select(wanted, t.row0 + first, 0)
                buffer, at = self.place(i, t.batch, row, panel * self.shape.width)
                distance = k.select(wanted, self.operand_strides[i][0], 0)
                for r in range(self.shape.rows):
                    at = at + distance if r else at
                    for j in range(0, self.shape.width, CACHE_LINE // buffer.dtype.bytes):
                        k.prefetch(buffer, at + j if j else at)

    def finish_tile(self, s: Strip, panel: Reg, first: Reg, sums: Sequence[Reg]) -> None:
        """The rows from ``first`` on of a whole tile and a whole panel. A short epilogue takes the
        sums themselves, a longer one what is in the strip."""
        k, width, vectors = self.k, self.shape.width, self.shape.vectors
        n0 = panel * width
        if not self.is_short:
            self.finish_long(s, first, n0)
            return
        for n in range(self.shape.rows):
            one = self.row(s, first + n if n else first, n0, sums[n * vectors : (n + 1) * vectors])
            for v in range(vectors):
                one(k.index(v * self.shape.lanes), self.lanes)

    def finish_rest(self, s: Strip, whole: Reg) -> None:
        """What of a strip no ``finish_tile`` has done: rows from ``whole`` on, and in those before
        the last columns of B, which fill no panel."""
        k, width = self.k, self.shape.width
        if not (self.config.rest or self.config.edge):
            return

        def row(r: Reg) -> None:
            n0 = k.select(r < whole, s.end - 1, s.begin) * width
            count, one = k.minimum(self.n, s.end * width) - n0, self.row(s, r, n0)
            if self.config.edge or not self.lanes:
                self.columns(count, self.step, one)
            else:
                k.loop(0, count, self.step, lambda j: one(j, self.step))

        k.loop(k.select(s.end * width > self.n, 0, whole), s.task.rows, 1, row)

    def finish_long(self, s: Strip, first: Reg, n0: Reg) -> None:
        """Finish the rows of a whole tile from what is in the strip. The code is a function of its
        own: LLVM would compute the constants before the multiply-adds of the tile around it, and
        the sums have no registers (products that end in silu took half as long again)."""
        k, t = self.k, s.task
        strides = [x for pair in self.operand_strides for x in pair]
        fixed = [t.batch, t.row0, s.column, self.c_batch, self.ldc, *strides]
        sees = [t.sums, self.c, *self.operands, *fixed]
        if self._finish is None:
            begin, column = k.reg(k.fresh(), INDEX), k.reg(k.fresh(), INDEX)
            lanes = self.step if self.lanes else 0

            def row(r: Reg) -> None:
                one = self.row(s, r, column)
                k.loop(0, self.shape.width, self.step, lambda j: one(j, lanes))

            def tile() -> None:
                k.loop(begin, begin + self.shape.rows, 1, row)

            self._finish = k.function([*sees, begin, column], tile)
        self._finish([*sees, first, n0])

    def is_whole(self, panel: Reg) -> Reg:
        """Whether B fills a panel by itself."""
        return (panel + 1) * self.shape.width <= self.n

    @property
    def step(self) -> int:
        """Columns at a time. With few registers, two vectors: they share constants and hide
        latencies."""
        return self.shape.width if self.shape.vectors == 2 else self.shape.lanes

    def columns(self, count: Reg, lanes: int, body: Callable[[Reg, int], None]) -> None:
        """Cover ``count`` columns by vectors of ``lanes``, and the rest one by one."""
        if self.lanes:
            self.k.vector_loop(count, lanes, body)
        else:
            self.k.loop(0, count, 1, lambda j: body(j, 0))

    def row(
        self, s: Strip, r: Reg, n0: Reg, sums: Sequence[Reg] | None = None
    ) -> Callable[[Reg, int], None]:
        """What emits some columns of a row of C, counted from ``n0``: ``sums`` are the vectors from
        there on, which are in the strip else."""
        k, t, program = self.k, s.task, self.config.epilogue
        m = t.row0 + r
        at, c = r * self.strip_width + (n0 - s.column), t.batch * self.c_batch + m * self.ldc + n0
        operands = [self.operand(i, t.batch, m, n0) for i in range(len(self.operands))]
        left = iter(sums or ())

        def columns(j: Reg, lanes: int) -> None:
            product = next(left, None) or k.load(t.sums, at + j, lanes)
            values = [self.operand_value(x, j, lanes) for x in operands]
            result = program.emit(k, [k.round_to(product, program.inputs[0]), *values])[0]
            k.store(k.splat(result, lanes) if lanes else result, self.c, c + j, lanes)

        return columns

    def operand(self, i: int, batch: Reg, m: Reg, n0: Reg) -> Operand:
        """What a row needs of an operand."""
        buffer, at = self.place(i, batch, m, n0)
        return (
            (buffer, at) if self.config.operands[i] in ("full", "row") else self.k.load(buffer, at)
        )

    def place(self, i: int, batch: Reg, m: Reg, n0: Reg) -> tuple[Buffer, Reg]:
        """Where an operand has what belongs to row ``m`` from column ``n0`` on."""
        kind = self.config.operands[i]
        row_stride, batch_stride = self.operand_strides[i]
        at = batch * batch_stride
        if kind in ("full", "column"):
            at = at + m * row_stride
        return self.operands[i], at + n0 if kind in ("full", "row") else at

    def operand_value(self, x: Operand, j: Reg, lanes: int) -> Reg:
        """An operand at some columns."""
        if isinstance(x, Reg):
            return x
        buffer, at = x
        return self.k.load(buffer, at + j, lanes)
