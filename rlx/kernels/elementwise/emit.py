"""Elementwise kernels: a program applied at every point of an index space.

The space has been collapsed to few dims (see ``strides``). A task is a block of it: a range of the
inner dim and, above it, a range of the dim before, so that tasks hold about ``BLOCK`` elements
whatever the shape. Blocks depend on the shape alone, never on the number of threads:

    task (outer..., mid block, inner block):
        for m in mid block:
            operands that do not move along the row: loaded once
            for j in inner block, by vectors, the last of them masked: load, program, store

Of operands that are far off, each round asks for the lines that come a few KB after its own.

Outputs must not overlap inputs, unless the kernel is made for ``in_place``: then an output may be
the same memory as an input with the same strides and element size, since every element is read
before it is written, and once. Where the target has no masks, the last vector of a row does some
elements again, or with ``in_place`` the last elements go one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.base.cached import cached_property
from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.probe import step_cost
from rlx.codegen.program import Program
from rlx.codegen.reg import Reg
from rlx.codegen.strides import (
    Access,
    Counted,
    Space,
    Strided,
    Strides,
    accesses,
    are_far,
    ceil_div,
    collapse,
    order_for_output,
    run_time_strides,
)
from rlx.kernels.elementwise.gathered_operand import Take, Taken
from rlx.kernels.elementwise.tiles import (
    EDGE,
    LEAST,
    Tiles,
    dim_across,
    lies_across,
    tile_blocks,
    with_across,
)
from rlx.types import DType, i64

__all__ = ["BLOCK", "ElementwiseConfig", "emit", "launch"]

name = "elementwise"

BLOCK = 4096
"""Elements of a task: enough to make up for starting it, few enough to stay in the L1 cache."""

SHARE = 1 << 16
"""Instructions on elements that are worth a thread of their own: several microseconds."""

AHEAD = 6 << 10
"""Bytes between an element and the one that is asked for beside it. The machine looks ahead too,
but not beyond a page."""

SHORT_RUN = 256
"""Elements of the inner dim below which the lines that come next may lie elsewhere."""

LINE = 64
"""Bytes of a cache line."""

TAKE_COST = 4
"""What reading an element by index is in instructions on elements."""

SHORT_PROGRAM = 8
"""Up to this cost the loop's own instructions count, so more vectors go in a round."""


@frozen
class ElementwiseConfig:
    """A program, and how each of its inputs and outputs moves along the dims of the space.

    The inputs numbered in ``counted`` have no memory: they are their own offsets. Those of
    ``taken`` are read by index. ``far`` operands are mostly in no cache of a CPU's own.
    """

    program: Program
    inputs: tuple[Access, ...]
    outputs: tuple[Access, ...]
    in_place: bool = False
    counted: tuple[int, ...] = ()
    far: bool = False
    taken: tuple[Take, ...] = ()

    @property
    def rank(self) -> int:
        """Number of dims of the space."""
        return len(self.outputs[0])

    @property
    def across(self) -> tuple[int, ...]:
        """The inputs that lie across, and are read by tiles."""
        return tuple(n for n, a in enumerate(self.inputs) if lies_across(a))

    @cached_property
    def moving(self) -> tuple[bool, ...]:
        """For every value of the program, whether it changes along the inner dim."""
        out = [a[-1] != "zero" for a in self.inputs]
        for take in self.taken:
            out[take.table] |= out[take.index]
        for s in self.program.steps:
            out.append(any(out[i] for i in s.args))
        return tuple(out)

    @property
    def dtypes(self) -> set[DType]:
        """The element types of its values; places of elements are i64."""
        places = [i64] * bool(self.taken)
        return {*self.program.inputs, *(s.dtype for s in self.program.steps), *places}


