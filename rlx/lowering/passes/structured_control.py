"""Control flow in mir-to-lir: calls of declared control functions become structured steps.

The bodies are lowered in place, on the views of what the call is given. Results are memory of the
call's: both bodies of a cond write there, and a loop keeps what it carries there. A kernel writes
there at once if nothing reads the old value any more; else its result is copied at the end of the
round. What a scan reads and stacks are views that move with the round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx._mlir import ir
from rlx.base.dims import is_known
from rlx.dialects.control import control_of
from rlx.errors import IRError
from rlx.kernels.loop import emit as loop
from rlx.lowering.report import MissedFusion
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.loop_kernels import NoLoop, TooLarge, loop_program
from rlx.lowering.select.overwrite import Overwrites, write
from rlx.lowering.select.views import Rounds, View
from rlx.ops.control.checkpoint import Barrier
from rlx.ops.control.control import Cond, Control, Scan, WhileLoop
from rlx.schedule.steps import For, If, Step, While
from rlx.types import i64

__all__ = ["lower_call"]


def lower_call(op: ir.Operation, lowering: Lowering) -> None:
    """Lower a ``func.call`` of a declared control function."""
    node, bodies = control_of(op, lowering.functions)
    lowering.ops = node.short
    if isinstance(node, Barrier):
        _barrier(op, lowering)
        return
    if _one_kernel(op, node, bodies, lowering):
        lowering.compilation.dispatch.native[f"loop: {node.short}"] += 1
        return
    lowering.compilation.dispatch.native[f"control: {node.short}"] += 1
    _LOWER[type(node)](_Call(op, bodies, lowering), node)


def _barrier(op: ir.Operation, lowering: Lowering) -> None:
    """Nothing moves: kernels run in the order of the ops, and no rewrite goes across a call."""
    for result, v in zip(op.results, op.operands, strict=True):
        static = lowering.static_of(v)
        if static is not None:  # a weight stays one
            lowering.statics[result] = static
        else:
            lowering.env[result] = lowering.view(v)


def _one_kernel(
    op: ir.Operation, node: Control, bodies: dict[str, ir.Operation], lowering: Lowering
) -> bool:
    """Lower a loop to one kernel if the family ``loop`` has it; says whether that was done."""
    options = lowering.compilation.options
    if not options.native(node.name) or "loop" not in lowering.target.families:
        return False
    regions = lowering.compilation.regions.of
    found = loop_program(op, node, bodies, lowering.functions, regions)
    if isinstance(found, NoLoop):
        if not isinstance(found, TooLarge):
            miss = MissedFusion("loop", node.short, lowering.location, str(found))
            lowering.compilation.fusion.missed.append(miss)
        return False
    views = [lowering.view(v) for v in found.operands]
    taken = len(found.config.inputs)
    if not all(v.is_dense for v in views[taken:]):
        return False  # what is scanned may be large: it is not copied
    views[:taken] = [lowering.dense(v) for v in found.operands[:taken]]
    results = [lowering.result(r) for r in op.results]
    sites = [lowering.site(message) for message in found.sites]
    asks = sites or loop.runs_long(found.config.block)
    error = [View.dense(lowering.error, i64, (2,))] if asks else []
    launch = loop.launch(sites, found.rounds)
    lowering.launch("loop", found.config, [*views, *results, *error], launch)
    return True


class _Call:
    """A call in the making: its operands, its bodies by name, and the lowering of a body."""

    def __init__(
        self, op: ir.Operation, bodies: dict[str, ir.Operation], lowering: Lowering
    ) -> None:
        self.op, self.bodies, self.lowering = op, bodies, lowering
        self.operands: list[ir.Value | View] = list(op.operands)
        self.results = [lowering.result(r) for r in op.results]

    def returned(self, key: str) -> list[ir.Value]:
        """What a body returns."""
        return list(list(self.bodies[key].regions[0].blocks[0].operations)[-1].operation.operands)

    def run(
        self,
        key: str,
        operands: Sequence[ir.Value | View],
        wanted: Sequence[tuple[ir.Value, View]] = (),
    ) -> list[ir.Value]:
        """Lower a body on operands, which are outer values or places; returns what it returns.
        Values that are ``wanted`` at a place are written there at once."""
        body = self.bodies[key]
        if body in self.lowering.active:
            name = ir.StringAttr(body.attributes["sym_name"]).value
            raise IRError(f"@{name} runs itself; a loop is a while_loop", self.lowering.location)
        block = body.regions[0].blocks[0]
        for arg, given in zip(block.arguments, operands, strict=True):
            self._bind(arg, given)
        for v, at in wanted:
            self.lowering.want(v, at)
        place = self.lowering.location, self.lowering.trail, self.lowering.ops
        self.lowering.active.append(body)
        for view in list(block.operations)[:-1]:
            self.lowering.lower_op(view.operation)
        self.lowering.active.pop()
        for v, _ in wanted:
            self.lowering.want_no_more(v)
        self.lowering.location, self.lowering.trail, self.lowering.ops = place
        return self.returned(key)

    def in_place(
        self, key: str, carried: Sequence[View], after: int = 0
    ) -> list[tuple[ir.Value, View]]:
        """The values that a round may write over a carried one at once, and where it lies: what the
        body takes behind ``after`` arguments."""
        block = self.bodies[key].regions[0].blocks[0]
        overwrites = Overwrites(block, self.lowering)
        carries = zip(block.arguments[after:], self.returned(key), carried, strict=False)
        return [(v, place) for old, new, place in carries for v in overwrites.over(old, new)]

    def _bind(self, arg: ir.Value, given: ir.Value | View) -> None:
        lowering = self.lowering
        lowering.env.pop(arg, None)
        lowering.statics.pop(arg, None)
        static = None if isinstance(given, View) else lowering.static_of(given)
        if static is not None:  # so that a weight is packed once, and not in every round
            lowering.statics[arg] = static
        else:
            lowering.env[arg] = given if isinstance(given, View) else lowering.view(given)


def _cond(call: _Call, node: Control) -> None:
    lowering = call.lowering
    flag = lowering.view(call.op.operands[0])
    lowering.touch(flag)

    def branch(key: str) -> tuple[Step[View], ...]:
        with lowering.inside() as steps:
            wanted = list(zip(call.returned(key), call.results, strict=True))
            values = call.run(key, call.operands[1:], wanted)
            write(values, call.results, lowering)
        return tuple(steps)

    lowering.append(If(flag, branch("then"), branch("otherwise"), lowering.origin))


def _while_loop(call: _Call, node: Control) -> None:
    assert isinstance(node, WhileLoop)
    lowering, carried = call.lowering, call.results
    write(list(call.op.operands)[: node.carries], carried, lowering)
    operands = [*carried, *call.operands[node.carries :]]
    site = lowering.site(node.fault) if node.limit >= 0 else 0
    with lowering.repeated():
        with lowering.inside() as test:
            flag = lowering.view(call.run("test", operands)[0])
            lowering.touch(flag)
        with lowering.inside() as body:
            write(call.run("body", operands, call.in_place("body", carried)), carried, lowering)
    origin = lowering.origin
    lowering.append(While(tuple(test), flag, tuple(body), node.limit, site, origin))


def _scan(call: _Call, node: Control) -> None:
    assert isinstance(node, Scan) and is_known(node.rounds)
    lowering, at = call.lowering, node.carries
    carried, stacks = call.results[:at], call.results[at:]
    inner = call.bodies["body"].regions[0].blocks[0].arguments
    end = len(call.operands) - node.scanned
    write(list(call.op.operands)[:at], carried, lowering)
    if node.rounds == 0:
        return
    scanned = [lowering.view(v) for v in list(call.op.operands)[end:]]
    counter = lowering.fresh(i64, ())
    counts = len(list(inner[0].uses)) > 0
    rounds = Rounds(node.rounds, lowering.depth)
    with lowering.repeated():
        if counts:
            lowering.touch(counter)
        elements = [v.element(rounds) for v in scanned]
        places = [v.element(rounds) for v in stacks]
        lowering.depth += 1
        with lowering.inside() as body:
            values = call.run(
                "body",
                [counter, *carried, *call.operands[at:end], *elements],
                [
                    *call.in_place("body", carried, 1),
                    *zip(call.returned("body")[at:], places, strict=True),
                ],
            )
            # The stacks first: what is carried may be among them.
            write(values[at:], places, lowering)
            write(values[:at], carried, lowering)
        lowering.depth -= 1
    counted = counter if counts else None
    lowering.append(For(node.rounds, tuple(body), counted, node.reverse, lowering.origin))


_LOWER: dict[type[Control], Callable[[_Call, Control], None]] = {
    Cond: _cond,
    WhileLoop: _while_loop,
    Scan: _scan,
}
