"""Graph to HIR: @main, whose arguments are the inputs, then the params, and a function a body.

Control ops are written as ``rlx.dialects.control`` reads them.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx import _mlir
from rlx._mlir import func, ir
from rlx.dialects.bridge import attributes_of, create
from rlx.dialects.context import make_context
from rlx.dialects.control import KEY
from rlx.dialects.convert import to_attr, to_type
from rlx.errors import IRError
from rlx.graph import Graph
from rlx.ops.control import ControlFunction, GraphFunction, functions_of
from rlx.ops.value import Value

__all__ = ["to_mlir"]


def to_mlir(graph: Graph, ctx: ir.Context | None = None) -> ir.Module:
    """The HIR module of a graph. Every op carries the user's file and line as its location."""
    context = make_context() if ctx is None else ctx
    with context, ir.Location.unknown():
        module = ir.Module.create()
        module.operation.attributes["rlx.graph"] = ir.StringAttr.get(graph.name)
        _Writer(module).write(graph)
    with _mlir.mlir_errors("the graph is not valid HIR", IRError):
        module.operation.verify()
    return module


class _Writer:
    """Writes functions into a module."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module

    def write(self, graph: Graph) -> None:
        for f in functions_of(graph):
            if isinstance(f, ControlFunction):
                self.declare(f)
            elif f.graph is graph:
                self.main(f)
            else:
                made = self.function(f, f.graph.inputs)
                made.attributes["sym_visibility"] = ir.StringAttr.get("private")

    def main(self, f: GraphFunction) -> None:
        graph = f.graph
        leaves = [*graph.inputs, *graph.params]
        kinds = ["rlx.input"] * len(graph.inputs) + ["rlx.param"] * len(graph.params)
        made = self.function(f, leaves)
        made.arg_attrs = ir.ArrayAttr.get(
            [
                ir.DictAttr.get({k: ir.StringAttr.get(v.name)})
                for k, v in zip(kinds, leaves, strict=True)
            ]
        )

    def function(self, f: GraphFunction, leaves: Sequence[Value]) -> func.FuncOp:
        graph = f.graph
        types = [to_type(v.type) for v in leaves], [to_type(v.type) for v in graph.outputs]
        with ir.InsertionPoint(self.module.body):
            made = func.FuncOp(f.name, ir.FunctionType.get(*types))
        places = [ir.Location.file(*graph.leaf_location(str(v.name)), 1) for v in leaves]
        block = made.add_entry_block(places)
        env: dict[Value, ir.Value] = dict(zip(leaves, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for n in graph.nodes():
                callee = f.callees.get(n)
                op = create(
                    n.name if callee is None else "func.call",
                    [to_type(v.type) for v in n.results],
                    [env[v] for v in n.present],
                    attributes_of(n) if callee is None else {"callee": _symbol(callee)},
                    loc=ir.Location.file(*n.location, 1),
                )
                env.update(zip(n.results, op.results, strict=True))
            func.ReturnOp([env[v] for v in graph.outputs])
        return made

    def declare(self, f: ControlFunction) -> None:
        node = f.node
        types = [to_type(v.type) for v in node.present], [to_type(v.type) for v in node.results]
        with ir.InsertionPoint(self.module.body), ir.Location.file(*node.location, 1):
            made = func.FuncOp(f.name, ir.FunctionType.get(*types), visibility="private")
        made.attributes[KEY] = ir.StringAttr.get(node.short)
        for a in node.attr_fields:
            body = f.bodies.get(a.name)
            made.attributes[a.name] = (
                to_attr(node.attrs[a.name], a.kind) if body is None else _symbol(body)
            )


def _symbol(name: str) -> ir.Attribute:
    return ir.FlatSymbolRefAttr.get(name)
