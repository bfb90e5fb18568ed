"""Control ops in MLIR: a call of a declared function, which names its bodies.

    func.func private @while_loop_0(tensor<i64>, tensor<i64>) -> tensor<i64> attributes
        {rlx.control = "while_loop", carries = 1, limit = -1, test = @test_0, body = @body_0}

``control_of`` makes the node that such a call denotes, so that the rules of its class apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx._mlir import ir
from rlx.dialects.bridge import place_of
from rlx.dialects.convert import from_attr, from_type
from rlx.errors import IRError
from rlx.ir.graph import Graph
from rlx.ir.mlir_text import CONTROL as KEY
from rlx.ir.op import located, op_class
from rlx.ir.value import Value
from rlx.ops import OP_MODULES
from rlx.ops.control.checkpoint import Barrier
from rlx.ops.control.control import Control

__all__ = ["KEY", "control_of", "is_barrier", "is_composite"]


def control_of(
    call: ir.Operation, functions: Mapping[str, ir.Operation]
) -> tuple[Control, dict[str, ir.Operation]]:
    """The node that a ``func.call`` denotes, on placeholders, and its bodies by their attributes.

    The bodies of the node have the right types and compute nothing. IRError says what is no
    control function, and what does not fit it.
    """
    name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
    declared, place = functions[name], place_of(call)
    if KEY not in declared.attributes:
        raise IRError(f"@{name} is no control function: it has no {KEY}", place)
    cls = _class(declared.attributes[KEY], place)
    attrs: dict[str, Any] = {}
    bodies: dict[str, ir.Operation] = {}
    for a in cls.attr_fields:
        if a.name not in declared.attributes:
            raise IRError(f"@{name} needs the attribute {a.name!r}", place)
        value = declared.attributes[a.name]
        if a.kind == "Graph":
            bodies[a.name] = _body(value, functions, f"{a.name!r} of @{name}", call)
            attrs[a.name] = _outline(bodies[a.name])
            continue
        try:
            attrs[a.name] = from_attr(value, a.kind)
        except (ValueError, TypeError) as e:
            raise IRError(f"attribute {a.name!r} of @{name} is no {a.kind}: {e}", place) from None
    with located(place):
        node = cls(*(Value(from_type(v.type)) for v in call.operands), **attrs)
    expected, found = ([str(t) for t in types] for types in (
        [v.type for v in node.results], [from_type(v.type) for v in call.results]
    ))  # fmt: skip
    if expected != found:
        listed = " and ".join(", ".join(types) for types in (found, expected))
        raise IRError(f"@{name}: results and what its bodies give differ: {listed}", place)
    return node, bodies


def is_barrier(op: ir.Operation, functions: Mapping[str, ir.Operation]) -> bool:
    """Whether an op is the call of a barrier, whose results are its operands."""
    return _called(op, functions) is Barrier


def is_composite(op: ir.Operation, functions: Mapping[str, ir.Operation]) -> bool:
    """Whether an op is the call of a control op that means what its ``body`` computes."""
    cls = _called(op, functions)
    return cls is not None and cls.composite()


def _called(op: ir.Operation, functions: Mapping[str, ir.Operation]) -> type[Control] | None:
    """The class of the control op that an op calls; None for another op, and what is no class."""
    if op.name != "func.call":
        return None
    declared = functions.get(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
    if declared is None or KEY not in declared.attributes:
        return None
    kind = declared.attributes[KEY]
    known = isinstance(kind, ir.StringAttr) and f"control.{kind.value}" in OP_MODULES
    return _class(kind, place_of(op)) if known else None


def _class(kind: ir.Attribute, place: tuple[str, int]) -> type[Control]:
    known = [c.split(".")[1] for c in OP_MODULES if c.startswith("control.")]
    name = ir.StringAttr(kind).value if isinstance(kind, ir.StringAttr) else str(kind)
    if name not in known:
        raise IRError(f"{KEY} is {name!r}, expected one of {', '.join(known)}", place)
    cls = op_class(f"control.{name}")
    assert issubclass(cls, Control)
    return cls


def _body(
    symbol: ir.Attribute, functions: Mapping[str, ir.Operation], what: str, call: ir.Operation
) -> ir.Operation:
    name = ir.FlatSymbolRefAttr(symbol).value if isinstance(symbol, ir.FlatSymbolRefAttr) else "?"
    body = functions.get(name)
    if body is None or len(body.regions[0].blocks) != 1:
        raise IRError(f"{what} is {symbol}, expected a defined function", place_of(call))
    return body


def _outline(body: ir.Operation) -> Graph:
    """A graph of a body's signature."""
    block = body.regions[0].blocks[0]
    graph = Graph(ir.StringAttr(body.attributes["sym_name"]).value)
    for i, arg in enumerate(block.arguments):
        t = from_type(arg.type)
        graph.input(f"x{i}", t.shape, t.dtype)
    returned = list(block.operations)[-1].operation.operands
    graph.outputs = [Value(from_type(v.type), graph=graph) for v in returned]
    return graph
