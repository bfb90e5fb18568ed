"""The state of one mir-to-lir: where values lie, which kernels exist, and the steps so far."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlx._mlir import ir
from rlx.base.dim_atoms import Symbol
from rlx.base.dim_text import without_ranges
from rlx.base.dims import SymDim, maximum
from rlx.base.guards import deciding
from rlx.codegen.family import Launch
from rlx.dialects.bridge import place_of, trail_of
from rlx.dialects.control import is_barrier
from rlx.dialects.convert import from_attr, from_type, real_parts
from rlx.ir.attrs import parts_of
from rlx.ir.op import Location
from rlx.kernels.elementwise import copy as copy_family
from rlx.kernels.elementwise import emit as elementwise
from rlx.kernels.registry import FAMILIES
from rlx.lowering.compilation import Compilation
from rlx.lowering.region import producer, reads
from rlx.lowering.report import ArenaBuffer
from rlx.lowering.rules import constant_of
from rlx.lowering.select import literals
from rlx.lowering.select.launch_limits import check_launch
from rlx.lowering.select.settle import settled
from rlx.lowering.select.views import Memory, View
from rlx.schedule.arena import ALIGN, plan, plan_slots
from rlx.schedule.plan import Buffer, Role, Site
from rlx.schedule.steps import Await, Collective, Origin, Step
from rlx.schedule.steps import Launch as LaunchStep
from rlx.types import TensorType, dtype, u64

__all__ = ["Lowering"]

DEEP = 64
"""A longer chain of values of the prologue is planned from its start, not by recursion."""


@dataclass
class Lowering:
    """See the module docstring. ``in_prologue`` says which entry ``launch`` appends to.

    ``destinations`` are the places where the caller of a function wants its results, for the values
    that a kernel may write there directly. ``view_ops`` names the ops whose result may be a view of
    their operand. ``dies`` says whether the op at hand may write its result over a value that it
    reads. ``functions`` are the module's, and ``active`` the bodies in the midst of which the
    lowering is. ``slots`` says for the memories of a GPU where the buffers in them begin.
    ``follows`` are the params that each launch of the prologue follows; ``clocks`` say when main
    runs each of its launches. ``depth`` is the number of loops of main that are open. ``for_text``
    says that lir text is wanted: steps and places have the layouts and locations that it shows.
    ``row_extras`` is what was made of rows in 8 bits, by their integers, for products to read.
    """

    compilation: Compilation
    for_text: bool = False
    kernels: dict[tuple[str, Any], int] = field(default_factory=dict)
    main: list[Step[View]] = field(default_factory=list["Step[View]"])
    prologue: list[Step[View]] = field(default_factory=list["Step[View]"])
    follows: list[frozenset[int]] = field(default_factory=list[frozenset[int]])
    clocks: list[int] = field(default_factory=list[int])
    depth: int = 0
    env: dict[ir.Value, View] = field(default_factory=dict)
    buffers: list[Memory] = field(default_factory=list)
    packed: Memory = field(default_factory=lambda: Memory("packed"))
    error: Memory = field(default_factory=lambda: Memory("error"))
    constants: list[np.ndarray[Any, Any]] = field(default_factory=list["np.ndarray[Any, Any]"])
    sites: list[Site] = field(default_factory=list)
    destinations: dict[ir.Value, View] = field(default_factory=dict)
    params_of: dict[ir.Value, frozenset[int]] = field(default_factory=dict)
    in_prologue: bool = False
    following: frozenset[int] = frozenset()
    location: Location = ("<unknown>", 0)
    trail: str = "unknown"
    ops: str = ""
    packs: dict[Any, View] = field(default_factory=dict)
    row_extras: dict[ir.Value, dict[str, View]] = field(
        default_factory=dict["ir.Value", "dict[str, View]"]
    )
    statics: dict[ir.Value, ir.Value] = field(default_factory=dict)
    lower_op: Callable[[ir.Operation], None] = field(default=lambda op: None)
    view_ops: frozenset[str] = frozenset()
    dies: Callable[[ir.Value, View], bool] = field(default=lambda v, view: False)
    functions: dict[str, ir.Operation] = field(default_factory=dict)
    active: list[ir.Operation] = field(default_factory=list)
    slots: dict[Role, list[int]] = field(default_factory=dict["Role", list[int]])
    _open: list[list[Step[View]]] = field(init=False)
    _apart: list[View] = field(default_factory=list[View])
    planned_later: tuple[Buffer, ...] = ()
    _clock: int = 0

    def __post_init__(self) -> None:
        self._open = [self.main]

    @property
    def target(self) -> Any:
        """The target that the compile is for."""
        return self.compilation.target

    @property
    def block(self) -> int:
        """Elements of a task of an elementwise kernel: a GPU has a thread for each."""
        return elementwise.BLOCK if self.target.kernels.serial else 1

    @property
    def widest(self) -> int:
        """Bits of the widest element that kernels move as it is."""
        return 32 if u64 in self.target.kernels.lacks else 64

    @property
    def shares(self) -> bool:
        """Whether threads of the target come in blocks that share memory."""
        return self.target.kernels.shared_space is not None

    def at(self, owner: ir.Operation | ir.Value) -> None:
        """Attribute what is launched from here on to this op or value."""
        self.location = place_of(owner)
        if self.for_text:
            self.trail = trail_of(owner.location)

    # -- values ----------------------------------------------------------------------------

    def constant(self, key: Any, make: Callable[[], Any]) -> View:
        """A memory of the artifact that holds an array of a kernel's own, once for each ``key``."""
        if key not in self.packs:
            array = make()
            t = TensorType.of(array.shape, array.dtype)
            self.packs[key] = self._constant(parts_of(array) if t.dtype.is_complex else array, t)
        return self.packs[key]

    def _constant(self, array: np.ndarray[Any, Any], t: TensorType) -> View:
        self.constants.append(array)
        memory = Memory("constant", len(self.constants) - 1)
        return View.dense(memory, t.dtype, t.static_shape)

    def view(self, v: ir.Value) -> View:
        """Where a value lies. A literal becomes a constant memory when it is first read, and what
        the prologue computes is planned when it is first asked for."""
        if v not in self.env and v in self.statics:
            self.env[v] = self.view(self.statics[v])
        elif v not in self.env and v in self.params_of:
            self._plan(v)
        elif v not in self.env:
            array = constant_of(v)
            op = producer(v)
            assert array is not None and op is not None, f"{v} has no place yet"
            value = from_attr(real_parts(op.attributes["value"]), "Array")
            self.env[v] = self._constant(value, from_type(v.type))
        return self.env[v]

    def _plan(self, v: ir.Value) -> None:
        """Plan what computes a value of the prologue. Each op plans its operands by recursion; in a
        chain too long for Python's stack, the first ops are planned first."""
        order = self._missing(v)
        for u in order if len(order) > DEEP else (v,):
            op = producer(u)
            assert op is not None
            if u not in self.env:
                with self.prologue_of(u):
                    self.lower_op(op)

    def _missing(self, v: ir.Value) -> list[ir.Value]:
        """The values that a value of the prologue needs and that are not planned yet, itself
        last."""
        order: list[ir.Value] = []
        seen: set[ir.Value] = set()
        todo = [(v, False)]
        while todo:
            u, ready = todo.pop()
            op = producer(u)
            if ready:
                order.append(u)
            elif op is not None and u in self.params_of and u not in self.env and u not in seen:
                seen.add(u)
                todo += [(u, True), *((w, False) for w in reads(op))]
        return order

    def literal(self, array: np.ndarray[Any, Any]) -> View:
        """A constant memory with an array that kernels read beside the program's values."""
        if array.dtype == object:  # of dims, which are numbers for good here
            array = array.astype(np.int64)
        key = ("literal", array.dtype.str, array.shape, array.tobytes())
        if key not in self.packs:
            self.constants.append(array)
            memory = Memory("constant", len(self.constants) - 1)
            self.packs[key] = View.dense(memory, dtype(array.dtype), array.shape)
        return self.packs[key]

    def dense(self, v: ir.Value) -> View:
        """A dense row-major view of a value, by a copy if it has gaps."""
        found = self.view(v)
        if not found.is_dense:
            static = self.static_of(v)
            if static is None or self.in_prologue:
                found = self.copied(found)
            else:
                with self.prologue_of(static):
                    found = self.copied(found)
            self.env[v] = found
        return found

    def copied(self, source: View) -> View:
        """A dense copy of a view, in memory of its own: for a kernel that reads no other."""
        target = self.fresh(source.dtype, source.shape)
        with self.preparing("copy"):
            self.copy(source, target)
        return target

    @contextmanager
    def preparing(self, what: str) -> Generator[None]:
        """Launches in the block make something ready for the ops, and profiles name them so."""
        before, self.ops = self.ops, f"{what} for {self.ops}"
        try:
            yield
        finally:
            self.ops = before

    def copy(self, source: View, target: View) -> None:
        """Launch a copy between two views of one shape. It moves bits: one kernel for every element
        type of a width."""
        source, target = source.as_bits(self.widest), target.as_bits(self.widest)
        config, launch = copy_family.launch(
            source.dtype.bits, source.shape, source.strides, target.strides, self.block
        )
        self.launch("copy", config, [source, target], launch)

    def static_of(self, v: ir.Value) -> ir.Value | None:
        """The prologue's value for one that depends on params alone, else None."""
        return v if v in self.params_of else self.statics.get(v)

    @contextmanager
    def prologue_of(self, v: ir.Value) -> Generator[None]:
        """Plan launches for the prologue: they run again when a param that ``v`` needs is set, and
        only once if ``v`` is a literal."""
        before = (self.in_prologue, self.following, self.location, self.trail, self.ops)
        self.in_prologue, self.following = True, self.params_of.get(v, frozenset())
        try:
            yield
        finally:
            self.in_prologue, self.following, self.location, self.trail, self.ops = before

    def result(self, v: ir.Value, strides_of: Sequence[int] | None = None) -> View:
        """The place for a kernel's result. An output is written where the caller wants it.

        ``strides_of`` is a permutation of the axes: the order in which they lie in memory.
        """
        t = from_type(v.type)
        shape = t.static_shape
        wanted = self.destinations.pop(v, None) if strides_of is None else None
        if wanted is not None and not self.in_prologue:
            found = wanted
        elif strides_of is None:
            found = self.fresh(t.dtype, shape)
        else:
            stored = self.fresh(t.dtype, [shape[a] for a in strides_of])
            back = [strides_of.index(a) for a in range(len(shape))]
            found = stored.transpose(back)
        self.env[v] = found
        return found

    def result_over(self, v: ir.Value, read: Sequence[tuple[ir.Value, View]]) -> View:
        """The place for the result of a kernel that reads an element of each view before it writes
        that element: the place of an operand that is dead afterwards, if there is one."""
        t = from_type(v.type)
        if v not in self.destinations and not self.in_prologue:
            for value, view in read:
                place = replace(view, dtype=t.dtype, trail=())
                alike = all(w.memory is not view.memory or w == view for _, w in read)
                if view.dtype.bytes == t.dtype.bytes and alike and self.dies(value, view):
                    self.env[v] = place
                    return place
        return self.result(v)

    def want(self, v: ir.Value, place: View) -> None:
        """Let the kernel that makes ``v`` write to ``place``; what is there already is not moved,
        and of two places the first is taken."""
        self.destinations.setdefault(self._made(v), place)

    def want_no_more(self, v: ir.Value) -> None:
        """Withdraw the wanted place of a value that no kernel has made."""
        self.destinations.pop(self._made(v), None)

    def _made(self, v: ir.Value) -> ir.Value:
        """The value in front of the barriers that ``v`` has come through."""
        maker = producer(v)
        while maker is not None and is_barrier(maker, self.functions):
            v = maker.operands[list(maker.results).index(v)]
            maker = producer(v)
        return v

    def fresh(self, dtype: Any, shape: Sequence[int]) -> View:
        """A new buffer: of the arena, or of the packed memory while the prologue is planned."""
        size = dtype.bytes
        for d in shape:
            size *= d
        if self.in_prologue:
            return View.dense(self.pack(size), dtype, shape)
        memory = Memory("arena", len(self.buffers), size)
        self.buffers.append(memory)
        return View.dense(memory, dtype, shape)

    def pack(self, size: int) -> Memory:
        """Room in the packed memory, which is kept between calls."""
        memory = Memory("packed", 0, size, offset=self.packed.size)
        if self.target.kernels.binds:
            self.slots.setdefault("packed", []).append(self.packed.size)
        self.packed.size += maximum(ALIGN, -(-size // ALIGN) * ALIGN)
        return memory

    # -- steps -----------------------------------------------------------------------------

    def launch(
        self,
        family: str,
        config: Any,
        views: Sequence[View],
        launch: Launch,
        flops: int = 0,
        moved: int | None = None,
    ) -> None:
        """Append a launch; one with nothing to do is left out. ``flops`` is its arithmetic, and
        ``moved`` the bytes that it reads and writes: by default its views, each once."""
        if launch.range == 0:
            return
        check_launch(self.target.kernels, (family, self.ops), views, launch, self.location)
        row, sizes = FAMILIES[family], launch.sizes
        config = config if row.symbolic else settled(config)
        if row.literals:
            config, words = literals.lifted(config, self.target.kernels.word_bits)
            sizes = (*sizes, *words)
        if moved is None:
            moved = sum([v.bytes for v in views if v.memory.role != "error"])
        number = self.kernels.setdefault((family, config), len(self.kernels))
        grid = (launch.range, launch.grain, launch.scratch)
        origin = Origin(self.location, self.trail, self.ops, flops, moved)
        step = LaunchStep(number, grid, tuple(views), sizes, origin)
        if self.in_prologue:
            self.prologue.append(step)
            self.follows.append(self.following)
        else:
            self._await(views)
            self._open[-1].append(step)
            self.clocks.append(self._clock)
            self.touch(*views)

    def touch(self, *views: View) -> None:
        """Record that a step of main reads or writes the buffers of the views."""
        for v in views:
            if v.memory.role == "arena":
                v.memory.touch(self._clock)
        self._clock += 1

    @property
    def origin(self) -> Origin:
        """What a step that is no launch is for."""
        return Origin(self.location, self.trail)

    def append(self, step: Step[View]) -> None:
        """Append a step that is no launch to main."""
        self._open[-1].append(step)

    def meet(self, step: Collective[View]) -> None:
        """Append a collective. Outside of loops and branches it is apart, until a step reads what
        it writes, or writes what it reads: to where what it is on lives."""
        views = [v for v in (step.source, step.target) if v is not None]
        apart = self.target.kernels.serial and len(self._open) == 1 and step.source is not None
        self.append(replace(step, apart=apart))
        if apart:
            self._apart += views
        else:
            views += self._ended()
        self.touch(*views)

    def _ended(self) -> list[View]:
        """What the collectives that were apart are on, which end here."""
        views, self._apart = self._apart, []
        return views

    def _await(self, views: Sequence[View]) -> None:
        """Let the collectives that are apart end before a step on some views."""
        places = {v.place for v in self._apart}
        if not any(v.place in places for v in views):
            return
        last = self.main[-1]
        if isinstance(last, Collective):  # nothing would run beside it
            self.main[-1] = replace(last, apart=False)
        else:
            self.main.append(Await(self.origin))
        self.touch(*self._ended())

    def end(self) -> None:
        """Let the collectives that are apart end, whatever comes next."""
        self._await(list(self._apart))

    @contextmanager
    def inside(self) -> Generator[list[Step[View]]]:
        """Append to a new list of steps, which becomes a part of a step."""
        self.end()
        steps: list[Step[View]] = []
        self._open.append(steps)
        try:
            yield steps
        finally:
            self._open.pop()

    @contextmanager
    def repeated(self) -> Generator[None]:
        """The steps of the block run again and again: what they touch of the buffers that were
        there before lives from their beginning to their end."""
        start, before = self._clock, list(self.buffers)
        yield
        for b in before:
            if b.last >= start:
                b.first, b.last = min(b.first, start), max(b.last, self._clock)
        self._clock += 1

    def site(self, message: str) -> int:
        """The number of a new fault site at the current op."""
        self.sites.append((without_ranges(message), *self.location))
        return len(self.sites) - 1

    def plan_arena(self) -> int:
        """Place the buffers that some step touches; the arena's size in bytes."""
        placed = [b for b in self.buffers if b.first >= 0]
        if deciding() is not None:
            return self._postponed(placed)
        if self.target.kernels.binds:
            total, self.slots["arena"] = plan_slots(placed)
        else:
            total = plan(placed)
        for b in placed:
            first = bisect_left(self.clocks, b.first)
            end = bisect_right(self.clocks, b.last)
            if first < end:  # else a test alone reads it
                self.compilation.arena.append(ArenaBuffer(b.offset, b.size, first, end - 1))
        return total

    def _postponed(self, placed: Sequence[Memory]) -> int:
        """Give every buffer a symbol for its offset, and the arena one for its size, which are
        planned when the sizes of dims are known."""
        for n, b in enumerate(placed):
            b.offset = _inner(f"arena.{n}")
        self.planned_later = tuple(Buffer(b.size, b.first, b.last) for b in placed)
        return _inner("arena.size")


def _inner(name: str) -> Any:
    """A size that is known when those of dims are."""
    return SymDim({(Symbol.inner(name),): 1})
