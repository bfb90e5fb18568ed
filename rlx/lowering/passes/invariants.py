"""Loop-invariant code motion: what depends on a loop's captures alone is computed before it.

A loop is a call, and what its bodies read from around it is among the operands. What moves out of a
body becomes a further operand: a weight transposed in every round is then a weight transposed once,
which the prologue packs. Nothing leaves the branch of a cond, which may not run; a loop may run no
round either, so only ops that raise no fault move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from rlx._mlir import ir
from rlx.base.dims import is_known
from rlx.dialects.bridge import is_mir
from rlx.dialects.control import KEY, control_of
from rlx.dialects.convert import from_type
from rlx.ir.op import op_class
from rlx.lowering.region import producer, users
from rlx.lowering.select.storage_types import is_format
from rlx.ops.control.control import Control, Scan, WhileLoop
from rlx.ops.matmul.contraction import DotGeneral, MatMul
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import Expand, Reshape, Transpose
from rlx.ops.movement.slicing import Concat, Slice
from rlx.ops.reduction.reduce import Reduce

__all__ = ["move_invariants"]

Functions = Mapping[str, ir.Operation]

_FAULTLESS = (Reshape, Transpose, Slice, Concat, Reduce, MatMul, DotGeneral)
"""Ops beside the pointwise ones that never end a run, whatever their operands are."""


def move_invariants(functions: Functions, hit: Callable[[str], None]) -> None:
    """Move what is invariant out of every loop that @main runs, the innermost ones first; ``hit``
    is told the name of each op that moved. A function that is named twice stays as it is."""
    if any(KEY in f.attributes for f in functions.values()):
        named = Counter(name for f in functions.values() for name in _named(f))
        _visit(functions["main"], functions, named, hit)


def _named(f: ir.Operation) -> Iterator[str]:
    """The functions that one names: its bodies, or those that it calls."""
    for key in f.attributes:
        a = f.attributes[key]
        if isinstance(a, ir.FlatSymbolRefAttr):
            yield a.value
    for block in f.regions[0].blocks:
        for view in block.operations:
            if view.operation.name == "func.call":
                yield ir.FlatSymbolRefAttr(view.operation.attributes["callee"]).value


def _visit(
    f: ir.Operation, functions: Functions, named: Counter[str], hit: Callable[[str], None]
) -> None:
    for view in list(f.regions[0].blocks[0].operations):
        call = view.operation
        if call.name != "func.call":
            continue
        node, bodies = control_of(call, functions)
        own = [ir.FlatSymbolRefAttr(call.attributes["callee"]).value]
        own += [ir.StringAttr(body.attributes["sym_name"]).value for body in bodies.values()]
        if any(named[name] > 1 for name in own):
            continue
        for body in bodies.values():
            _visit(body, functions, named, hit)
        if isinstance(node, Scan | WhileLoop):
            for key in bodies:
                call = _Loop(call, node, bodies, functions).without_invariants(key, hit)


class _Loop:
    """A call of a loop. Its declaration and its bodies are its own."""

    def __init__(
        self, call: ir.Operation, node: Control, bodies: Functions, functions: Functions
    ) -> None:
        assert isinstance(node, Scan | WhileLoop)
        self.call, self.bodies = call, bodies
        self.declared = functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value]
        self.scanned = node.scanned if isinstance(node, Scan) else 0
        self.first = 1 if isinstance(node, Scan) else 0  # a scan's body takes the round before them
        self.carries = node.carries

    def without_invariants(self, key: str, hit: Callable[[str], None]) -> ir.Operation:
        """The call after what is invariant in one of its bodies has left it."""
        block = self.bodies[key].regions[0].blocks[0]
        end = len(self.call.operands) - self.scanned
        fixed = range(self.carries, end)
        known = {block.arguments[self.first + i]: self.call.operands[i] for i in fixed}
        moved = _moved(block, set(known))
        inside = {r for op in moved for r in op.results}
        live = [r for op in moved for r in op.results if any(_stays(u, inside) for u in users(r))]
        if not live:
            return self.call
        arguments = self._extend(live, end)[key]
        known.update(zip(arguments, live, strict=True))  # of which broadcasts that move are made
        for op in moved:
            for r in op.results:
                for u in users(r):
                    if r in live and _stays(u, inside):
                        replace_operand(u, r, arguments[live.index(r)])
        for op in moved:
            for v in op.operands:
                _bring(v, self.call, known)
            op.move_before(self.call)
            for i, v in enumerate(op.operands):
                op.operands[i] = known.get(v, v)
            hit(op.name)
        _sweep(block)
        return self._called(live, end)

    def _extend(self, live: list[ir.Value], end: int) -> dict[str, list[ir.Value]]:
        """Give the declaration and the bodies an argument for every value, behind the fixed ones;
        those of each body."""
        more = [v.type for v in live]
        found: dict[str, list[ir.Value]] = {}
        _retyped(self.declared, end, more)
        for key, body in self.bodies.items():
            block, at = body.regions[0].blocks[0], self.first + end
            made = [
                block.add_argument(t, v.owner.location) for t, v in zip(more, live, strict=True)
            ]
            for _ in range(self.scanned):  # the elements come last
                old = block.arguments[at]
                new = block.add_argument(old.type, body.location)
                old.replace_all_uses_with(new)
                block.erase_argument(at)
            found[key] = [block.arguments[at + i] for i in range(len(made))]
            _retyped(body, at, more)
        return found

    def _called(self, live: list[ir.Value], end: int) -> ir.Operation:
        """The call with the values among its operands, in the place of the one before."""
        old = self.call
        operands = list(old.operands)
        made = ir.Operation.create(
            "func.call",
            [r.type for r in old.results],
            [*operands[:end], *live, *operands[end:]],
            {key: old.attributes[key] for key in old.attributes},
            loc=old.location,
            ip=ir.InsertionPoint(old),
        )
        for a, b in zip(old.results, made.results, strict=True):
            a.replace_all_uses_with(b)
        old.erase()
        return made


def _moved(block: ir.Block, known: set[ir.Value]) -> list[ir.Operation]:
    """The ops of a block that leave it, in order: those that depend on ``known`` values alone, and
    on constants. ``known`` grows by what they give.

    What is small stays, for a loop over small values is one kernel, and so do broadcasts and casts
    that are how a product reads memory, and what is larger than all that it is made of."""
    # Imported here: every compile loads this module, and few graphs have loops.
    from rlx.lowering.select.loop_kernels import ELEMENTS

    moved: list[ir.Operation] = []
    neutral: set[ir.Value] = set()
    light: dict[ir.Value, int] = {}
    for view in block.operations:
        op = view.operation
        operands = list(op.operands)
        if op.name == Constant.name:
            neutral.update(op.results)
            continue
        if not operands or not all(v in known or v in neutral or v in light for v in operands):
            continue
        if all(v in neutral for v in operands) or not _faultless(op):
            continue
        size = sum(light.get(v, _size(v)) for v in operands if v not in neutral)
        if op.name == Expand.name or is_format(op) or _size(op.results[0]) <= ELEMENTS:
            light[op.results[0]] = size
        elif _size(op.results[0]) <= size:
            moved.append(op)
            known.update(op.results)
    return moved


def _faultless(op: ir.Operation) -> bool:
    if not is_mir(op) or not op.name.startswith("mir."):
        return False
    cls = op_class(op.name) if op.name != "mir.fused" else None
    return cls is not None and (cls.pointwise or cls is Expand or issubclass(cls, _FAULTLESS))


def _size(v: ir.Value) -> int:
    size = from_type(v.type).size
    assert is_known(size)
    return size


def _stays(user: ir.Operation, inside: set[ir.Value]) -> bool:
    return not (len(user.results) and user.results[0] in inside)


def _bring(v: ir.Value, call: ir.Operation, known: dict[ir.Value, ir.Value]) -> None:
    """Copy before the call what a value is made of in the body: constants, broadcasts, casts."""
    source = producer(v)
    if v in known or source is None or source.parent == call.parent:
        return
    for x in source.operands:
        _bring(x, call, known)
    twin = source.clone(ir.InsertionPoint(call)).operation
    for i, x in enumerate(twin.operands):
        twin.operands[i] = known.get(x, x)
    known.update(zip(source.results, twin.results, strict=True))


def _sweep(block: ir.Block) -> None:
    """Remove the ops that only the moved ops used."""
    for view in reversed(list(block.operations)):
        op = view.operation
        if is_mir(op) and len(op.results) and not any(users(r) for r in op.results):
            op.erase()


def _retyped(f: ir.Operation, at: int, more: list[ir.Type]) -> None:
    """Give a function further arguments from the position ``at`` on."""
    t = ir.FunctionType(ir.TypeAttr(f.attributes["function_type"]).value)
    wide = ir.FunctionType.get([*t.inputs[:at], *more, *t.inputs[at:]], t.results)
    f.attributes["function_type"] = ir.TypeAttr.get(wide)


def replace_operand(user: ir.Operation, old: ir.Value, new: ir.Value) -> None:
    """Make an op read another value in the place of one."""
    for i, v in enumerate(user.operands):
        if v == old:
            user.operands[i] = new
