"""Graph to HIR: @main, whose arguments are the inputs, then the params, and a function a body.

Control ops are written as ``rlx.dialects.control`` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx import _mlir
from rlx._mlir import func, ir
from rlx.dialects.bridge import attributes_of, create
from rlx.dialects.context import make_context
from rlx.dialects.control import KEY
from rlx.dialects.convert import to_attr, to_type
from rlx.errors import IRError
from rlx.ir.graph import Graph
from rlx.ir.mlir_text import OUTPUT
from rlx.ir.op import Location, Op
from rlx.ir.value import Value
from rlx.ops.control.control import Control

__all__ = ["to_mlir"]


def to_mlir(
    graph: Graph,
    ctx: ir.Context | None = None,
    places: Mapping[Value | Op, Location] | None = None,
    *,
    verify: bool = True,
) -> ir.Module:
    """The HIR module of a graph. Every op carries the user's file and line as its location, or
    what ``places`` says instead of ``Graph.places``. To ``verify`` it asks each op's class anew
    what the node's has said."""
    context = make_context() if ctx is None else ctx
    with context, ir.Location.unknown():
        module = ir.Module.create()
        module.operation.attributes["rlx.graph"] = ir.StringAttr.get(graph.name)
        _Writer(module, places or dict(graph.places())).main(graph)
    if verify:
        with _mlir.mlir_errors("the graph is not valid HIR", IRError):
            module.operation.verify()
    return module


class _Writer:
    """Writes functions into a module, @main last: what it calls stands before it."""

    def __init__(self, module: ir.Module, places: Mapping[Value | Op, Location]) -> None:
        self.module, self.places = module, places
        self.names: dict[str, int] = {}

    def main(self, graph: Graph) -> None:
        leaves = [*graph.inputs, *graph.params]
        kinds = ["rlx.input"] * len(graph.inputs) + ["rlx.param"] * len(graph.params)
        main = self.function("main", graph, leaves, [self.place(v) for v in leaves])
        main.arg_attrs = ir.ArrayAttr.get(
            [
                ir.DictAttr.get({k: ir.StringAttr.get(v.name)})
                for k, v in zip(kinds, leaves, strict=True)
            ]
        )
        if graph.output_names:
            marks = [{OUTPUT: ir.StringAttr.get(name)} for name in graph.output_names]
            main.attributes["res_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(m) for m in marks])

    def function(
        self, name: str, graph: Graph, leaves: Sequence[Value], places: Sequence[ir.Location]
    ) -> func.FuncOp:
        callees = self.callees(graph)
        types = [to_type(v.type) for v in leaves], [to_type(v.type) for v in graph.outputs]
        with ir.InsertionPoint(self.module.body):
            made = func.FuncOp(name, ir.FunctionType.get(*types))
        block = made.add_entry_block(list(places))
        env: dict[Value, ir.Value] = dict(zip(leaves, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            self.nodes(graph, env, callees)
            func.ReturnOp([env[v] for v in graph.outputs])
        return made

    def callees(self, graph: Graph) -> dict[Op, ir.Attribute]:
        """The symbols of the control ops of a graph, whose bodies are written first."""
        return {n: self.declare(n) for n in graph.nodes() if isinstance(n, Control)}

    def nodes(
        self, graph: Graph, env: dict[Value, ir.Value], callees: Mapping[Op, ir.Attribute]
    ) -> None:
        for n in graph.nodes():
            callee = callees.get(n)
            op = create(
                n.name if callee is None else "func.call",
                [to_type(v.type) for v in n.results],
                [env[v] for v in n.present],
                attributes_of(n) if callee is None else {"callee": callee},
                loc=self.place(n),
            )
            env.update(zip(n.results, op.results, strict=True))

    def declare(self, node: Control) -> ir.Attribute:
        """Write the bodies of a control op and the declaration that names them; its symbol."""
        place = self.place(node)
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

    def place(self, of: Value | Op) -> ir.Location:
        return ir.Location.file(*self.places[of], 1)

    def unique(self, name: str) -> str:
        self.names[name] = number = self.names.get(name, -1) + 1
        return f"{name}_{number}"
