"""The epilogue of a contraction: from sums to C, as soon as they are complete.

Each element of C is written once, so that C may be the very buffer of a "full" operand. What is
written is often in no cache, and waits in the queue of stores while the multiply-adds of the next
tile go on: so a tile is finished before the next one begins, not a strip at a time. A short
epilogue takes the sums of a tile from its registers. A longer one, and whatever is no whole tile of
a whole panel, finds them in the strip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.base.frozen import frozen
from rlx.codegen.bfloat import rounds_fast
from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.probe import step_cost
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.elementwise.emit import walk
from rlx.kernels.matmul.plan import SHORT, ContractionConfig
from rlx.kernels.matmul.tile import CACHE_LINE, STRIP_PANELS
from rlx.ops.pointwise.cast import Cast
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
    """The panels [begin, end) of B that a task finishes together; sums begin at ``column``.
    ``after`` is the panel whose products come next."""

    task: Task
    begin: Reg
    end: Reg
    column: Reg
    after: Reg


@frozen
class Places:
    """Where a row begins: its sums in the strip, in C, and in the operands."""

    sums: Reg
    c: Reg
    operands: list[Reg]


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
        self.rows_first = k.size("rows_first")
        self.operand_strides = [
            (k.size(f"operand{i}_row"), k.size(f"operand{i}_batch")) for i in range(len(dtypes))
        ]

    @property
    def strip_width(self) -> int:
        """Sums of a row in scratch. A task of one row may have more panels in its only row."""
        return STRIP_PANELS * self.shape.width

    @property
    def is_short(self) -> bool:
        """Whether a tile finishes its sums in registers."""
        program, dt = self.config.epilogue, self.config.accumulate
        steps, result = program.steps, program.results[0]
        if steps and result is bf16 and steps[-1].op == Cast.name and rounds_fast(self.k.target):
            steps, result = steps[:-1], steps[-1].dtypes[0]
        same = all(x is dt for x in (*program.inputs, result))
        return same and dt.is_float and sum(map(step_cost, steps)) <= SHORT

    def request_operands(self, s: Strip, row: Reg, panel: Reg, wanted: Reg) -> None:
        """Ask during a tile's products for what its epilogue reads in a row of matrices: those of
        many rows are in no cache that is near, and the next tile would wait for them. If it is not
        ``wanted`` yet, the first row stands for all: that costs less than a branch. A row may begin
        within a line, and so end in another one."""
        k, t = self.k, s.task
        row, column = k.select(wanted, t.row0 + row, 0), panel * self.shape.width
        for i, kind in enumerate(self.config.operands):
            if kind == "full":
                buffer, at = self.operands[i], self.place(i, t.batch, row, column)
                width = self.shape.width
                for j in [*range(0, width, CACHE_LINE // buffer.dtype.bytes), width - 1]:
                    k.prefetch(buffer, at + j if j else at)

    def finish_tile(self, s: Strip, panel: Reg, first: Reg, sums: Sequence[Reg]) -> None:
        """The rows from ``first`` on of a whole tile and a whole panel. A short epilogue takes the
        sums themselves, a longer one what is in the strip."""
        k, width, vectors = self.k, self.shape.width, self.shape.vectors
        n0 = panel * width
        if not self.is_short:
            self.finish_rows(s, first, k.index(self.shape.rows), n0, k.index(width))
            return
        for n in range(self.shape.rows):
            places = self.row_places(s, first + n if n else first, n0)
            one = self.row(s.task.sums, places, sums[n * vectors : (n + 1) * vectors])
            for v in range(vectors):
                one(k.index(v * self.shape.lanes), self.lanes)

    def finish_rest(self, s: Strip, whole: Reg) -> None:
        """What of a strip no ``finish_tile`` has done: rows from ``whole`` on, and in those before
        the last columns of B, which fill no panel."""
        k, width = self.k, self.shape.width
        end = k.minimum(self.n, s.end * width)

        def rest(first: Reg, last: Reg, begin: Reg) -> None:
            n0 = begin * width
            k.when(first < last, lambda: self.finish_rows(s, first, last - first, n0, end - n0))

        rest(k.select(s.end * width > self.n, 0, whole), whole, s.end - 1)
        rest(whole, s.task.rows, s.begin)

    def finish_rows(self, s: Strip, first: Reg, rows: Reg, n0: Reg, count: Reg) -> None:
        """``count`` columns from ``n0`` on of ``rows`` rows, whose sums are in the strip.

        It is a function: LLVM would have the constants of a long epilogue in registers throughout,
        and some of the sums of a tile in memory. AMX has its sums elsewhere, and a call would cost
        it the shape of its tiles."""
        k, t, places = self.k, s.task, self.row_places(s, first, n0)
        distances = [
            stride if kind in ("full", "column") else k.index(0)
            for kind, (stride, _) in zip(self.config.operands, self.operand_strides, strict=True)
        ]

        def body(rows: Reg, count: Reg, sums: Reg, c: Reg, ldc: Reg, *of_operands: Reg) -> None:
            half = len(of_operands) // 2

            def row(r: Reg) -> None:
                pairs = zip(of_operands[:half], of_operands[half:], strict=True)
                operands = [at + r * distance for at, distance in pairs]
                found = Places(sums + r * self.strip_width, c + r * ldc, operands)
                self.columns(count, self.row(t.sums, found))

            k.loop(0, rows, 1, row)

        given = rows, count, places.sums, places.c, self.ldc, *places.operands, *distances
        if self.config.amx:
            body(*given)
        else:
            k.outline("finish", [t.sums, *self.operands, self.c], given, body)

    def is_whole(self, panel: Reg) -> Reg:
        """Whether B fills a panel by itself."""
        return (panel + 1) * self.shape.width <= self.n

    @property
    def step(self) -> int:
        """Columns at a time. With few registers, two vectors: they share constants and hide
        latencies."""
        return self.shape.width if self.shape.vectors == 2 else self.shape.lanes

    def columns(self, count: Reg, body: Callable[..., None]) -> None:
        """Cover ``count`` columns by vectors, and the last ones by a part of one (``walk``)."""
        vectors = self.step // self.shape.lanes
        walk(self.k, self.k.index(0), count, body, lanes=self.lanes, vectors=vectors, masked=True)

    def row_places(self, s: Strip, r: Reg, n0: Reg) -> Places:
        """Those of the row ``r`` of a task, from column ``n0`` on."""
        t, m = s.task, s.task.row0 + r
        sums, c = r * self.strip_width + (n0 - s.column), t.batch * self.c_batch + m * self.ldc + n0
        return Places(sums, c, [self.place(i, t.batch, m, n0) for i in range(len(self.operands))])

    def place(self, i: int, batch: Reg, m: Reg, n0: Reg) -> Reg:
        """Where an operand has what belongs to row ``m`` from column ``n0`` on."""
        kind = self.config.operands[i]
        row_stride, batch_stride = self.operand_strides[i]
        at = batch * batch_stride
        if kind in ("full", "column"):
            at = at + m * row_stride
        return at + n0 if kind in ("full", "row") else at

    def row(
        self, strip: Buffer, places: Places, sums: Sequence[Reg] | None = None
    ) -> Callable[..., None]:
        """What emits some columns of a row of C, counted from its places, or those that a mask has:
        ``sums`` are the vectors from there on, which are in the strip else."""
        k, program = self.k, self.config.epilogue
        kinds = self.config.operands
        operands: list[Operand] = [
            (buffer, at) if kind in ("full", "row") else k.load(buffer, at)
            for kind, buffer, at in zip(kinds, self.operands, places.operands, strict=True)
        ]
        left = iter(sums or ())

        def columns(j: Reg, lanes: int, mask: Reg | None = None) -> None:
            product = next(left, None) or k.load(strip, places.sums + j, lanes, mask)
            values = [self.operand_value(x, j, lanes, mask) for x in operands]
            result = program.emit(k, [self.as_product(product), *values])[0]
            k.store(k.splat(result, lanes) if lanes else result, self.c, places.c + j, lanes, mask)

        return columns

    def as_product(self, total: Reg) -> Reg:
        """A sum as the element of the product that it is: rounded, or its low bits."""
        dt = self.config.epilogue.inputs[0]
        return self.k.round_to(total, dt) if dt.is_float else self.k.cast(total, dt)

    def operand_value(self, x: Operand, j: Reg, lanes: int, mask: Reg | None) -> Reg:
        """An operand at some columns, or those that a mask has."""
        if isinstance(x, Reg):
            return x
        buffer, at = x
        return self.k.load(buffer, at + j, lanes, mask)
