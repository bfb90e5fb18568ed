"""Row-wise kernels: pointwise steps and reductions along the last axis, fused over each row.

One emitter serves softmax, the norms, and every region of that kind, with whatever comes before
and after; see ``rowwise_plan`` for how a region becomes passes over a row.

    task (row):
        values with one element a row: loaded once
        for each pass:
            for j along the row, by vectors and then one by one:
                load or recompute values, keep some, store outputs, add to the reductions
            fold each reduction, and compute what has one value a row from it

The order of a reduction depends on the length of the row and on the vector width alone. Outputs
must not overlap inputs: a pass may use an output's row before a later pass reads the input again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from math import prod

from rlx.kernels.builder import Kernel, KernelTarget, KernelText
from rlx.kernels.family import Launch
from rlx.kernels.folding import Total, add, fold, start
from rlx.kernels.reg import Buffer, Reg
from rlx.kernels.rowwise_plan import Pass, Reduce, RowProgram, RowwiseConfig, plan
from rlx.kernels.strides import (
    Space,
    Strided,
    Strides,
    accesses,
    ceil_div,
    collapse,
    run_time_strides,
)
from rlx.types import DType, bf16, f16, f32

__all__ = ["Reduce", "RowProgram", "RowwiseConfig", "emit", "launch"]

name = "rowwise"

SHARE = 1 << 16
"""Instructions on elements that are worth a thread of their own: several microseconds."""

MAX_VECTORS = 4
"""Vectors of a round: as many independent sums as hide the latency of an addition."""

ROUND_COST = 48
"""Instructions of a round: above it more vectors make the code longer and not faster."""

ALIGN = 64

BLOCK = 128
"""Threads of a block of a GPU, which share one row or several."""

SERIAL = 4
"""Elements of a row for each of the threads that share it: up to that, one does it all."""


def launch(
    program: RowProgram,
    shape: Sequence[int],
    inputs: Sequence[Strides],
    outputs: Sequence[Strides],
    *,
    blocks: bool = False,
) -> tuple[RowwiseConfig, Launch]:
    """The kernel and its arguments for a region on ``shape`` = [leading dims..., row].

    ``inputs`` and ``outputs`` give each operand's stride along every dim of ``shape``, in elements
    and not negative: 0 along the row for an operand with one value a row, 0 along leading dims for
    one that rows share (never an output). With ``blocks`` the target is a GPU whose threads share
    memory: then several share a row that is not very short.
    """
    *lead, columns = shape
    strides = [tuple(s) for s in (*inputs, *outputs)]
    rows = collapse(Space(tuple(lead), tuple(s[:-1] for s in strides)))
    # One element a row and one value a row are the same; then, and with no row, take the former.
    along = [1 if columns == 1 or rows.size == 0 else s[-1] for s in strides]
    space = Space(
        (*rows.shape, columns),
        tuple((*s, a) for s, a in zip(rows.strides, along, strict=True)),
    )
    kinds = accesses(space)
    threads = _threads(columns) if blocks else 0
    config = RowwiseConfig(program, kinds[: len(inputs)], kinds[len(inputs) :], threads)

    planned = plan(config)
    scratch_row = -(-columns * _widest(program) // ALIGN) * ALIGN
    sizes = [*space.shape, scratch_row]
    for kind, s in zip(kinds, space.strides, strict=True):
        sizes += run_time_strides(kind, s)
    work = max(1, columns * sum(p.cost for p in planned.passes))
    grain = max(1, SHARE // work)
    tasks = ceil_div(rows.size, BLOCK // threads) if threads else rows.size
    return config, Launch(tasks, grain, tuple(sizes), planned.scratch_rows * scratch_row)


def _threads(columns: int) -> int:
    """How many threads share a row: a power of two, or 0 where one does a row alone."""
    shared = 1 << (columns // SERIAL).bit_length()
    return min(BLOCK, shared) if columns > SERIAL else 0


def _wide(dt: DType) -> DType:
    """The type of a register that holds ``dt``."""
    return f32 if dt in (f16, bf16) else dt


def _widest(program: RowProgram) -> int:
    return max(_wide(dt).bytes for dt in program.dtypes)


def emit(name: str, config: RowwiseConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel. Arguments: buffers of the inputs and outputs; the leading dims, the
    length of a row, the bytes of a row of scratch; the run-time strides."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    def __init__(self, name: str, config: RowwiseConfig, target: KernelTarget) -> None:
        self.k, self.config, self.program = Kernel(name, target), config, config.program
        k, program = self.k, self.program
        # A GPU's threads have no scratch: there every pass computes what it needs.
        self.plan = plan(config, keep=target.frame == "cpu")
        reduced = [s.accumulate for s in program.steps if isinstance(s, Reduce)]
        lanes = min(target.lanes(dt) for dt in (*program.dtypes, *reduced))
        self.lanes = lanes if lanes > 1 else 0
        self.inputs = [
            Strided(k, f"in{n}", dt, a)
            for n, (dt, a) in enumerate(zip(program.inputs, config.inputs, strict=True))
        ]
        self.outputs = [
            Strided(k, f"out{n}", program.dtypes[v], a)
            for n, (v, a) in enumerate(zip(program.outputs, config.outputs, strict=True))
        ]
        self.lead = [k.size(f"dim{d}") for d in range(len(config.outputs[0]) - 1)]
        self.columns = k.size("columns")
        scratch_row = k.size("scratch_row")
        for operand in (*self.inputs, *self.outputs):
            operand.declare_strides()
        self.scratch: dict[int, Buffer] = {
            v: k.scratch(_wide(program.dtypes[v]), scratch_row * slot.index)
            for v, slot in self.plan.slots.items()
            if slot.place == "scratch"
        }

    def emit(self) -> KernelText:
        self.thread: Reg | None = None
        self.inside: Reg | None = None
        if self.config.threads:
            self.k.parallel_blocks(BLOCK, self.rows)
        else:
            self.k.parallel(self.row)
        return self.k.text()

    def rows(self, block: Reg, thread: Reg) -> None:
        """The rows of a block, each by some of its threads: each takes every so many elements, and
        what they have reduced is folded where a pass ends. Threads that have no row go through the
        last, since all must meet, and store nothing: PoCL runs no loop right whose end differs from
        thread to thread."""
        k, threads = self.k, self.config.threads
        if threads == BLOCK:
            self.thread = self.first = thread
            self.row(block)
            return
        self.thread, self.first = thread, thread % threads
        r = block * (BLOCK // threads) + thread // threads
        count = prod(self.lead, start=k.index(1))
        self.inside = r < count
        self.row(k.minimum(r, count - 1))

    def row(self, r: Reg) -> None:
        """One row, by one thread or by several."""
        at: list[Reg] = []
        for d in range(len(self.lead) - 1, -1, -1):
            at.insert(0, r % self.lead[d] if d else r)
            r = r // self.lead[d] if d else r
        self.in_bases = [o.offset(at) for o in self.inputs]
        self.out_bases = [o.offset(at) for o in self.outputs]
        self.scalars: dict[int, Reg] = {}
        for p in self.plan.passes:
            self.run(p)
        zero = self.k.index(0)
        for n, (v, operand) in enumerate(zip(self.program.outputs, self.outputs, strict=True)):
            if operand.inner == "zero":
                self.by_one(partial(operand.store, self.scalar(v), self.out_bases[n], zero, 0))

    def by_one(self, store: Callable[[], None]) -> None:
        """Run by one of the threads that share the row."""
        if self.thread is None:
            store()
        else:
            self.k.when(self.first < 1, partial(self.within, store))

    def within(self, store: Callable[[], None]) -> None:
        """Run by the threads that have a row."""
        if self.inside is None:
            store()
        else:
            self.k.when(self.inside, store)

    def scalar(self, v: int) -> Reg:
        """A value with one element a row; reductions are there since their pass."""
        if v not in self.scalars:
            step = self.program.step(v)
            if step is None:
                self.scalars[v] = self.inputs[v].load(self.in_bases[v], self.k.index(0), 0)
            else:
                assert not isinstance(step, Reduce)
                self.scalars[v] = step.emit(self.k, *(self.scalar(a) for a in step.args))
        return self.scalars[v]

    # -- one pass --------------------------------------------------------------------------

    def run(self, p: Pass) -> None:
        """Walk the row: rounds of several vectors, single vectors, single elements. A round is one
        long vector, see ``elementwise.walk``; its sums are folded to the next shorter kind."""
        k, lanes = self.k, self.lanes
        fixed = self.fixed_values(p)
        vectors = max(1, min(MAX_VECTORS, ROUND_COST // max(1, p.cost)))
        longest = lanes << (vectors.bit_length() - 1)  # halves again and again
        sums = [self.start(r, longest) for r in p.reductions]
        begin = k.index(0) if self.thread is None else self.first
        for n in dict.fromkeys((longest, lanes, 0)):
            sums = [self.fold(r, s, n) for r, s in zip(p.reductions, sums, strict=True)]
            begin, sums = self.walk(p, fixed, begin, sums, n)
        if self.thread is not None and sums:
            own = [total for (total,) in sums]
            both = partial(self.both, p)
            sums = [(s,) for s in k.block_fold(self.thread, own, both, self.config.threads)]
        for r, s in zip(p.reductions, sums, strict=True):
            self.scalars[r] = self.finish(r, s)

    def fixed_values(self, p: Pass) -> dict[int, Reg]:
        """The scalars that the pass uses beside its moving values."""
        computed = [v for v in p.values if v not in p.reload]
        used = {a for v in computed for a in self.program.args(v)}
        used |= {self.reduction(r).arg for r in p.reductions}
        used |= {self.program.outputs[n] for n in p.outputs}
        return {v: self.scalar(v) for v in sorted(used) if not self.plan.moving[v]}

    def walk(
        self, p: Pass, fixed: dict[int, Reg], begin: Reg, sums: list[Total], lanes: int
    ) -> tuple[Reg, list[Total]]:
        """Cover as much of [begin, columns) as vectors of ``lanes`` do, adding to ``sums`` (one of
        that length for each reduction). Returns where it ended, and the sums."""
        k, step = self.k, max(1, lanes)
        end = self.columns - (self.columns - begin) % step if lanes else self.columns

        def totals(flat: Sequence[Reg]) -> list[Total]:
            rest = iter(flat)
            return [tuple(islice(rest, len(s))) for s in sums]

        def one_round(j: Reg, *carried: Reg) -> list[Reg]:
            regs = self.point(p, fixed, j, lanes)
            found = (
                self.combine(r, s, regs[self.reduction(r).arg])
                for r, s in zip(p.reductions, totals(carried), strict=True)
            )
            return [x for s in found for x in s]

        stride = self.config.threads or step
        return end, totals(k.loop(begin, end, stride, one_round, [x for s in sums for x in s]))

    def point(self, p: Pass, fixed: dict[int, Reg], j: Reg, lanes: int) -> dict[int, Reg]:
        """The values of a pass at one vector or element; every load comes before a store."""
        k, regs = self.k, dict(fixed)
        for v in p.values:
            step = self.program.step(v)
            if v in p.reload:
                regs[v] = k.load(*self.slot(v, j), lanes)
            elif step is None:
                regs[v] = self.inputs[v].load(self.in_bases[v], j, lanes)
            else:
                assert not isinstance(step, Reduce)
                regs[v] = step.emit(k, *(regs[a] for a in step.args))
        for v in p.keep:
            if not self.is_own_output(v):
                k.store(regs[v], *self.slot(v, j))
        for n in p.outputs:
            value = regs[self.program.outputs[n]]
            self.within(partial(self.outputs[n].store, value, self.out_bases[n], j, lanes))
        return regs

    def is_own_output(self, v: int) -> bool:
        """Whether a kept value lies in the output that it is."""
        slot = self.plan.slots[v]
        return slot.place == "output" and self.program.outputs[slot.index] == v

    def slot(self, v: int, j: Reg) -> tuple[Buffer, Reg]:
        """Where a kept value's element ``j`` lies."""
        slot = self.plan.slots[v]
        if slot.place == "scratch":
            return self.scratch[v], j
        return self.outputs[slot.index].buffer, self.out_bases[slot.index] + j

    # -- reductions ------------------------------------------------------------------------

    def reduction(self, v: int) -> Reduce:
        step = self.program.step(v)
        assert isinstance(step, Reduce)
        return step

    def start(self, v: int, lanes: int) -> Total:
        r = self.reduction(v)
        return start(self.k, r.kind, r.accumulate, lanes)

    def combine(self, v: int, total: Total, x: Reg) -> Total:
        r = self.reduction(v)
        return add(self.k, r.kind, total, self.k.cast(x, r.accumulate))

    def both(self, p: Pass, n: int, a: Reg, b: Reg) -> Reg:
        """What two threads have come to in the pass's n-th reduction."""
        (total,) = self.combine(p.reductions[n], (a,), b)
        return total

    def fold(self, v: int, total: Total, lanes: int) -> Total:
        """Combine the halves of a sum until it has ``lanes``; 0 is a scalar."""
        return fold(self.k, self.reduction(v).kind, total, lanes)

    def finish(self, v: int, found: Total) -> Reg:
        (total,) = found
        k, r = self.k, self.reduction(v)
        if r.kind == "mean":
            total = total / k.cast(self.columns, r.accumulate)
        return k.round_to(k.cast(total, _wide(r.dtype)), r.dtype)
