"""The emitter of row-wise kernels; see ``rowwise`` for what it emits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from math import prod

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.combine import ReduceKind, Total, add, by_parts, fold, is_float_sum, start
from rlx.codegen.reg import Buffer, Reg
from rlx.codegen.strides import Strided, maskable
from rlx.kernels.rowwise.plan import Pass, Reduce, RowProgram, RowwiseConfig, plan
from rlx.types import DType, bf16, f16, f32

__all__ = ["BLOCK", "GROUP", "SHORT_ROW", "emit", "widest"]

MAX_VECTORS = 4
"""Vectors of a row in a round: as many independent sums as hide the latency of an addition."""

ROUND_COST = 24
"""Instructions of a row in a round: above it more vectors make the code longer and not faster."""

GROUP = 2
"""Short rows side by side. More are faster yet for rows of few vectors, and slower for others."""

SHORT_ROW = 4 << 10
"""Bytes of a row up to which the work between two passes counts."""

AHEAD = 2
"""Rows that lie between a row and the one that is asked for beside it."""

GROUPED_PASSES = 3
"""Passes from which rows go side by side: with fewer, memory is slower for it."""

BLOCK = 128
"""Threads of a block of a GPU, which share one row or several."""


def _wide(dt: DType) -> DType:
    """The type of a register that holds ``dt``."""
    return f32 if dt in (f16, bf16) else dt


def widest(program: RowProgram) -> int:
    """The bytes of an element of a region's widest type, in a register."""
    return max(_wide(dt).bytes for dt in program.dtypes)


