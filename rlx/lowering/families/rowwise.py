"""Row-wise regions: reductions along the last axis with pointwise ops around them.

Composites in the region (softmax, layer_norm, rms_norm) are expanded here, on graph nodes, so
that one emitter runs them all and their meaning stays with their classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlx.graph import topological
from rlx.kernels import rowwise
from rlx.kernels.program import Step
from rlx.kernels.rowwise import Reduce, RowProgram
from rlx.kernels.strides import row_major
from rlx.lowering.families.base import Selector, literal
from rlx.lowering.families.reduce import REDUCTIONS
from rlx.lowering.lowering import Lowering
from rlx.lowering.region import Region
from rlx.lowering.views import View
from rlx.ops.base import Op, located
from rlx.ops.movement import Expand, Reshape
from rlx.ops.value import Value
from rlx.types import Shape, f32

__all__ = ["SELECTOR"]


class _Refused(Exception):
    """The reason why a region is not row-wise."""


@dataclass
class _Rows:
    """A region as a program over rows: built node by node, or refused."""

    region: Region
    space: Shape = ()
    inputs: list[Value] = field(default_factory=list)
    steps: list[tuple[Step | Reduce, Value, tuple[Value, ...]]] = field(default_factory=list)
    alias: dict[Value, Value] = field(default_factory=dict)
    numbers: dict[Value, Step] = field(default_factory=dict)

    def build(self) -> None:
        nodes, outs = _expanded(self.region)
        reductions = [n for n in nodes if type(n) in REDUCTIONS]
        if not reductions:
            raise _Refused("it reduces nothing")
        self.space = reductions[0].present[0].shape
        if not all(isinstance(d, int) and d > 0 for d in self.space):
            raise _Refused("a dim is empty")
        for n in nodes:
            self.add(n)
        self.out = self.source(outs)
        if not any(v is self.out for _, v, _ in self.steps):
            raise _Refused("its result is not computed")

    def add(self, n: Op) -> None:
        if type(n) in REDUCTIONS:
            self.reduction(n)
        elif isinstance(n, Expand | Reshape):
            self.moved(n)
        elif n.pointwise:
            step = Step(
                n.name, (), tuple(v.dtype for v in n.present), n.out.dtype, tuple(n.attrs.items())
            )
            self.steps.append((step, n.out, tuple(self.operand(v) for v in n.present)))
            self.check(n.out)
        else:
            number = literal(n)
            if number is None:
                raise _Refused(f"{n.short} is no pointwise op or row reduction")
            self.numbers[n.out] = Step.literal(number, n.out.dtype)

    def reduction(self, n: Op) -> None:
        x = n.present[0]
        if n.attrs["axes"] != (len(x.shape) - 1,) or x.shape != self.space:
            raise _Refused(f"{n.short} is not along the rows of the others")
        if x.dtype.kind == "bool":
            raise _Refused("a reduction is of bools")
        accumulate = f32 if x.dtype.is_float and x.dtype.bits == 16 else x.dtype
        step = Reduce(REDUCTIONS[type(n)], 0, accumulate, n.out.dtype)
        self.steps.append((step, n.out, (self.operand(x),)))

    def moved(self, n: Op) -> None:
        """A reshape or expand of something outside is a view; of a column it changes nothing."""
        x = n.present[0]
        source = self.source(x)
        if source in self.region.leaves or source in self.inputs or _outside(x, self.region):
            return
        if source in self.numbers or (
            self.is_column(source.shape) and self.broadcasts(n.out.shape)
        ):
            self.alias[n.out] = source
            return
        raise _Refused(f"{n.short} moves a value that is computed inside")

    def is_column(self, shape: Shape) -> bool:
        lead = self.space[:-1]
        return shape in (lead, (*lead, 1)) or (shape == self.space and self.space[-1] == 1)

    def broadcasts(self, shape: Shape) -> bool:
        return shape == self.space or self.is_column(shape)

    def check(self, v: Value) -> None:
        if not self.broadcasts(v.shape):
            raise _Refused(
                f"a value of shape {list(v.shape)} is no row or column of {list(self.space)}"
            )

    def source(self, v: Value) -> Value:
        while v in self.alias:
            v = self.alias[v]
        return v

    def operand(self, v: Value) -> Value:
        """The value that stands for an operand; what comes from outside becomes an input."""
        v = self.source(v)
        if v in self.numbers or any(v is made for _, made, _ in self.steps):
            return v
        if not _outside(v, self.region):
            raise _Refused("an operand is no value of the region")
        if _broadcast(v.shape, self.space) is None:
            raise _Refused(
                f"an operand {list(v.shape)} does not broadcast to rows of {list(self.space)}"
            )
        if v not in self.inputs:
            self.inputs.append(v)
        return v

    def program(self) -> RowProgram:
        number = {v: i for i, v in enumerate(self.inputs)}
        steps: list[Step | Reduce] = []
        for v, step in self.numbers.items():
            number[v] = len(self.inputs) + len(steps)
            steps.append(step)
        for step, v, args in self.steps:
            at = tuple(number[a] for a in args)
            number[v] = len(self.inputs) + len(steps)
            if isinstance(step, Reduce):
                steps.append(Reduce(step.kind, at[0], step.accumulate, step.dtype))
            else:
                steps.append(Step(step.op, at, step.dtypes, step.dtype, step.attrs))
        return RowProgram(tuple(v.dtype for v in self.inputs), tuple(steps), (number[self.out],))


def _expanded(region: Region) -> tuple[list[Op], Value]:
    """The region's nodes with its composites expanded, and its result among them."""
    now: dict[Value, Value] = {}
    nodes: list[Op] = []

    def visit(node: Op) -> Op:
        return node.with_operands([None if v is None else now.get(v, v) for v in node.operands])

    def take(node: Op) -> tuple[Value, ...]:
        if not node.composite():
            nodes.append(node)
            return node.results
        with located(node.location):
            made = node.expand()
        outs: tuple[Value, ...] = made if isinstance(made, tuple) else (made,)
        inner: dict[Value, Value] = {}
        for n in topological(outs):
            if any(r in done for r in n.results):
                continue
            again = (
                n.with_operands([None if v is None else inner.get(v, v) for v in n.operands])
                if inner
                else n
            )
            inner.update(zip(n.results, take(again), strict=True))
            done.update(n.results)
        return tuple(inner.get(v, v) for v in outs)

    done: set[Value] = set()
    for node in region.nodes:
        moved = visit(node)
        done.update(r for n in nodes for r in n.results)
        results = take(moved)
        now.update(zip(node.results, results, strict=True))
        done.update(results)
    return nodes, now[region.outs[0]]


