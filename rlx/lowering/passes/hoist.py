"""hoist: what depends on params alone moves to @prologue, which runs once per change of a param.

What depends on a loop's captures alone first moves out of the loop (``invariants``).

@prologue takes the params and returns what @main needs; @main takes those values as further
arguments, marked ``rlx.packed`` with their position.
"""

from __future__ import annotations

from rlx._mlir import func, ir
from rlx.dialects.bridge import is_mir
from rlx.dialects.convert import from_type
from rlx.ir.op import op_class
from rlx.lowering.compilation import Compilation
from rlx.lowering.functions import argument_marks, functions
from rlx.lowering.pass_base import Pass
from rlx.lowering.passes.invariants import move_invariants, replace_operand
from rlx.lowering.region import producer, users
from rlx.lowering.select.storage_types import is_format
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import Expand
from rlx.ops.pointwise.cast import Cast
from rlx.types import f32

__all__ = ["Hoist", "static_values"]


def static_values(main: ir.Operation) -> set[ir.Value]:
    """The values that depend on params alone; a constant is not one of them by itself. What has
    symbolic dims depends on the sizes of a call too."""
    block = main.regions[0].blocks[0]
    marks = argument_marks(main)
    static = {
        a
        for a, d in zip(block.arguments, marks, strict=False)
        if "rlx.param" in ir.DictAttr(d) or "rlx.packed" in ir.DictAttr(d)
    }
    neutral: set[ir.Value] = set()
    known = set(static)
    for view in block.operations:
        op = view.operation
        inputs = list(op.operands)
        if op.name == "func.call" or (is_mir(op) and op_class(op.name).meets):
            continue  # control flow stays where it is, and ranks meet in every call
        if op.name == Constant.name or (inputs and neutral.issuperset(inputs)):
            neutral.update(op.results)
            known.update(op.results)
        elif inputs and len(op.results) and known.issuperset(inputs) and _is_sized(op):
            static.update(op.results)
            known.update(op.results)
    return static


def _note_decoded(op: ir.Operation, compilation: Compilation) -> None:
    """Report how much f32 is made of params in 8-bit floats."""
    if op.name != Cast.name:
        return
    source, made = from_type(op.operands[0].type), from_type(op.results[0].type)
    if source.dtype.is_float8 and made.dtype is f32 and made.is_static:
        compilation.dispatch.decoded[source.dtype.name] += made.nbytes


class Hoist(Pass):
    """Move the work that depends on params alone into the prologue."""

    name = "hoist"

    def run(self, module: ir.Module, compilation: Compilation) -> ir.Module:
        found = functions(module)
        if "prologue" in found or compilation.options.dispatch == "common":
            return module
        move_invariants(found, lambda op: compilation.hit(self.name, f"move {op} out of a loop"))
        self._hoist(found["main"], compilation)
        return module

    def _hoist(self, main: ir.Operation, compilation: Compilation) -> None:
        block = main.regions[0].blocks[0]
        static = static_values(main)
        _keep_formats(block, static, "contraction" in compilation.target.families)
        # Constants that static ops use are copied, so that neither function needs the other's.
        moved = [
            v.operation
            for v in block.operations
            if len(v.operation.results) and v.operation.results[0] in static
        ]
        if not moved:
            return
        for op in moved:
            compilation.hit(self.name, f"move {op.name}")
            _note_decoded(op, compilation)
        inside = set(r for o in moved for r in o.results)
        live = [
            r for o in moved for r in o.results if any(not _within(u, inside) for u in users(r))
        ]
        args = [block.add_argument(r.type, r.owner.location) for r in live]
        for r, a in zip(live, args, strict=True):
            for u in users(r):
                if not _within(u, inside):
                    replace_operand(u, r, a)
        params = [(a, d) for a, d in zip(block.arguments, argument_marks(main), strict=False)]
        params = [(a, d) for a, d in params if "rlx.param" in ir.DictAttr(d)]
        self._make_prologue(main, params, moved, live)
        marks = argument_marks(main)
        i64 = ir.IntegerType.get_signless(64)
        marks += [
            ir.DictAttr.get({"rlx.packed": ir.IntegerAttr.get(i64, i)}) for i in range(len(live))
        ]
        t = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        wide = ir.FunctionType.get([*t.inputs, *(r.type for r in live)], t.results)
        main.attributes["function_type"] = ir.TypeAttr.get(wide)
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(marks)

    def _make_prologue(
        self,
        main: ir.Operation,
        params: list[tuple[ir.Value, ir.Attribute]],
        moved: list[ir.Operation],
        live: list[ir.Value],
    ) -> None:
        with ir.InsertionPoint(main):
            types = [a.type for a, _ in params], [r.type for r in live]
            prologue = func.FuncOp("prologue", ir.FunctionType.get(*types))
        prologue.arg_attrs = ir.ArrayAttr.get([d for _, d in params])
        body = prologue.add_entry_block([a.location for a, _ in params])
        env = dict(zip((a for a, _ in params), body.arguments, strict=True))
        for op in moved:
            for v in op.operands:
                source = producer(v)
                if v not in env and source is not None and source.parent == main:
                    _copy(source, body, env)
            op.detach_from_parent()
            body.append(op)
            for i, v in enumerate(op.operands):
                if v in env:
                    op.operands[i] = env[v]
        with ir.InsertionPoint(body):
            func.ReturnOp(live)
        for view in reversed(list(main.regions[0].blocks[0].operations)):
            op = view.operation
            if any(r in env for r in op.results) and not any(users(r) for r in op.results):
                op.erase()  # only the prologue wanted it


def _keep_formats(block: ir.Block, static: set[ir.Value], products: bool) -> None:
    """Leave in main the broadcasts that it reads, and the casts below its products if they have a
    kernel: they are an address or a format there, and would be a tensor in the packed memory."""
    # Users first: a broadcast that another one reads stays if that one does.
    for view in reversed(list(block.operations)):
        op = view.operation
        if len(op.results) != 1 or op.results[0] not in static:
            continue
        if op.name != Expand.name and not (products and is_format(op)):
            continue
        inside = [u for u in users(op.results[0]) if _within(u, static)]
        outside = [u for u in users(op.results[0]) if not _within(u, static)]
        if op.name != Expand.name and any(u.name != MatMul.name for u in outside):
            continue
        if not inside:
            static.discard(op.results[0])
        elif outside:
            twin = op.clone(ir.InsertionPoint(op)).operation.results[0]
            for u in outside:
                replace_operand(u, op.results[0], twin)


def _is_sized(op: ir.Operation) -> bool:
    return all(ir.ShapedType(r.type).has_static_shape for r in op.results)


def _within(op: ir.Operation, values: set[ir.Value]) -> bool:
    return len(op.results) > 0 and op.results[0] in values


def _copy(op: ir.Operation, body: ir.Block, env: dict[ir.Value, ir.Value]) -> None:
    """Clone a constant, or an op on constants alone, to the end of the prologue's body."""
    for v in op.operands:
        source = producer(v)
        if v not in env and source is not None:
            _copy(source, body, env)
    twin = op.clone(ir.InsertionPoint(body)).operation
    for i, v in enumerate(twin.operands):
        twin.operands[i] = env.get(v, v)
    env.update(zip(op.results, twin.results, strict=True))
