"""The state of one mir-to-lir: where values lie, which kernels exist, and the steps so far."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rlx._mlir import ir
from rlx.dialects.bridge import place_of, trail_of
from rlx.dialects.convert import from_type
from rlx.errors import UnsupportedError
from rlx.kernels import copy as copy_family
from rlx.kernels import elementwise
from rlx.kernels.family import Launch
from rlx.lowering.arena import ALIGN, plan
from rlx.lowering.base import Compilation
from rlx.lowering.region import producer
from rlx.lowering.report import ArenaBuffer
from rlx.lowering.rules import constant_of
from rlx.lowering.views import Memory, View
from rlx.ops.base import Location

__all__ = ["Lowering", "Site", "StepRecord"]


@dataclass(frozen=True)
class Site:
    """A place where a run may fault: what is wrong then, and the user's line."""

    message: str
    location: Location


@dataclass
class StepRecord:
    """A launch: the kernel's name, its views, its sizes; ``trail`` is the location of all that it
    computes, as MLIR text, and ``params`` are those it follows."""

    kernel: str
    views: list[View]
    launch: Launch
    trail: str
    params: frozenset[int] = frozenset()


@dataclass
class Lowering:
    """See the module docstring. ``in_prologue`` says which entry ``launch`` appends to."""

    compilation: Compilation
    kernels: dict[tuple[str, Any], str] = field(default_factory=dict)
    main: list[StepRecord] = field(default_factory=list)
    prologue: list[StepRecord] = field(default_factory=list)
    env: dict[ir.Value, View] = field(default_factory=dict)
    buffers: list[Memory] = field(default_factory=list)
    packed: Memory = field(default_factory=lambda: Memory("packed"))
    error: Memory = field(default_factory=lambda: Memory("error"))
    constants: list[ir.Attribute] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    outputs: dict[ir.Value, int] = field(default_factory=dict)
    params_of: dict[ir.Value, frozenset[int]] = field(default_factory=dict)
    in_prologue: bool = False
    following: frozenset[int] = frozenset()
    location: Location = ("<unknown>", 0)
    trail: str = "unknown"
    packs: dict[Any, View] = field(default_factory=dict)
    statics: dict[ir.Value, ir.Value] = field(default_factory=dict)
    lower_op: Callable[[ir.Operation], None] = field(default=lambda op: None)

    @property
    def target(self) -> Any:
        """The target that the compile is for."""
        return self.compilation.target

    @property
    def block(self) -> int:
        """Elements of a task of an elementwise kernel: a GPU has a thread for each."""
        return 1 if self.target.kernels.frame == "gpu" else elementwise.BLOCK

    def at(self, owner: ir.Operation | ir.Value) -> None:
        """What is launched from here on is for this op or value."""
        self.location, self.trail = place_of(owner), trail_of(owner.location)

    # -- values ----------------------------------------------------------------------------

    def view(self, v: ir.Value) -> View:
        """Where a value lies. A literal becomes a constant memory when it is first read, and what
        the prologue computes is planned when it is first asked for."""
        if v not in self.env and v in self.statics:
            self.env[v] = self.view(self.statics[v])
        elif v not in self.env and v in self.params_of:
            op = producer(v)
            assert op is not None
            with self.prologue_of(v):
                self.lower_op(op)
        elif v not in self.env:
            array = constant_of(v)
            op = producer(v)
            assert array is not None and op is not None, f"{v} has no place yet"
            self.constants.append(op.attributes["value"])
            t = from_type(v.type)
            self.env[v] = View.dense(
                Memory("constant", len(self.constants) - 1), t.dtype, t.static_shape
            )
        return self.env[v]

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
        """A dense copy of a view, in memory of its own."""
        target = self.fresh(source.dtype, source.shape)
        self.copy(source, target)
        return target

    def copy(self, source: View, target: View) -> None:
        """Launch a copy between two views of one shape. It moves bits: one kernel for every element
        type of a width."""
        config, launch = copy_family.launch(
            source.dtype.bits, source.shape, source.strides, target.strides, self.block
        )
        self.launch("copy", config, [source.as_bits(), target.as_bits()], launch)

    def static_of(self, v: ir.Value) -> ir.Value | None:
        """The prologue's value for one that depends on params alone, else None."""
        return v if v in self.params_of else self.statics.get(v)

    @contextmanager
    def prologue_of(self, v: ir.Value) -> Generator[None]:
        """Plan launches for the prologue: they run again when a param that ``v`` needs is set, and
        only once if ``v`` is a literal."""
        before = (self.in_prologue, self.following, self.location, self.trail)
        self.in_prologue, self.following = True, self.params_of.get(v, frozenset())
        try:
            yield
        finally:
            self.in_prologue, self.following, self.location, self.trail = before

    def result(self, v: ir.Value, strides_of: Sequence[int] | None = None) -> View:
        """The place for a kernel's result. An output is written where the caller wants it.

        ``strides_of`` is a permutation of the axes: the order in which they lie in memory.
        """
        t = from_type(v.type)
        shape = t.static_shape
        index = self.outputs.pop(v, None) if strides_of is None else None
        if index is not None and not self.in_prologue:
            found = View.dense(Memory("output", index), t.dtype, shape)
        elif strides_of is None:
            found = self.fresh(t.dtype, shape)
        else:
            stored = self.fresh(t.dtype, [shape[a] for a in strides_of])
            back = [strides_of.index(a) for a in range(len(shape))]
            found = stored.transpose(back)
        self.env[v] = found
        return found

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
        self.packed.size += -(-size // ALIGN) * ALIGN
        return memory

    # -- steps -----------------------------------------------------------------------------

    def launch(self, family: str, config: Any, views: Sequence[View], launch: Launch) -> None:
        """Append a launch; one with nothing to do is left out."""
        if launch.range == 0:
            return
        self._check_width(family, views, launch)
        key = (family, config)
        name = self.kernels.setdefault(key, f"{family}_{len(self.kernels)}")
        steps = self.prologue if self.in_prologue else self.main
        if not self.in_prologue:
            for v in views:
                if v.memory.role == "arena":
                    v.memory.touch(len(steps))
        params = self.following if self.in_prologue else frozenset[int]()
        steps.append(StepRecord(name, list(views), launch, self.trail, params))

    def _check_width(self, family: str, views: Sequence[View], launch: Launch) -> None:
        """Refuse a launch for a GPU beyond its integers: sizes have 32 bits, and indices may."""
        kernels = self.target.kernels
        if kernels.frame != "gpu":
            return
        for v in views:
            last = v.start + sum((d - 1) * s for d, s in zip(v.shape, v.strides, strict=True))
            if last >= 1 << (kernels.index_bits - 1):
                raise UnsupportedError(
                    f"{family} kernel: its operand {v.dtype}{list(v.shape)} reaches element "
                    f"{last}, and indices of {kernels.name} have {kernels.index_bits} bits; "
                    "split the tensor, or compile for a target with 64-bit indices (cpu, cuda)",
                    self.location,
                )
        if (most := max(launch.range, *launch.sizes, 0)) >= 1 << 31:
            raise UnsupportedError(
                f"{family} kernel: a range or stride of {most} elements, where GPU kernels take "
                "32-bit sizes; split the tensor, or compile for cpu",
                self.location,
            )

    def site(self, message: str) -> int:
        """The number of a new fault site at the current op."""
        self.sites.append(Site(message, self.location))
        return len(self.sites) - 1

    def plan_arena(self) -> int:
        """Place the buffers that some step touches; the arena's size in bytes."""
        placed = [b for b in self.buffers if b.first >= 0]
        total = plan(placed)
        self.compilation.arena = [ArenaBuffer(b.offset, b.size, b.first, b.last) for b in placed]
        return total