def _outside(v: Value, region: Region) -> bool:
    """Whether a value is a leaf, or only a reshape or broadcast of one."""
    while v not in region.leaves:
        if v.op is None or not isinstance(v.op, Expand | Reshape):
            return False
        v = v.op.present[0]
    return True


def _broadcast(shape: Shape, to: Shape) -> Shape | None:
    own = (*([1] * (len(to) - len(shape))), *shape)
    fits = len(own) == len(to) and all(d in (1, n) for d, n in zip(own, to, strict=True))
    return own if fits else None


def _rows(region: Region) -> _Rows | str:
    """The region as a program over rows, or why it is none; built once for equal regions."""

    def build() -> _Rows | str:
        rows = _Rows(region)
        try:
            rows.build()
        except _Refused as e:
            return str(e)
        return rows

    return region.body.fact("rows", build)


class Rowwise:
    """Regions whose values are rows, columns or scalars of one row space."""

    def claim(self, region: Region) -> str | None:
        found = _rows(region)
        return found if isinstance(found, str) else None

    def lower(self, region: Region, lowering: Lowering) -> None:
        rows = _rows(region)
        assert isinstance(rows, _Rows), rows
        space = tuple(d for d in rows.space if isinstance(d, int))
        views = [_view(v, region, lowering).expand(space) for v in rows.inputs]
        result = lowering.result(region.op.results[0])
        strides = result.strides
        if result.shape != space:
            strides = (*row_major(space[:-1]), 0)
        config, launch = rowwise.launch(
            rows.program(), space, [v.strides for v in views], [strides]
        )
        lowering.launch("rowwise", config, [*views, result], launch)


def _view(v: Value, region: Region, lowering: Lowering) -> View:
    if v in region.leaves:
        return lowering.view(region.leaves[v])
    assert v.op is not None
    source = _view(v.op.present[0], region, lowering)
    shape = v.type.static_shape
    if isinstance(v.op, Expand):
        return source.expand(shape)
    found = source.reshape(shape) or lowering.copied(source).reshape(shape)
    assert found is not None
    return found


SELECTOR: Selector = Rowwise()
