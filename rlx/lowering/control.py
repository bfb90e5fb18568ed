"""Control flow in mir-to-lir: calls of declared control functions become structured steps.

The bodies are lowered in place, on the views of what the call is given. Results are memory of the
call's: both bodies of a cond write there, and a loop keeps what it carries there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx._mlir import ir
from rlx.dialects.control import control_of
from rlx.errors import IRError, UnsupportedError
from rlx.lowering.lowering import Branch, Lowering, Repeat, Step
from rlx.lowering.views import View
from rlx.ops.control import Cond, Control, WhileLoop

__all__ = ["lower_call", "lowers"]


def lowers(cls: type[Control]) -> bool:
    """Whether a control op is compiled; the others are interpreted alone."""
    return cls in _LOWER


def lower_call(op: ir.Operation, lowering: Lowering) -> None:
    """Lower a ``func.call`` of a declared control function."""
    node, bodies = control_of(op, lowering.functions)
    lowering.compilation.dispatch.native[f"control: {node.short}"] += 1
    call = _Call(op, bodies, lowering)
    if not lowers(type(node)):
        raise UnsupportedError(
            f"{node.short} is not compiled yet; interpret runs it", node.location
        )
    _LOWER[type(node)](call, node)


class _Call:
    """A call in the making: its operands, its bodies by name, and the lowering of a body."""

    def __init__(
        self, op: ir.Operation, bodies: dict[str, ir.Operation], lowering: Lowering
    ) -> None:
        self.op, self.bodies, self.lowering = op, bodies, lowering
        self.operands: list[ir.Value | View] = list(op.operands)
        self.results = [lowering.result(r) for r in op.results]

    def run(
        self, key: str, operands: Sequence[ir.Value | View], places: Sequence[View] = ()
    ) -> list[ir.Value]:
        """Lower a body on operands, which are outer values or places; returns what it returns,
        some of it written to ``places`` at once."""
        body = self.bodies[key]
        if body in self.lowering.active:
            name = ir.StringAttr(body.attributes["sym_name"]).value
            raise IRError(f"@{name} runs itself; a loop is a while_loop", self.lowering.location)
        block = body.regions[0].blocks[0]
        for arg, given in zip(block.arguments, operands, strict=True):
            self._bind(arg, given)
        *work, end = [view.operation for view in block.operations]
        returned = list(end.operands)
        for v, place in zip(returned, places, strict=False):
            self.lowering.want(v, place)
        place = self.lowering.location
        self.lowering.active.append(body)
        for op in work:
            self.lowering.lower_op(op)
        self.lowering.active.pop()
        self.lowering.location = place
        return returned

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

    def branch(key: str) -> list[Step]:
        with lowering.inside() as steps:
            values = call.run(key, call.operands[1:], call.results)
            _write(values, call.results, lowering)
        return steps

    lowering.append(Branch(flag, branch("then"), branch("otherwise"), node.location))


def _while_loop(call: _Call, node: Control) -> None:
    assert isinstance(node, WhileLoop)
    lowering, carried = call.lowering, call.results
    _write(list(call.op.operands)[: node.carries], carried, lowering)
    operands = [*carried, *call.operands[node.carries :]]
    site = lowering.site(node.fault) if node.limit >= 0 else 0
    with lowering.repeated():
        with lowering.inside() as test:
            flag = lowering.view(call.run("test", operands)[0])
            lowering.touch(flag)
        with lowering.inside() as body:
            _write(call.run("body", operands), carried, lowering)
    lowering.append(Repeat(test, flag, body, node.limit, site, node.location))


_LOWER: dict[type[Control], Callable[[_Call, Control], None]] = {
    Cond: _cond,
    WhileLoop: _while_loop,
}


def _write(values: Sequence[ir.Value], places: Sequence[View], lowering: Lowering) -> None:
    """Copy values to where they are wanted, unless they lie there already.

    A value may lie where another one is wanted: such are set aside before the first is written.
    """
    found = [lowering.view(v) for v in values]
    taken = {id(p.memory) for p in places}
    for i, (view, place) in enumerate(zip(found, places, strict=True)):
        if view != place and id(view.memory) in taken:
            found[i] = lowering.copied(view)
    for view, place in zip(found, places, strict=True):
        if view != place:
            lowering.copy(view, place)