def launch(
    program: Program,
    shape: Sequence[int],
    inputs: Sequence[Strides],
    outputs: Sequence[Strides],
    block: int = BLOCK,
    *,
    in_place: bool = False,
    counted: Sequence[int] = (),
    taken: Sequence[tuple[Take, Sequence[int]]] = (),
) -> tuple[ElementwiseConfig, Launch]:
    """The kernel and its arguments for a result of ``shape``.

    ``inputs`` and ``outputs`` give each operand's stride along every dim of ``shape``, in elements
    and not negative; 0 where it is broadcast (outputs never are). ``block`` is the number of
    elements of a task: 1 on a GPU. ``in_place`` says that an output may be the memory of an input.
    ``counted`` are the numbers of the integer inputs whose elements are their offsets. ``taken``
    are the inputs that are read by index, with their sizes (``Take.sizes``); their strides are
    those of the element that the index 0 names.
    """
    space = Space(tuple(shape), (*map(tuple, inputs), *map(tuple, outputs)))
    first_output = len(inputs)
    space = _inner_last(collapse(order_for_output(space, first_output)), first_output)
    apart = {*counted, *(take.table for take, _ in taken)}
    loads = [None if n in apart else dt for n, dt in enumerate(program.inputs)]
    across = dim_across(space, loads) if block >= BLOCK else None
    if across is not None:
        dims = range(len(space.shape) - 1)
        space = space.permuted([*(d for d in dims if d != across), across, len(dims)])
    kinds = accesses(space)
    ends = kinds[:first_output], kinds[first_output:]
    *outer, inner = space.shape
    if across is not None:
        ends = tuple(with_across(space, ends[0], loads)), ends[1]
    kinds = (*ends[0], *ends[1])
    # Asked for in this order, the length of a run matters to large operands alone.
    far = block > 1 and across is None and are_far(space, [*program.inputs, *program.results])
    far = far and inner >= SHORT_RUN
    by_index = tuple(take for take, _ in taken)
    config = ElementwiseConfig(program, *ends, in_place, tuple(counted), far, by_index)
    if across is not None:
        blocks = tile_blocks(space.shape)
    else:
        blocks = [minimum(block, maximum(1, inner))]
        if outer:
            blocks.append(minimum(outer[-1], maximum(1, block // maximum(1, inner))))
    tasks = 1
    for n, size in zip(reversed(space.shape), blocks, strict=False):
        tasks *= ceil_div(n, size)
    for n in outer[:-1]:
        tasks *= n
    sizes = [*space.shape, *blocks]
    for kind, s in zip(kinds, space.strides, strict=True):
        sizes += run_time_strides(kind, s)
    sizes += [n for _, own in taken for n in own]
    work = maximum(
        1, space.size * (1 + _cost(program) + TAKE_COST * len(taken)) // maximum(1, tasks)
    )
    return config, Launch(tasks, maximum(1, SHARE // work), tuple(sizes))


def _cost(program: Program) -> int:
    return sum(step_cost(s) for s in program.steps)


def _inner_last(space: Space, first_output: int) -> Space:
    """Put last the dim along which most operands are contiguous or constant; outputs count twice,
    and the dim that is last already wins ties."""

    def score(d: int) -> int:
        own = [s[d] in (0, 1) for s in space.strides]
        return sum(own) + sum(own[first_output:])

    dims = range(len(space.shape))
    inner = max(dims, key=lambda d: (score(d), d))
    return space.permuted([d for d in dims if d != inner] + [inner])


def emit(name: str, config: ElementwiseConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel. Arguments: buffers of inputs and outputs; the shape, the inner
    block and (from rank 2) the block of the dim before it; the run-time strides."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    def __init__(self, name: str, config: ElementwiseConfig, target: KernelTarget) -> None:
        self.config, self.k = config, Kernel(name, target)
        k, program, rank = self.k, config.program, config.rank
        lanes = min((target.lanes(dt) for dt in config.dtypes), default=1)
        self.lanes = lanes if lanes > 1 else 0
        self.vectors = 4 if _cost(program) <= SHORT_PROGRAM else 2
        self.takes = {take.table: take for take in config.taken}
        # Indices in phases, which few vectors look at, where they move along the inner dim alone.
        self.unread = {
            take.index for take in config.taken
            if take.phases and take.dense
            and (config.inputs[take.index][-1], config.inputs[take.table][-1]) == ("one", "zero")
        }  # fmt: skip
        kinds = dict.fromkeys(config.counted, Counted) | dict.fromkeys(self.takes, Taken)
        self.inputs = [
            kinds.get(n, Strided)(k, f"in{n}", dt, a)
            for n, (dt, a) in enumerate(zip(program.inputs, config.inputs, strict=True))
        ]
        self.outputs = [
            Strided(k, f"out{n}", dt, a)
            for n, (dt, a) in enumerate(zip(program.results, config.outputs, strict=True))
        ]
        error = k.error_record() if any(take.faults for take in config.taken) else None
        self.shape = [k.size(f"dim{d}") for d in range(rank)]
        self.blocks = [k.size(f"block{d}") for d in range(rank - 1, maximum(-1, rank - 3), -1)]
        for operand in (*self.inputs, *self.outputs):
            operand.declare_strides()
        for take in config.taken:
            table = self.inputs[take.table]
            assert isinstance(table, Taken)
            table.declare(take, error)

    def emit(self) -> KernelText:
        k = self.k
        counts = [
            (n + (b - 1)) // b for n, b in zip(reversed(self.shape[-2:]), self.blocks, strict=True)
        ]
        k.parallel(lambda t: self.task(t, counts))
        return k.text()

    def task(self, t: Reg, counts: list[Reg]) -> None:
        """Decode the task, innermost first, and run its rows."""
        k = self.k
        if self.config.rank == 1:
            self.row([], *self.block(t, 0))
            return
        inner = self.block(t % counts[0], 0)
        t = t // counts[0]
        mid = self.block(t % counts[1], 1) if self.config.rank > 2 else self.block(t, 1)
        t = t // counts[1]
        at: list[Reg] = []
        for d in range(self.config.rank - 3, -1, -1):
            at.insert(0, t % self.shape[d] if d else t)
            t = t // self.shape[d] if d else t
        if self.config.across:
            self.tiles().emit(at, mid, inner)
        else:
            k.loop(*mid, 1, lambda m: self.row([*at, m], *inner))

    def tiles(self) -> Tiles:
        """What covers a block of two dims where some inputs lie across."""
        config = self.config
        inputs = enumerate(self.inputs)
        across = {v: o for v, o in inputs if v in config.across and isinstance(o, Strided)}
        edge = minimum(EDGE, maximum(LEAST, self.lanes)) if self.lanes else 0
        unrolled = len(across) == 1 and _cost(config.program) <= SHORT_PROGRAM

        def point(at: list[Reg], j: Reg, known: dict[int, Reg]) -> None:
            bases = [o.offset(at) for o in (*self.inputs, *self.outputs)]
            self.point(bases, {**self.fixed_values(bases), **known}, j, edge, None)

        return Tiles(
            self.k, across, edge, lambda *span: self.row(*span, vectors=1), point,
            overlap=not config.in_place, unrolled=unrolled,
        )  # fmt: skip

    def block(self, index: Reg, n: int) -> tuple[Reg, Reg]:
        """Begin and end of a block along the inner dim (n = 0) or the one before it (n = 1)."""
        k, size = self.k, self.blocks[n]
        begin, limit = index * size, self.shape[-1 - n]
        end = begin + size
        return begin, k.select(end < limit, end, limit)

    def row(self, at: list[Reg], begin: Reg, end: Reg, vectors: int | None = None) -> None:
        """The elements [begin, end) of one row, so many ``vectors`` a round."""
        bases = [o.offset(at) for o in (*self.inputs, *self.outputs)]
        fixed = self.fixed_values(bases)

        def point(j: Reg, lanes: int, mask: Reg | None = None) -> None:
            self.point(bases, fixed, j, lanes, mask)

        walk(
            self.k, begin, end, point,
            lanes=self.lanes, vectors=vectors or self.vectors, overlap=not self.config.in_place,
            masked=all(o.maskable for o in (*self.inputs, *self.outputs)),
        )  # fmt: skip

    def fixed_values(self, bases: list[Reg]) -> dict[int, Reg]:
        """The values of the program that are the same along the row, as scalars."""
        k, config = self.k, self.config
        regs: dict[int, Reg] = {}
        zero = k.index(0)
        for v, moving in enumerate(config.moving):
            if moving:
                continue
            if v < len(self.inputs):
                regs[v] = self.read(v, bases, zero, 0, regs)
            else:
                step = config.program.steps[v - len(self.inputs)]
                regs[v] = step.emit(k, *(regs[i] for i in step.args))
        return regs

    def point(
        self,
        bases: list[Reg],
        fixed: dict[int, Reg],
        j: Reg,
        lanes: int,
        mask: Reg | None,
    ) -> None:
        """One vector or one element: every load comes before the first store."""
        k, n = self.k, len(self.inputs)
        if self.config.far and lanes and mask is None:
            self.prefetch(bases, j, lanes)
        regs = dict(fixed)
        for v in range(n):
            if v not in regs and v not in self.unread:
                regs[v] = self.read(v, bases, j, lanes, regs, mask)
        for v, step in enumerate(self.config.program.steps, n):
            if v not in regs:
                regs[v] = step.emit(k, *(regs[i] for i in step.args))
        for base, operand, v in zip(
            bases[n:], self.outputs, self.config.program.outputs, strict=True
        ):
            operand.store(regs[v], base, j, lanes, mask)

    def read(
        self, v: int, bases: list[Reg], j: Reg, lanes: int, regs: dict[int, Reg],
        mask: Reg | None = None,
    ) -> Reg:  # fmt: skip
        """The elements of an input; ``regs`` has those of the inputs before it."""
        operand, base = self.inputs[v], bases[v]
        if not isinstance(operand, Taken):
            return operand.load(base, j, lanes, mask)
        take = self.takes[v]
        if take.index not in self.unread:
            return operand.take(regs[take.index], base, j, lanes)

        def by_index() -> Reg:
            index = self.inputs[take.index].load(bases[take.index], j, lanes)
            return operand.take(index, base, j, lanes)

        return operand.spread(take.phases, base, j, lanes, by_index)

    def prefetch(self, bases: list[Reg], j: Reg, lanes: int) -> None:
        """Ask for the lines that come after those of a vector, to read or to write them."""
        for n, (o, base) in enumerate(zip((*self.inputs, *self.outputs), bases, strict=True)):
            if type(o) is Strided and o.inner == "one" and "zero" not in o.access:
                first = base + (j + AHEAD // o.dtype.bytes)
                for at in range(0, lanes, maximum(1, LINE // o.dtype.bytes)):
                    self.k.prefetch(o.buffer, first + at if at else first, n >= len(self.inputs))


def walk(
    k: Kernel,
    begin: Reg,
    end: Reg,
    body: Callable[..., None],
    *,
    lanes: int,
    vectors: int,
    overlap: bool = False,
    masked: bool = False,
) -> None:
    """Cover [begin, end) by rounds of ``vectors`` vectors, single vectors, and single elements:
    ``body(j, n)`` does the n elements from j on, or one for n = 0. With ``lanes`` 0 there are
    single elements only.

    A round is one long vector, of which LLVM makes as many registers as it needs, side by side in
    every instruction: so the chains of dependent operations of several vectors overlap.

    With ``masked``, and a target that has masks, the last elements are part of a vector:
    ``body(j, n, mask)``. Else, with ``overlap`` the last vector ends at ``end``, and does some
    elements a second time; only ranges shorter than a vector go by single elements. The body must
    not mind.
    """
    start = begin
    if lanes and vectors > 1:
        whole = end - (end - begin) % (lanes * vectors)
        k.loop(begin, whole, lanes * vectors, lambda j: body(j, lanes * vectors))
        begin = whole
    masked = masked and k.target.masks
    if lanes and overlap and not masked:
        fits = end >= start + lanes
        k.loop(
            begin, k.select(fits, end, begin), lanes,
            lambda j: body(k.minimum(j, end - lanes), lanes),
        )  # fmt: skip
        begin = k.select(fits, end, begin)
    elif lanes:
        whole = end - (end - begin) % lanes
        k.loop(begin, whole, lanes, lambda j: body(j, lanes))
        begin = whole
    if lanes and masked:
        rest = end - begin
        k.when(rest > 0, lambda: body(begin, lanes, k.first_lanes(rest, lanes)))
    else:
        k.loop(begin, end, 1, lambda j: body(j, 0))
