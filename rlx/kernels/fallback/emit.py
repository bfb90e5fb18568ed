"""Common kernels: any op from its own loop nest, or its formula, on dense tensors.

This is how an op runs that no faster family claims, on every target, through the same text as the
others. ``LoopBuilder`` is what an op's ``loops`` is written in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from rlx.base.dim_atoms import Symbol
from rlx.base.dims import Dim, bind_dim, maximum
from rlx.base.frozen import frozen
from rlx.base.guards import is_one, prefers
from rlx.codegen.builder import Frame, Kernel, KernelTarget, KernelText
from rlx.codegen.combine import PART, by_parts
from rlx.codegen.family import Launch
from rlx.codegen.matrix import LINE_BYTES, Matrix, padded
from rlx.codegen.probe import Probe
from rlx.codegen.reg import INDEX, Buffer, Number, Reg
from rlx.codegen.strides import row_major
from rlx.errors import GraphError, UnsupportedError
from rlx.ir.declared import is_foreign
from rlx.ir.op import Op, op_class
from rlx.kernels.fallback.config import CommonConfig, Sized
from rlx.kernels.sort import cumulative as running
from rlx.kernels.sort.lines import Coder, Line
from rlx.kernels.sort.lines_strided import LinesAcross
from rlx.ops.reduction.recurrence import Running
from rlx.types import DType, TensorType, bf16, f16, f32

__all__ = [
    "CommonConfig", "LoopBuilder", "Room", "emit", "faults", "launch", "traced", "workspaces",
    "written",
]  # fmt: skip

name = "common"

SHARE = 1 << 14
"""Operations that are worth a thread of their own; common code is scalar, about one a cycle."""

Index = Reg | int
_NONE: Mapping[str, Dim] = {}


@frozen
class Room:
    """Memory that a loop nest writes and reads again: a result, or a workspace of its own."""

    buffer: Buffer
    type: TensorType


class LoopBuilder:
    """What ``Op.loops`` is written in: loads and stores by index on dense row-major operands.

    16-bit floats are f32 in registers and rounded when stored; bools are i1. Indices are Regs (of
    the index type or any integer type) or ints, one an axis.
    """

    def __init__(
        self, k: Kernel, op: Op, unread: Sequence[int] = (), symbols: Sequence[Symbol] = ()
    ) -> None:
        self.k, self.op, self._unread, self.symbols = k, op, unread, symbols
        k.symbols(s.name for s in symbols)
        self.domain: tuple[int, ...] | None = None
        self.messages: list[str] = []
        self.workspaces: list[TensorType] = []
        self.work_memory: dict[DType, int] = {}
        self._work: dict[DType, Buffer] = {}
        self.scratch = 0
        self._point: Reg | None = None
        self._operands: list[Buffer | None] = [
            None if v is None else k.buffer(f"in{n}", v.dtype) for n, v in enumerate(op.operands)
        ]
        self._results = [
            Room(k.buffer(f"out{n}", v.dtype), v.type) for n, v in enumerate(op.results)
        ]
        self._error: tuple[Buffer, Reg] | None = None

    # -- loops -----------------------------------------------------------------------------

    @property
    def serial(self) -> bool:
        """Whether a worker runs points one by one, with vectors and scratch of its own; threads of
        a GPU run many side by side."""
        return self.k.target.serial

    def parallel(self, shape: Sequence[int], body: Callable[..., None]) -> None:
        """Run ``body(*at)`` at every point of the domain ``shape``; the points are independent, and
        may run in any order and at once. To be called once."""
        if self.domain is not None:
            raise GraphError(f"{self.op.name}: its loops call parallel twice")
        self.domain = tuple(shape)
        if self.serial and not all(isinstance(n, int) for n in shape[1:]):
            self._by_rows(shape, body)
            return

        def point(flat: Reg) -> None:
            self._point = flat
            body(*self._at(flat, shape))

        self.k.parallel(point)

    def _by_rows(self, shape: Sequence[int], body: Callable[..., None]) -> None:
        """The points of a row one after another: where sizes are arguments, to divide by them at
        each point would take long."""

        def span(row: Reg, begin: Reg, end: Reg) -> None:
            before = self._at(row, shape[:-1])

            def point(i: Reg) -> None:
                self._point = row * shape[-1] + i
                body(*before, i)

            self.k.loop(begin, end, 1, point)

        self.k.parallel_spans(maximum(shape[-1], 1), span)

    def spans(self, rows: int, count: int, body: Callable[[Reg, Reg, Reg], None]) -> None:
        """As ``parallel`` over ``(rows, count)`` on a CPU: ``body(row, begin, end)`` for points
        that are neighbours in a row, as many as there are at once."""
        assert self.domain is None and self.serial, self.op.name
        self.domain, self._point = (rows, count), self.k.reg("%begin", INDEX)
        self.k.parallel_spans(count, body)

    def _at(self, flat: Reg, shape: Sequence[int]) -> list[Reg]:
        """The index along each axis of the element number ``flat``."""
        one = [prefers(lambda n=n: n <= 1, otherwise=False) for n in shape]
        at = [self.k.index(0)] * len(shape)
        rest = flat
        for axis in reversed(range(len(shape))):
            if not one[axis]:
                first = all(one[:axis])
                at[axis] = rest if first else rest % shape[axis]
                rest = rest if first else rest // shape[axis]
        return at

    def loop(
        self, n: Index, body: Callable[..., Sequence[Reg] | Reg | None], init: Sequence[Reg] = ()
    ) -> list[Reg]:
        """In order for i in range(n): ``body(i, *carried)`` returns the next carried values."""
        return self.k.loop(0, n, 1, body, init)

    def sum(
        self, n: int, body: Callable[..., Sequence[Reg] | Reg], init: Sequence[Reg]
    ) -> list[Reg]:
        """As ``loop``, of a body that adds floats to what is carried. On a CPU, sums of many are
        made of sums of parts (``rlx.codegen.combine``)."""
        if not self.serial or n <= PART:
            return self.loop(n, body, init)
        zero, end = self.k.index(0), self.k.index(n)
        return by_parts(self.k, zero, end, 1, body, init, [True] * len(init))

    def when(
        self,
        cond: Reg,
        then: Callable[[], Sequence[Reg] | Reg | None],
        otherwise: Callable[[], Sequence[Reg] | Reg | None] | None = None,
        results: Sequence[Reg] = (),
    ) -> list[Reg]:
        """``if cond``; ``results`` are registers of the types that both branches return."""
        return self.k.when(cond, then, otherwise, results)

    # -- memory ----------------------------------------------------------------------------

    def load(self, operand: int, at: Sequence[Index], lanes: int = 0) -> Reg:
        """An element of an operand, by its number; or ``lanes`` from there on, in memory order."""
        buffer, value = self._operands[operand], self.op.operands[operand]
        if buffer is None or value is None:
            raise GraphError(f"{self.op.name}: its loops read operand {operand}, which is absent")
        return self.k.load(buffer, self._flat(value.type, at), lanes)

    def store(self, result: int, at: Sequence[Index], value: Reg | Number) -> None:
        """Write an element of a result, by its number; a vector fills those that follow."""
        self.write(self._results[result], at, value)

    def result(self, n: int) -> Room:
        """A result, to read again what the same point wrote there."""
        return self._results[n]

    def wanted(self, n: int) -> bool:
        """Whether anything reads a result, by its number."""
        return n not in self._unread

    def workspace(self, shape: Sequence[int], dt: DType) -> Room:
        """Memory of the launch for intermediate elements, with no contents to begin with. Points
        share it, so each has a part of its own. To be asked for before any fault."""
        assert self._error is None, "workspaces come before the error record"
        self.workspaces.append(TensorType(tuple(shape), dt))
        name = f"room{len(self.workspaces) - 1}"
        return Room(self.k.buffer(name, dt), self.workspaces[-1])

    def read(self, room: Room, at: Sequence[Index], lanes: int = 0) -> Reg:
        """An element of a result or workspace; or ``lanes`` from there on, in memory order."""
        return self.k.load(room.buffer, self._flat(room.type, at), lanes)

    def write(self, room: Room, at: Sequence[Index], value: Reg | Number) -> None:
        """Write an element of a result or workspace; a vector fills those that follow."""
        self.k.store(value, room.buffer, self._flat(room.type, at))

    def matrix(self, operand: int, at: Sequence[Index]) -> Matrix:
        """The matrix of an operand at the index ``at`` of its leading axes."""
        buffer, value = self._operands[operand], self.op.operands[operand]
        assert buffer is not None and value is not None
        return self._matrix(buffer, value.type, at)

    def result_matrix(self, result: int, at: Sequence[Index]) -> Matrix:
        """The same of a result. One of vectors, with as many axes as ``at`` and one more, is a
        matrix of one row."""
        room = self._results[result]
        return self._matrix(room.buffer, room.type, at)

    def _matrix(self, buffer: Buffer, t: TensorType, at: Sequence[Index]) -> Matrix:
        rest = t.static_shape[len(at) :]
        stride = rest[-1] if rest else 1
        return Matrix(self.k, buffer, self._flat(t, [*at, *[0] * len(rest)]), stride)

    def coder(self, descending: bool, words: bool) -> Coder:
        """How a CPU puts lines of operand 0 in order: as words, with indices, or as keys alone."""
        value = self.op.operands[0]
        assert value is not None
        return Coder(self.k, value.dtype, descending, words)

    def line(
        self, at: Callable[[Index], Sequence[Index]], n: int, dense: bool, coder: Coder
    ) -> Line:
        """A line of operand 0 and of the results, to be put in order (``kernels.sort.lines``)."""
        return Line(self, at, n, dense, coder)

    def lines_across(
        self, at: Callable[[Index, Index], Sequence[Index]], n: int, coder: Coder
    ) -> LinesAcross:
        """Lines side by side, to be sorted (``rlx.kernels.sort.lines_strided``)."""
        return LinesAcross(self, at, n, coder)

    def work(self, rows: int, columns: int, dt: DType) -> Matrix:
        """Work memory of this point, with padded rows; what it holds at first is undefined. To be
        called inside ``parallel``, before any ``fault``."""
        assert self._point is not None and self._error is None, self.op.name
        stride = padded(columns, dt)
        count = maximum(rows, 1) * stride
        before = self.work_memory.get(dt, 0)
        self.work_memory[dt] = before + count
        if not self.serial:
            # One argument for all of a type, since a device binds few: a part for all points each.
            if dt not in self._work:
                self._work[dt] = self.k.buffer(f"work_{dt}", dt)
            base = self._point * count + before * math.prod(self.domain or ())
            return Matrix(self.k, self._work[dt], base, stride)
        buffer = self.k.scratch(dt, self.scratch)
        self.scratch += -(-count * dt.bytes // LINE_BYTES) * LINE_BYTES
        return Matrix(self.k, buffer, 0, stride)

    def _flat(self, t: TensorType, at: Sequence[Index]) -> Reg:
        if len(at) != t.rank:
            raise GraphError(f"{self.op.name}: its loops index {t} with {len(at)} indices")
        total: Reg | None = None
        fixed = 0
        for i, stride in zip(at, row_major(t.static_shape), strict=True):
            if not isinstance(i, Reg):
                fixed += i * stride
                continue
            one = isinstance(stride, int) and stride == 1
            part = self.index(i) if one else self.index(i) * stride
            total = part if total is None else total + part
        if total is None:
            return self.k.index(fixed)
        nothing = isinstance(fixed, int) and not fixed
        return total if nothing else total + fixed

    def running(self, op: Running) -> None:
        """A fold along an axis (``rlx.kernels.sort.cumulative``)."""
        running.emit(self, op, [x for x in self._operands if x], self._results[0].buffer)

    # -- values ----------------------------------------------------------------------------

    def const(self, value: Number, dt: DType) -> Reg:
        """A number as a register that holds ``dt``."""
        if dt in (f16, bf16):
            return self.k.const(float(np.asarray(value, dt.numpy)), f32)
        return self.k.const(value, dt)

    def convert(self, x: Reg, dt: DType) -> Reg:
        """The value of a register as ``dt`` (rounded to it, in an f32, for a 16-bit float)."""
        if dt in (f16, bf16):
            return self.k.round_to(self.k.cast(x, f32), dt)
        return self.k.cast(x, dt)

    def index(self, x: Reg) -> Reg:
        """An integer register as an index."""
        return self.k.cast(x, INDEX)

    # -- faults ----------------------------------------------------------------------------

    def fault(self, cond: Reg, message: str) -> None:
        """If ``cond``, record the fault, unless there is one already. The caller goes on with
        values that touch no memory out of bounds. The record's code is the message's number,
        counted from 1."""
        if message not in self.messages:
            self.messages.append(message)
        if self._error is None:
            self._error = (self.k.error_record(), self.k.size("site"))
        self.k.record_fault(cond, *self._error, self.messages.index(message) + 1)

    # -- pointwise ops ---------------------------------------------------------------------

    def pointwise(self, formula: Callable[..., Reg]) -> None:
        """The loop nest of an op with a formula, as ``scalar`` is one: a result element a point."""
        op = self.op
        shape = op.out.type.static_shape

        def element(n: int, at: Sequence[Reg]) -> Reg:
            value = op.operands[n]
            assert value is not None
            own = at[len(shape) - value.rank :]
            dims = value.type.static_shape
            return self.load(n, [0 if is_one(d) else i for i, d in zip(own, dims, strict=True)])

        def point(*at: Reg) -> None:
            regs = [element(n, at) for n, v in enumerate(op.operands) if v is not None]
            self.store(0, at, formula(self.k, *regs))

        self.parallel(shape, point)


def emit(name: str, config: CommonConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel. Arguments: buffers of the operands that are present, of the results,
    of the workspaces, and if the op has faults the record ``error`` and the size ``site``, by which
    it is told."""
    with config.answers():
        return _build(name, config, target).k.text()