def emit(name: str, config: RowwiseConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel. Arguments: buffers of the inputs and outputs; the leading dims, the
    length of a row, the bytes of a row of scratch; the run-time strides."""
    return _Emitter(name, config, target).emit()


@frozen
class _Row:
    """A row that is worked on: where each operand's row starts, and its scalars so far."""

    number: int
    in_bases: list[Reg]
    out_bases: list[Reg]
    scalars: dict[int, Reg]


Sums = list[list[Total]]
"""The reductions of a pass under way: of each row, in the order of the pass."""


class _Emitter:
    def __init__(self, name: str, config: RowwiseConfig, target: KernelTarget) -> None:
        self.k, self.config, self.program = Kernel(name, target), config, config.program
        k, program = self.k, self.program
        # A GPU's threads have no scratch: there every pass computes what it needs.
        self.plan = plan(config, keep=target.serial)
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
        slots = self.plan.scratch_rows
        self.scratch: dict[tuple[int, int], Buffer] = {
            (v, n): k.scratch(_wide(program.dtypes[v]), scratch_row * (n * slots + slot.index))
            for v, slot in self.plan.slots.items()
            if slot.place == "scratch"
            for n in range(GROUP)
        }
        self.shared = self.shared_values()
        self.costly = max(self.plan.passes, key=lambda p: p.cost, default=None)

    def shared_values(self) -> set[int]:
        """The moving values that are the same in all rows: a norm's gain."""
        shared: set[int] = set()
        for v in range(len(self.program.dtypes)):
            step = self.program.step(v)
            if step is None:
                same = all(kind == "zero" for kind in self.config.inputs[v][:-1])
            else:
                same = not isinstance(step, Reduce) and all(a in shared for a in step.args)
            if same:
                shared.add(v)
        return {v for v in shared if self.plan.moving[v]}

    def emit(self) -> KernelText:
        k = self.k
        masks = self.lanes and k.target.masks
        self.tail = k.first_lanes(self.columns % self.lanes, self.lanes) if masks else None
        self.thread: Reg | None = None
        self.inside: Reg | None = None
        if self.config.threads:
            k.parallel_blocks(BLOCK, self.shared_rows)
        elif self.lanes and len(self.plan.passes) >= GROUPED_PASSES:
            short = self.columns <= SHORT_ROW // widest(self.program)
            k.parallel_groups(GROUP, short, self.rows)
        else:
            k.parallel(lambda r: self.rows(r, 1))
        return k.text()

    def shared_rows(self, block: Reg, thread: Reg) -> None:
        """The rows of a block, each by some of its threads: each takes every so many elements, and
        what they have reduced is folded where a pass ends. Threads that have no row go through the
        last, since all must meet, and store nothing: PoCL runs no loop right whose end differs from
        thread to thread."""
        k, threads = self.k, self.config.threads
        if threads == BLOCK:
            self.thread = self.first = thread
            self.rows(block, 1)
            return
        self.thread, self.first = thread, thread % threads
        r = block * (BLOCK // threads) + thread // threads
        count = prod(self.lead, start=k.index(1))
        self.inside = r < count
        self.rows(k.minimum(r, count - 1), 1)

    def rows(self, first: Reg, count: int) -> None:
        """Some rows side by side, by one thread; or one by several."""
        self.group = [self.row(n, first + n if n else first) for n in range(count)]
        after = range(AHEAD, AHEAD + count) if count > 1 or self.config.far else ()
        self.next_group = [self.row(n, first + n) for n in after]
        for p in self.plan.passes:
            self.run(p)
        zero = self.k.index(0)
        for row in self.group:
            for n, (v, operand) in enumerate(zip(self.program.outputs, self.outputs, strict=True)):
                if operand.inner == "zero":
                    value = self.scalar(row, v)
                    self.by_one(partial(operand.store, value, row.out_bases[n], zero, 0))

    def row(self, number: int, r: Reg) -> _Row:
        at: list[Reg] = []
        for d in range(len(self.lead) - 1, -1, -1):
            at.insert(0, r % self.lead[d] if d else r)
            r = r // self.lead[d] if d else r
        in_bases = [o.offset(at) for o in self.inputs]
        return _Row(number, in_bases, [o.offset(at) for o in self.outputs], {})

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

    def scalar(self, row: _Row, v: int) -> Reg:
        """A value with one element a row; reductions are there since their pass."""
        if v not in row.scalars:
            step = self.program.step(v)
            if step is None:
                row.scalars[v] = self.inputs[v].load(row.in_bases[v], self.k.index(0), 0)
            else:
                assert not isinstance(step, Reduce)
                row.scalars[v] = step.emit(self.k, *(self.scalar(row, a) for a in step.args))
        return row.scalars[v]

    # -- one pass --------------------------------------------------------------------------

    def run(self, p: Pass) -> None:
        """Walk the rows: rounds of several vectors, single vectors, and the rest. A round is one
        long vector, see ``elementwise.walk``; its sums are folded to the next shorter kind."""
        k, lanes = self.k, self.lanes
        fixed = [self.fixed_values(row, p) for row in self.group]
        wide = [{v: k.splat(x, lanes) for v, x in own.items()} for own in fixed] if lanes else fixed
        vectors = max(1, min(MAX_VECTORS, ROUND_COST // max(1, p.cost)))
        longest = lanes << (vectors.bit_length() - 1)  # halves again and again
        sums = [[self.start(v, longest) for v in p.reductions] for _ in self.group]
        begin = k.index(0) if self.thread is None else self.first
        rests: list[tuple[int, Reg | None]] = [(longest, None), (lanes, None)]
        rests.append((lanes, self.tail) if self.maskable(p) else (0, None))
        for n, mask in dict.fromkeys(rests):
            sums = self.fold(p, sums, n)
            begin, sums = self.walk(p, wide if n else fixed, begin, sums, n, mask)
        sums = self.fold(p, sums, 0)
        if self.thread is not None and p.reductions:
            own = [total for (total,) in sums[0]]
            both = partial(self.both, p)
            sums = [[(s,) for s in k.block_fold(self.thread, own, both, self.config.threads)]]
        for row, own_sums in zip(self.group, sums, strict=True):
            for v, s in zip(p.reductions, own_sums, strict=True):
                row.scalars[v] = self.finish(v, s)

    def maskable(self, p: Pass) -> bool:
        """Whether the rest of a row, shorter than a vector, may be a part of one."""
        read = [self.inputs[v] for v in p.values if v < len(self.inputs) and v not in p.reload]
        operands = (*read, *(self.outputs[n] for n in p.outputs))
        kept = (self.slot(self.group[0], v)[0].dtype for v in (*p.keep, *p.reload))
        return (
            self.tail is not None
            and all(o.maskable for o in operands)
            and all(maskable(dt) for dt in kept)
        )

    def fixed_values(self, row: _Row, p: Pass) -> dict[int, Reg]:
        """The scalars that the pass uses beside its moving values."""
        computed = [v for v in p.values if v not in p.reload]
        used = {a for v in computed for a in self.program.args(v)}
        used |= {self.reduction(r).arg for r in p.reductions}
        used |= {self.program.outputs[n] for n in p.outputs}
        return {v: self.scalar(row, v) for v in sorted(used) if not self.plan.moving[v]}

    def walk(
        self,
        p: Pass,
        fixed: list[dict[int, Reg]],
        begin: Reg,
        sums: Sums,
        lanes: int,
        mask: Reg | None,
    ) -> tuple[Reg, Sums]:
        """Cover as much of [begin, columns) as vectors of ``lanes`` do, or with a mask all of it,
        adding to ``sums`` (one of that length for each reduction). Returns where it ended, and the
        sums."""
        k, step = self.k, max(1, lanes)
        whole = lanes and mask is None
        end = self.columns - (self.columns - begin) % step if whole else self.columns

        def totals(flat: Sequence[Reg]) -> Sums:
            rest = iter(flat)
            return [[tuple(islice(rest, len(s))) for s in own] for own in sums]

        def one_round(j: Reg, *carried: Reg) -> list[Reg]:
            found: list[Reg] = []
            values = self.point(p, fixed, j, lanes, mask)
            for regs, own in zip(values, totals(carried), strict=True):
                for v, s in zip(p.reductions, own, strict=True):
                    found += self.combine(v, s, regs[self.reduction(v).arg], mask)
            return found

        stride = self.config.threads or step
        first = [x for own in sums for s in own for x in s]
        if self.config.long and self.thread is None:
            rounds = [
                is_float_sum(self.kind(v), self.reduction(v).accumulate) for v in p.reductions
            ]
            adds = [r for own in sums for r, s in zip(rounds, own, strict=True) for _ in s]
            return end, totals(by_parts(k, begin, end, step, one_round, first, adds))
        return end, totals(k.loop(begin, end, stride, one_round, first))

    def point(
        self, p: Pass, fixed: list[dict[int, Reg]], j: Reg, lanes: int, mask: Reg | None
    ) -> list[dict[int, Reg]]:
        """The values of a pass at one vector or element of each row; every load comes before a
        store."""
        k = self.k
        found = [{v: self.spread(x, lanes) for v, x in own.items()} for own in fixed]
        if lanes and mask is None:
            self.prefetch(p, j, lanes)
        for row, regs in zip(self.group, found, strict=True):
            for v in p.values:
                step = self.program.step(v)
                if v in self.shared and v in found[0]:
                    regs[v] = found[0][v]
                elif v in p.reload:
                    regs[v] = k.load(*self.slot(row, v, j), lanes, mask)
                elif step is None:
                    regs[v] = self.inputs[v].load(row.in_bases[v], j, lanes, mask)
                else:
                    assert not isinstance(step, Reduce)
                    regs[v] = step.emit(k, *(regs[a] for a in step.args))
        self.write(p, found, j, lanes, mask)
        return found

    def write(
        self, p: Pass, found: list[dict[int, Reg]], j: Reg, lanes: int, mask: Reg | None
    ) -> None:
        """Put the values that are kept, and those of outputs, in their places."""
        k = self.k
        for row, regs in zip(self.group, found, strict=True):
            for v in p.keep:
                if not self.is_own_output(v):
                    k.store(regs[v], *self.slot(row, v, j), 0, mask)
            for n in p.outputs:
                value = regs[self.program.outputs[n]]
                store = self.outputs[n].store
                self.within(partial(store, value, row.out_bases[n], j, lanes, mask))

    def spread(self, x: Reg, lanes: int) -> Reg:
        """A fixed value in the lanes of a round: the same register again and again."""
        if lanes <= x.lanes:
            return x
        return self.k.shuffle(x, x, [n % x.lanes for n in range(lanes)])

    def prefetch(self, p: Pass, j: Reg, lanes: int) -> None:
        """Ask for the rows that come next: while a row is computed, memory has time."""
        moving = [n for n, o in enumerate(self.inputs) if o.inner == "one" and n not in self.shared]
        for row in self.next_group:
            asked = [(self.inputs[n].buffer, row.in_bases[n], False) for n in moving]
            if self.config.far:  # a fair part of the lines in each pass, and those to be written
                stored = [
                    (o.buffer, b, True)
                    for o, b in zip(self.outputs, row.out_bases, strict=True)
                    if o.inner == "one"
                ]
                passes = self.plan.passes[::-1]
                asked = (stored + asked)[passes.index(p) :: len(passes)]
            elif p is not self.costly:
                asked = []
            for buffer, base, write in asked:
                for n in range(0, lanes, self.lanes):
                    self.k.prefetch(buffer, base + (j + n if n else j), write)

    def is_own_output(self, v: int) -> bool:
        """Whether a kept value lies in the output that it is."""
        slot = self.plan.slots[v]
        return slot.place == "output" and self.program.outputs[slot.index] == v

    def slot(self, row: _Row, v: int, j: Reg | None = None) -> tuple[Buffer, Reg]:
        """Where a kept value's element ``j`` lies, or its first."""
        slot, j = self.plan.slots[v], self.k.index(0) if j is None else j
        if slot.place == "scratch":
            return self.scratch[v, row.number], j
        return self.outputs[slot.index].buffer, row.out_bases[slot.index] + j

    # -- reductions ------------------------------------------------------------------------

    def reduction(self, v: int) -> Reduce:
        step = self.program.step(v)
        assert isinstance(step, Reduce)
        return step

    def kind(self, v: int) -> ReduceKind:
        kind: ReduceKind = self.reduction(v).kind
        if v not in self.plan.numbers:
            return kind
        return "max_number" if kind == "max" else "min_number"

    def start(self, v: int, lanes: int) -> Total:
        return start(self.k, self.kind(v), self.reduction(v).accumulate, lanes)

    def combine(self, v: int, total: Total, x: Reg, mask: Reg | None = None) -> Total:
        r, k = self.reduction(v), self.k
        found = add(k, self.kind(v), total, k.cast(x, r.accumulate))
        if mask is None:
            return found
        return tuple(k.select(mask, a, b) for a, b in zip(found, total, strict=True))

    def both(self, p: Pass, n: int, a: Reg, b: Reg) -> Reg:
        """What two threads have come to in the pass's n-th reduction."""
        (total,) = self.combine(p.reductions[n], (a,), b)
        return total

    def fold(self, p: Pass, sums: Sums, lanes: int) -> Sums:
        """Combine the halves of sums until they have ``lanes``; 0 is a scalar."""
        kinds: list[ReduceKind] = [self.kind(v) for v in p.reductions]
        return [
            [fold(self.k, kind, s, lanes) for kind, s in zip(kinds, own, strict=True)]
            for own in sums
        ]

    def finish(self, v: int, found: Total) -> Reg:
        (total,) = found
        k, r = self.k, self.reduction(v)
        if r.kind == "mean":
            total = total / k.cast(self.columns, r.accumulate)
        return k.round_to(k.cast(total, _wide(r.dtype)), r.dtype)
