"""mir-to-lir: kernels chosen, values placed in memory, launches scheduled.

Movement becomes views; every other op or region becomes launches of the first family that claims
it. What depends on params alone was hoisted and is planned for the prologue as main asks for it,
so a weight that is only packed is never copied in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from rlx._mlir import ir
from rlx.base.frozen import frozen
from rlx.dialects.convert import from_type
from rlx.errors import UnsupportedError
from rlx.ir.op import Op
from rlx.lowering.compilation import Compilation
from rlx.lowering.functions import argument_marks, functions
from rlx.lowering.pass_base import Pass
from rlx.lowering.region import producer, reads
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.collective import is_step, lower_collective
from rlx.lowering.select.elementwise.copy import static_dims
from rlx.lowering.select.overwrite import Lives, Overwrites, write
from rlx.lowering.select.schedule import schedule_of
from rlx.lowering.select.table import SELECTORS, not_native, select
from rlx.lowering.select.views import Memory, View
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import Expand, Reshape, Transpose
from rlx.ops.movement.slicing import Slice
from rlx.schedule.plan import Schedule

__all__ = ["MirToLir"]


@frozen
class _End:
    """A returned value, the output where it is wanted, and whether an input was donated for it."""

    value: ir.Value
    place: View
    donated: bool


class MirToLir(Pass):
    """Choose kernels, place every value and write the schedule."""

    name = "mir-to-lir"
    verifies = True

    def run(self, module: ir.Module, compilation: Compilation) -> ir.Module:
        """The schedule as a module of lir, for those who look at it."""
        from rlx.lowering.passes.lir_text import module_of  # a compile writes no text

        return module_of(self.schedule(module, compilation, for_text=True), module.context)

    def schedule(
        self, module: ir.Module, compilation: Compilation, *, for_text: bool = False
    ) -> Schedule:
        """The schedule of a module with regions; ``for_text`` says that it is to be written.
        UnsupportedError for a target that takes whole graphs, which has none."""
        target = compilation.target
        if target.system is not None:
            raise UnsupportedError(
                f"{target.name} takes whole graphs, and no schedule of kernels is made for it;"
                f" rlx-opt --emit has {', '.join(target.stages)}"
            )
        lowering = Lowering(compilation, for_text)
        lives: dict[ir.Operation, Lives] = {}
        lowering.lower_op = lambda op: _lower(op, lowering, lives)
        lowering.view_ops = frozenset(_VIEWS)
        lowering.functions = funcs = functions(module)
        main = funcs["main"]
        ends = _entry(main, funcs.get("prologue"), lowering)
        for view in main.regions[0].blocks[0].operations:
            if view.operation.name != "func.return":
                lowering.lower_op(view.operation)
        _finish(ends, lowering)
        lowering.end()
        return schedule_of(lowering, main)


def _entry(main: ir.Operation, prologue: ir.Operation | None, lowering: Lowering) -> list[_End]:
    """Give the arguments their places; a donated input lies in the memory of the output that is
    written over it."""
    block = main.regions[0].blocks[0]
    marks = argument_marks(main)
    returned = (
        list(prologue.regions[0].blocks[0].operations)[-1].operation.operands if prologue else []
    )
    over: dict[int, ir.Value] = {}
    counts = {"input": 0, "param": 0}
    donated = dict(lowering.compilation.options.donate)
    for arg, mark in zip(block.arguments, marks, strict=False):
        named = ir.DictAttr(mark)
        if "rlx.packed" in named:
            lowering.statics[arg] = returned[ir.IntegerAttr(named["rlx.packed"]).value]
            continue
        role = "param" if "rlx.param" in named else "input"
        t = from_type(arg.type)
        memory = Memory(role, counts[role])
        if role == "input" and counts[role] in donated:
            memory = Memory("output", donated[counts[role]])
            over[memory.index] = arg
        lowering.env[arg] = View.dense(memory, t.dtype, t.static_shape)
        if role == "param":
            lowering.params_of[arg] = frozenset([counts[role]])
        counts[role] += 1
    if prologue is not None:
        _statics(prologue, lowering)
    return _ends(block, over, lowering)


def _ends(block: ir.Block, over: dict[int, ir.Value], lowering: Lowering) -> list[_End]:
    """What main returns, and the places where kernels may write it; ``over`` are the donated inputs
    by the number of their output."""
    ends: list[_End] = []
    overwrites = Overwrites(block, lowering) if over else None
    for i, v in enumerate(list(block.operations)[-1].operation.operands):
        old = over.get(i)
        place = _output(v, i) if old is None else lowering.env[old]
        ends.append(_End(v, place, old is not None))
        if old is None and producer(v) is not None:
            lowering.want(v, place)
        elif old is not None and overwrites is not None:
            for new in overwrites.over(old, v):
                lowering.want(new, place)
    return ends


def _output(v: ir.Value, index: int) -> View:
    t = from_type(v.type)
    return View.dense(Memory("output", index), t.dtype, t.static_shape)


def _statics(prologue: ir.Operation, lowering: Lowering) -> None:
    """Which params each of the prologue's values depends on."""
    block = prologue.regions[0].blocks[0]
    for i, arg in enumerate(block.arguments):
        t = from_type(arg.type)
        lowering.env[arg] = View.dense(Memory("param", i), t.dtype, t.static_shape)
        lowering.params_of[arg] = frozenset([i])
    for view in block.operations:
        op = view.operation
        needs = frozenset[int]().union(*(lowering.params_of.get(v, frozenset()) for v in reads(op)))
        if op.name != Constant.name:
            for r in op.results:
                lowering.params_of[r] = needs


