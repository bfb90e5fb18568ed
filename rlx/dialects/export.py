"""Graph to HIR: one func whose arguments are the inputs, then the params."""

from __future__ import annotations

from collections.abc import Sequence

from rlx import _mlir
from rlx._mlir import func, ir
from rlx.dialects.bridge import attributes_of, create
from rlx.dialects.context import make_context
from rlx.dialects.convert import to_type
from rlx.errors import IRError
from rlx.graph import Graph
from rlx.ops.base import Location
from rlx.ops.value import Value

__all__ = ["to_mlir"]


def to_mlir(
    graph: Graph, ctx: ir.Context | None = None, places: Sequence[Location] | None = None
) -> ir.Module:
    """The HIR module of a graph. Every op carries the user's file and line as its location, or
    what ``places`` has instead, in the order of ``Graph.places``."""
    context = make_context() if ctx is None else ctx
    with context, ir.Location.unknown():
        module = ir.Module.create()
        module.operation.attributes["rlx.graph"] = ir.StringAttr.get(graph.name)
        leaves = [*graph.inputs, *graph.params]
        kinds = ["rlx.input"] * len(graph.inputs) + ["rlx.param"] * len(graph.params)
        nodes = graph.nodes()
        with ir.InsertionPoint(module.body):
            types = [to_type(v.type) for v in leaves], [to_type(v.type) for v in graph.outputs]
            main = func.FuncOp("main", ir.FunctionType.get(*types))
        main.arg_attrs = ir.ArrayAttr.get(
            [
                ir.DictAttr.get({k: ir.StringAttr.get(v.name)})
                for k, v in zip(kinds, leaves, strict=True)
            ]
        )
        locations = [ir.Location.file(*place, 1) for place in places or graph.places()]
        block = main.add_entry_block(locations[: len(leaves)])
        env: dict[Value, ir.Value] = dict(zip(leaves, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for n, location in zip(nodes, locations[len(leaves) :], strict=True):
                made = create(
                    n.name,
                    [to_type(v.type) for v in n.results],
                    [env[v] for v in n.present],
                    attributes_of(n),
                    loc=location,
                )
                env.update(zip(n.results, made.results, strict=True))
            func.ReturnOp([env[v] for v in graph.outputs])
    with _mlir.mlir_errors("the graph is not valid HIR", IRError):
        module.operation.verify()
    return module
