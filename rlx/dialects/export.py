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
from rlx.ops.base import Op
from rlx.ops.control import Control
from rlx.ops.value import Value

__all__ = ["to_mlir"]


def to_mlir(graph: Graph, ctx: ir.Context | None = None) -> ir.Module:
    """The HIR module of a graph. Every op carries the user's file and line as its location."""
    context = make_context() if ctx is None else ctx
    with context, ir.Location.unknown():
        module = ir.Module.create()
        module.operation.attributes["rlx.graph"] = ir.StringAttr.get(graph.name)
        _Writer(module).main(graph)
    with _mlir.mlir_errors("the graph is not valid HIR", IRError):
        module.operation.verify()
    return module


class _Writer:
    """Writes functions into a module, @main last: what it calls stands before it."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.names: dict[str, int] = {}

    def main(self, graph: Graph) -> None:
        leaves = [*graph.inputs, *graph.params]
        kinds = ["rlx.input"] * len(graph.inputs) + ["rlx.param"] * len(graph.params)
        places = [ir.Location.file(*graph.leaf_location(str(v.name)), 1) for v in leaves]
        main = self.function("main", graph, leaves, places)
        main.arg_attrs = ir.ArrayAttr.get(
            [
                ir.DictAttr.get({k: ir.StringAttr.get(v.name)})
                for k, v in zip(kinds, leaves, strict=True)
            ]
        )

    def function(
        self, name: str, graph: Graph, leaves: Sequence[Value], places: Sequence[ir.Location]
    ) -> func.FuncOp:
        nodes = graph.nodes()
        callees: dict[Op, ir.Attribute] = {
            n: self.declare(n) for n in nodes if isinstance(n, Control)
        }
        types = [to_type(v.type) for v in leaves], [to_type(v.type) for v in graph.outputs]
        with ir.InsertionPoint(self.module.body):
            made = func.FuncOp(name, ir.FunctionType.get(*types))
        block = made.add_entry_block(list(places))
        env: dict[Value, ir.Value] = dict(zip(leaves, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for n in nodes:
                callee = callees[n] if isinstance(n, Control) else None
                op = create(
                    n.name if callee is None else "func.call",
                    [to_type(v.type) for v in n.results],
                    [env[v] for v in n.present],
                    attributes_of(n) if callee is None else {"callee": callee},
                    loc=ir.Location.file(*n.location, 1),
                )
                env.update(zip(n.results, op.results, strict=True))
            func.ReturnOp([env[v] for v in graph.outputs])
        return made

    def declare(self, node: Control) -> ir.Attribute:
        """Write the bodies of a control op and the declaration that names them; its symbol."""
        place = ir.Location.file(*node.location, 1)
        attributes: dict[str, ir.Attribute] = {KEY: ir.StringAttr.get(node.short)}
        for a in node.attr_fields:
            value = node.attrs[a.name]
            if a.kind == "Graph":
                attributes[a.name] = self.body(a.name, value, place)
            else:
                attributes[a.name] = to_attr(value, a.kind)
        name = self.unique(node.short)
        types = [to_type(v.type) for v in node.present], [to_type(v.type) for v in node.results]
        with ir.InsertionPoint(self.module.body), place:
            made = func.FuncOp(name, ir.FunctionType.get(*types), visibility="private")
        for key, value in attributes.items():
            made.attributes[key] = value
        return ir.FlatSymbolRefAttr.get(name)

    def body(self, key: str, graph: Graph, place: ir.Location) -> ir.Attribute:
        name = self.unique(key)
        with place:
            made = self.function(name, graph, graph.inputs, [place] * len(graph.inputs))
        if graph.name != key:
            made.attributes["rlx.graph"] = ir.StringAttr.get(graph.name)
        made.attributes["sym_visibility"] = ir.StringAttr.get("private")
        return ir.FlatSymbolRefAttr.get(name)

    def unique(self, name: str) -> str:
        self.names[name] = number = self.names.get(name, -1) + 1
        return f"{name}_{number}"