def _finish(ends: Sequence[_End], lowering: Lowering) -> None:
    """Copy what no kernel wrote to its output: an input, a view, a second use of one value. What
    is donated comes last: it may still be read by the others, and by one another."""
    for n, end in enumerate(ends):
        lowering.at(producer(end.value) or end.value)
        lowering.ops = f"output {n}"
        if not end.donated:
            write([end.value], [end.place], lowering)
    kept = [end for end in ends if end.donated]
    lowering.ops = "donated outputs"
    write([end.value for end in kept], [end.place for end in kept], lowering)


def _lower(op: ir.Operation, lowering: Lowering, lives: dict[ir.Operation, Lives]) -> None:
    """Lower an op; ``lives`` has those of the values of a function, once it was asked for them."""
    if op.name == Constant.name:
        return
    lowering.at(op)
    if op.name == "func.call":
        # Imported here: few graphs have control flow.
        from rlx.lowering.passes.structured_control import lower_call

        lower_call(op, lowering)
        return
    region = lowering.compilation.regions.of(op)
    lowering.ops = region.label
    if is_step(op, lowering.compilation):
        lower_collective(region, lowering)
        return
    options = lowering.compilation.options
    if op.name in _VIEWS and (options.native(op.name) or op.name == Reshape.name):
        view = _wanted_copy(op, lowering) or _VIEWS[op.name](
            region.nodes[0], op.operands[0], lowering
        )
        if lowering.for_text:
            view = replace(view, trail=(*view.trail, lowering.trail))
        lowering.env[op.results[0]] = view
        return
    families = lowering.target.families if options.native(op.name) else ()
    family, reasons = select(region, families)
    if family == "common" and op.name in options.force_native:
        raise not_native(op.name, lowering.target.name, reasons, lowering.location)
    if family is None:
        listed = "; ".join(f"{name}: {why}" for name, why in reasons.items())
        raise UnsupportedError(
            f"{region.label} has no kernel on {lowering.target.name} ({listed})", lowering.location
        )
    report = lowering.compilation.dispatch
    (report.common if family == "common" else report.native)[f"{family}: {region.label}"] += 1
    lowering.compilation.hit(MirToLir.name, f"{family} kernel")
    if lowering.target.kernels.rebinds:
        lowering.dies = partial(_dies, op, lowering, lives)
    SELECTORS[family].lower(region, lowering)


def _dies(
    op: ir.Operation, lowering: Lowering, lives: dict[ir.Operation, Lives], v: ir.Value, view: View
) -> bool:
    function = op.parent.operation
    if function not in lives:
        lives[function] = Lives(function.regions[0].blocks[0], lowering)
    return lives[function].over(op, v, view)


def _wanted_copy(op: ir.Operation, lowering: Lowering) -> View | None:
    """The place where the result of a reshape is wanted, with the operand copied there, if it has
    to be copied at all: else that would be done twice."""
    (result,), source = op.results, op.operands[0]
    wanted = lowering.destinations.get(result)
    known = lowering.static_of(source) is not None or lowering.in_prologue
    if op.name != Reshape.name or wanted is None or known:
        return None
    found = lowering.view(source)
    place = wanted.reshape(found.shape)
    if place is None or found.reshape(wanted.shape) is not None:
        return None
    lowering.copy(found, place)
    return lowering.destinations.pop(result)


def _reshape(node: Op, source: ir.Value, lowering: Lowering) -> View:
    shape = node.out.type.static_shape
    found = lowering.view(source).reshape(shape)
    return found if found is not None else View.reshape(lowering.dense(source), shape) or _never()


def _never() -> View:
    raise AssertionError("a dense view takes any shape")


def _slice(node: Op, source: ir.Value, lowering: Lowering) -> View:
    assert isinstance(node, Slice)
    return lowering.view(source).slice(
        static_dims(node.starts), node.out.type.static_shape, node.steps
    )


_VIEWS: dict[str, Callable[[Op, ir.Value, Lowering], View]] = {
    Reshape.name: _reshape,
    Transpose.name: lambda n, v, lowering: lowering.view(v).transpose(n.attrs["perm"]),
    Expand.name: lambda n, v, lowering: lowering.view(v).expand(n.out.type.static_shape),
    Slice.name: _slice,
}
"""Ops that move nothing: they change a view."""