def launch(
    config: CommonConfig,
    site: int = 0,
    frame: Frame = "cpu",
    found: Sized | None = None,
    flops: Any = None,
) -> Launch:
    """The kernel's arguments; ``site`` is what a fault's record says of where it happened. Of a
    config that was ``found`` while sizes are at hand, the arithmetic of the op is given, too."""
    written, dims = (traced(config, frame), _NONE) if found is None else (found.written, found.dims)
    points: Any = bind_dim(math.prod(written.domain or ()), dims)
    flops = written.op.cost().flops if flops is None else flops
    grain = maximum(1, SHARE // maximum(1, flops // maximum(1, points)))
    sizes: list[Any] = [dims[s.name] for s in written.symbols]
    if written.messages:
        sizes.append(site)
    scratch: Any = bind_dim(written.scratch, dims)
    return Launch(points, grain, tuple(sizes), scratch)


def faults(config: CommonConfig) -> list[str]:
    """The messages of the op's faults; code n of an error record is the n-th, counted from 1."""
    return list(traced(config).messages)


def workspaces(
    config: CommonConfig, frame: Frame = "cpu", found: Sized | None = None
) -> list[TensorType]:
    """The memory that a launch needs beside operands and results, in the order of arguments. CPUs
    have scratch for the work memory of a point; on GPUs it is an argument."""
    written, dims = (traced(config, frame), _NONE) if found is None else (found.written, found.dims)
    points = math.prod(written.domain or ())
    work = [TensorType((points, count), dt) for dt, count in written.work_memory.items()]
    return [t.bind(dims) for t in (*written.workspaces, *(() if written.serial else work))]


def traced(config: CommonConfig, frame: Frame = "cpu") -> LoopBuilder:
    """What writes the kernel on operands of static shape, for no target: the domain and the memory
    are the same for all of a frame, the messages for all."""
    # What the code of an op from outside reads may be something else the next time.
    return (_trace if is_foreign(op_class(config.op)) else _known_trace)(config, frame)


def written(config: CommonConfig, target: KernelTarget) -> LoopBuilder:
    """As ``traced``, for a target, whose vectors may decide what is asked of symbolic dims."""
    return _build("trace", config, target) if config.leaves else traced(config, target.frame)


@cache
def _known_trace(config: CommonConfig, frame: Frame) -> LoopBuilder:
    return _trace(config, frame)


def _trace(config: CommonConfig, frame: Frame) -> LoopBuilder:
    return _build("trace", config, Probe(frame))


def _build(name: str, config: CommonConfig, target: KernelTarget) -> LoopBuilder:
    op = config.node()
    if not (hasattr(type(op), "loops") or hasattr(type(op), "scalar")):
        raise UnsupportedError(f"{op.name} has no loop nest; it is to be expanded into other ops")
    try:
        b = _written(LoopBuilder(Kernel(name, target), op, config.unread, config.leaves))
    except UnsupportedError as error:
        types = ", ".join(str(v.type) for v in op.present)
        raise UnsupportedError(f"{op.name} on ({types}): {error.message}") from None
    if b.domain is None:
        raise GraphError(f"{op.name}: its loops never call parallel")
    return b


def _written(b: LoopBuilder) -> LoopBuilder:
    if hasattr(type(b.op), "loops"):
        b.op.loops(b)
    else:
        b.pointwise(b.op.scalar)
    return b
