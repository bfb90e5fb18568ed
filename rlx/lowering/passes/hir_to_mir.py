"""hir-to-mir: what a block expands to takes its place, and the body of a composite region too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx._mlir import ir, run_pipeline
from rlx.dialects.bridge import expand_all, place_of
from rlx.dialects.control import control_of, is_composite
from rlx.errors import IRError
from rlx.lowering.compilation import Compilation
from rlx.lowering.functions import functions
from rlx.lowering.pass_base import Pass

__all__ = ["HirToMir"]


class HirToMir(Pass):
    """Replace every hir block by what its class expands to."""

    name = "hir-to-mir"

    def run(self, module: ir.Module, compilation: Compilation) -> ir.Module:
        def wanted(op: ir.Operation) -> bool:
            if not op.name.startswith("hir."):
                return False
            compilation.hit(self.name, f"expand {op.name}")
            return True

        if _inline_composites(module):
            run_pipeline(module, "builtin.module(symbol-dce)")  # their declarations
        for f in functions(module).values():
            for block in f.regions[0].blocks:
                expand_all(block, wanted, lambda n: n.dialect == "hir")
        return module


def _inline_composites(module: ir.Module) -> bool:
    """Put bodies in the place of calls of composite control ops; whether there were any."""
    found, known = False, functions(module)
    for f in known.values():
        for block in f.regions[0].blocks:
            for view in list(block.operations):
                call = view.operation
                if is_composite(call, known):
                    results = _inlined(call, list(call.operands), call, known, [])
                    for old, new in zip(call.results, results, strict=True):
                        old.replace_all_uses_with(new)
                    call.erase()
                    found = True
    return found


def _inlined(
    call: ir.Operation,
    operands: Sequence[ir.Value],
    at: ir.Operation,
    known: Mapping[str, ir.Operation],
    active: Sequence[ir.Operation],
) -> list[ir.Value]:
    """Write the body of a call before ``at``; what it returns."""
    body = control_of(call, known)[1]["body"]
    if body in active:
        name = ir.StringAttr(body.attributes["sym_name"]).value
        raise IRError(f"@{name} runs itself; a loop is a while_loop", place_of(call))
    block = body.regions[0].blocks[0]
    env: dict[ir.Value, ir.Value] = dict(zip(block.arguments, operands, strict=True))
    *ops, end = (view.operation for view in block.operations)
    for op in ops:
        values = [env[v] for v in op.operands]
        if is_composite(op, known):
            results = _inlined(op, values, at, known, [*active, body])
        else:
            made = op.clone(ip=ir.InsertionPoint(at))
            for i, v in enumerate(values):
                made.operands[i] = v
            results = list(made.operation.results)
        env.update(zip(op.results, results, strict=True))
    return [env[v] for v in end.operands]
