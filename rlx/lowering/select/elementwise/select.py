"""Pointwise chains: one loop over the result, operands read through their strides."""

from __future__ import annotations

import numpy as np

from rlx._mlir import ir
from rlx.base.dims import same_shape
from rlx.base.frozen import frozen
from rlx.base.guards import prefers
from rlx.codegen.reg import Number
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.kernels.elementwise import emit as elementwise
from rlx.kernels.elementwise.gathered_operand import Take
from rlx.lowering.region import Region
from rlx.lowering.rules import constant_of, splat_of
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.index.gather import views_of
from rlx.lowering.select.selector import ProgramBuilder, Selector, spread_source
from rlx.lowering.select.views import Memory, View
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.constant import Iota, literal
from rlx.ops.movement.movement import Expand, Reshape
from rlx.types import Dim, Shape

__all__ = ["SELECTOR"]

_NOWHERE = Memory("arena")

FACTORS = (2, 4, 8)
"""Those by which an axis grows where vectors hold whole elements of it."""


class Elementwise:
    """Regions of pointwise ops of one shape; what broadcasts comes from outside the region."""

    def claim(self, region: Region) -> str | None:
        shape = region.outs[0].shape
        work = [n for n in region.nodes if n.pointwise]
        if not work:
            return "it holds no pointwise op"
        outs = {*region.outs}
        if work[-1].out not in outs or not outs <= {n.out for n in work}:
            return "its result is not pointwise"
        reasons = (_refusal(n, shape, region) for n in region.nodes)
        return next((reason for reason in reasons if reason is not None), None)

    def lower(self, region: Region, lowering: Lowering) -> None:
        builder = ProgramBuilder(numbers=_numbers(region, lowering))
        for n in region.nodes:
            if n.pointwise:
                builder.add(n)
        program = builder.build(*region.outs)
        shape = region.outs[0].type.static_shape
        counters = [_counter(v) for v in builder.inputs]
        taken = _taken(builder, region, lowering)
        program = program.behind([t.index.dtype for t in taken.values()])
        apart = {view.memory for t in taken.values() for view in (t.index, t.table)}
        inputs: list[View] = [t.index for t in taken.values()]
        read: list[tuple[ir.Value, View]] = []
        for v, c in zip(builder.inputs, counters, strict=True):
            if v in taken:
                inputs.append(taken[v].table)
                continue
            inputs.append((self._input(v, region, lowering) if c is None else c).expand(shape))
            if c is None and inputs[-1].memory not in apart:
                read.append((region.leaves[spread_source(v)], inputs[-1]))
        results: list[View] = []
        for v in region.op.results:
            results.append(lowering.result_over(v, read))
            read = [(x, view) for x, view in read if view.memory is not results[-1].memory]
        written = {r.memory for r in results}
        views = [v for v in inputs if v.memory is not _NOWHERE]
        config, launch = elementwise.launch(
            program,
            shape,
            [v.strides for v in inputs],
            [r.strides for r in results],
            lowering.block,
            in_place=any(v.memory in written for v in views),
            counted=[n for n, c in enumerate(counters, len(taken)) if c is not None],
            taken=[(t.take, t.sizes) for t in taken.values()],
        )
        lowering.launch("elementwise", config, [*views, *results], launch, region.flops)

    def _input(self, v: Value, region: Region, lowering: Lowering) -> View:
        return lowering.view(region.leaves[spread_source(v)])


def _refusal(n: Op, shape: Shape, region: Region) -> str | None:
    """Why a node does not belong in a region of a shape; None if it does."""
    if n.pointwise:
        shapes = [v.shape for v in (n.out, *n.present)]
        alike = prefers(
            lambda: all(s == shape for s in shapes),
            otherwise=all(same_shape(s, shape) for s in shapes),
        )
        return None if alike else f"{n.short} is on another shape than the result"
    if _counter(n.out) is not None:
        return None
    if isinstance(n, Expand):
        source = spread_source(n.out)
        if source in region.leaves or (source.op is not None and literal(source.op) is not None):
            return None
        return f"{n.short} broadcasts a value that is computed inside"
    if isinstance(n, Gather):
        if n.out.shape != shape or not {n.table, n.indices} <= region.leaves.keys():
            return f"{n.short} is of another shape, or of a value that is computed inside"
        if n.mode == "fault" or n.out.dtype.is_complex or not n.table.shape[n.axis]:
            return f"{n.short} may fault, is of complex numbers, or of an empty axis"
        return None
    return None if literal(n) is not None else f"{n.short} is not pointwise"


@frozen
class _Taken:
    """An input that is read by index: the indices, the table, and what a kernel is told of them."""

    take: Take
    index: View
    table: View
    sizes: list[int]


def _taken(builder: ProgramBuilder, region: Region, lowering: Lowering) -> dict[Value, _Taken]:
    """Those of a program whose inputs come behind their indices."""
    nodes = {v: v.op for v in builder.inputs if isinstance(v.op, Gather)}
    number = {v: n for n, v in enumerate(builder.inputs)}
    out: dict[Value, _Taken] = {}
    for n, (v, node) in enumerate(nodes.items()):
        table = lowering.view(region.leaves[node.table])
        index, at = views_of(node, lowering.view(region.leaves[node.indices]), table)
        step = table.strides[node.axis]
        phases = _phases(region.leaves[node.indices], table.shape[node.axis])
        take = Take(len(nodes) + number[v], n, node.mode, step == 1, phases)
        out[v] = _Taken(take, index, at, take.sizes(table.shape[node.axis], step, 0))
    return out


def _phases(v: ir.Value, length: Dim) -> tuple[int, ...]:
    """What constant indices along an axis that grows by a whole factor repeat (``Take.phases``), or
    nothing."""
    indices = constant_of(v)
    if indices is None or indices.ndim != 1 or not isinstance(length, int):
        return ()
    s, rest = divmod(len(indices), length)
    if rest or s not in FACTORS:
        return ()
    o, middle = np.arange(len(indices)), length // 2 * s
    phases = (indices - o // s)[middle : middle + s]
    expected = np.clip(o // s + phases[o % s], 0, length - 1)
    near = np.ptp(phases) <= max(FACTORS)
    return tuple(phases.tolist()) if near and (indices == expected).all() else ()


def _numbers(region: Region, lowering: Lowering) -> dict[Value, Number]:
    """The operands that repeat a number and stand outside the region, as they do beside an op that
    nothing fuses with: code has the number, where a memory of it would be read."""
    if not lowering.target.kernels.serial:
        return {}
    found = {v: splat_of(leaf) for v, leaf in region.leaves.items()}
    return {v: x.item() for v, x in found.items() if x is not None}


def _counter(v: Value) -> View | None:
    """The strides by which an iota of integers, also reshaped and broadcast, counts: its elements
    are the offsets in a memory that there is not. None for any other value."""
    match v.op:
        case Iota(dtype=dt, axis=axis) if dt.is_int:
            shape = v.type.static_shape
            steps = tuple(int(d == axis) for d in range(len(shape)))
            return View(_NOWHERE, dt, shape, steps)
        case Reshape(x=x):
            inner = _counter(x)
            return None if inner is None else inner.reshape(v.type.static_shape)
        case Expand(x=x):
            inner = _counter(x)
            return None if inner is None else inner.expand(v.type.static_shape)
        case _:
            return None


SELECTOR: Selector = Elementwise()
