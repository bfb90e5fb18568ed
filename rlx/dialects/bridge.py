"""The bridge between MLIR ops and the op classes, and the expansion of composites in MLIR.

``node_of`` makes the Graph node that an MLIR op denotes, on placeholder values; every rule of the
class then applies to it. Verification, expansion and kernel choice all go this way, so no rule is
written for MLIR a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx._mlir import ir
from rlx.dialects.convert import from_attr, from_type, to_attr, to_type
from rlx.errors import IRError
from rlx.ir.declared import OWN_DIALECTS
from rlx.ir.graph import topological
from rlx.ir.op import Op, located, op_class, registry
from rlx.ir.replay import replay
from rlx.ir.slots import SEGMENTS, needs_segments, present_slots, takes_optional
from rlx.ir.value import Value

__all__ = [
    "Template",
    "attributes_of",
    "check_attributes",
    "create",
    "is_mir",
    "node_of",
    "operand_slots",
    "place_of",
    "trail_of",
]

create = ir.Operation.create


def is_mir(op: ir.Operation) -> bool:
    """Whether an op is on the level of mir: one of its own, or one that a user has declared."""
    prefix = op.name.partition(".")[0]
    return prefix == "mir" or (prefix not in OWN_DIALECTS and op.name in registry)


def operand_slots(cls: type[Op], present: Sequence[bool]) -> ir.Attribute | None:
    """The segment attribute that IRDL wants when more than one operand is optional."""
    if not needs_segments(cls):
        return None
    return ir.DenseI32ArrayAttr.get([int(p) for p in present])


def _operands(op: ir.Operation, cls: type[Op]) -> list[ir.Value | None]:
    given = list(op.operands)
    if not takes_optional(cls) and len(given) == len(cls.operand_fields):
        return given
    segments = None
    if SEGMENTS in op.attributes and takes_optional(cls):
        try:
            segments = list(ir.DenseI32ArrayAttr(op.attributes[SEGMENTS]))
        except (TypeError, ValueError):
            raise IRError(f"{SEGMENTS} is no array of i32") from None
    rest = iter(given)
    return [next(rest) if p else None for p in present_slots(cls, len(given), segments)]


def node_of(op: ir.Operation, values: Sequence[Value | None] | None = None) -> Op:
    """The node that ``op`` denotes: on ``values``, or on placeholders of its operands' types."""
    cls = op_class(op.name)
    if values is None:
        values = [None if v is None else Value(from_type(v.type)) for v in _operands(op, cls)]
    attrs: dict[str, Any] = {}
    for a in cls.attr_fields:
        if a.name not in op.attributes:
            raise IRError(f"the attribute {a.name!r} is missing")
        try:
            attrs[a.name] = from_attr(op.attributes[a.name], a.kind)
        except (ValueError, TypeError) as e:
            raise IRError(f"attribute {a.name!r} is no {a.kind}: {e}") from None
    with located(place_of(op)):
        return cls(*values, **attrs)


def check_attributes(op: ir.Operation) -> None:
    """Raise IRError for an attribute that the bindings cannot hand out, as they cannot a location;
    passes read whatever an op has."""
    for name in op.attributes:
        try:
            op.attributes[name]
        except TypeError:
            raise IRError(f"attribute {name!r} is of a kind that no op here can have") from None


def operands_of(op: ir.Operation) -> list[ir.Value | None]:
    """The operands by field, None where an optional one is absent."""
    return _operands(op, op_class(op.name))


def place_of(op: ir.Operation | ir.Value) -> tuple[str, int]:
    """File and line of an op or value; the first of a fused location."""
    return _file_line(op.location) or ("<unknown>", 0)


def _file_line(location: ir.Location) -> tuple[str, int] | None:
    match location:
        case ir.FileLineColLoc():
            return location.filename, location.start_line
        case ir.FusedLoc():
            inner = location.locations
        case ir.NameLoc():
            inner = [location.child_loc]
        case ir.CallSiteLoc():
            inner = [location.callee, location.caller]
        case _:
            return None
    return next((place for part in inner if (place := _file_line(part))), None)


def trail_of(location: ir.Location) -> str:
    """A location as MLIR text without its ``loc( )``: with every place and name that it holds."""
    return str(location)[len("loc(") : -1]


def attributes_of(node: Op) -> dict[str, ir.Attribute]:
    """The MLIR attributes of a node."""
    attrs = {a.name: to_attr(node.attrs[a.name], a.kind) for a in node.attr_fields}
    slots = operand_slots(type(node), [v is not None for v in node.operands])
    if slots is not None:
        attrs[SEGMENTS] = slots
    return attrs


def trace(
    node: Op, expand_if: Callable[[Op], bool]
) -> tuple[list[Op], tuple[Value, ...], tuple[Value | None, ...]]:
    """Expand ``node`` on fresh placeholders, and what it expands to as far as ``expand_if`` says.

    Returns the nodes in order, the values that stand for its results, and the placeholders.
    """
    leaves = tuple(None if v is None else Value(v.type) for v in node.operands)
    rows: list[Op] = []

    def expanded(op: Op) -> tuple[Value, ...]:
        env: dict[Value, Value] = {v: v for v in op.present}
        outs = op.expansion()
        replay(topological(outs, stop=env.keys()), env, visit)
        return tuple(env[v] for v in outs)

    def visit(op: Op, operands: Sequence[Value | None]) -> tuple[Value, ...]:
        moved = op.with_operands(operands)
        if op.composite() and expand_if(op):
            return expanded(moved)
        rows.append(moved)
        return moved.results

    return rows, expanded(node.with_operands(leaves)), leaves


class Template:
    """The expansion of one op signature, with MLIR types and attributes made once.

    Equal layers expand alike, so an expansion is traced once per signature and spliced often.
    """

    def __init__(self, node: Op, expand_if: Callable[[Op], bool]) -> None:
        rows, outs, leaves = trace(node, expand_if)
        slot: dict[Value, int] = {v: i for i, v in enumerate(v for v in leaves if v is not None)}
        self.rows: list[tuple[str, list[int], list[ir.Type], dict[str, ir.Attribute]]] = []
        for row in rows:
            ins = [slot[v] for v in row.present]
            for v in row.results:
                slot[v] = len(slot)
            self.rows.append(
                (row.name, ins, [to_type(v.type) for v in row.results], attributes_of(row))
            )
        self.outs = [slot[v] for v in outs]

    def splice(self, op: ir.Operation) -> None:
        """Put the expansion in the place of ``op``; every new op takes its location."""
        values = list(op.operands)
        at, loc = ir.InsertionPoint(op), op.location
        for name, ins, types, attrs in self.rows:
            made = create(name, types, [values[i] for i in ins], attrs, loc=loc, ip=at)
            values.extend(made.results)
        for result, i in zip(op.results, self.outs, strict=True):
            result.replace_all_uses_with(values[i])
        op.erase()


def signature(op: ir.Operation) -> tuple[Any, ...]:
    """What an expansion depends on: name, attributes and operand types.

    Attributes and types are unique within a context, so they compare by identity; the map of
    attributes itself does not, nor does its text say what is in it.
    """
    attributes = op.attributes
    named = tuple([(n, attributes[n]) for n in sorted(attributes)])
    return (op.name, named, tuple([v.type for v in op.operands]))


def expand_all(
    block: ir.Block, wanted: Callable[[ir.Operation], bool], expand_if: Callable[[Op], bool]
) -> int:
    """Expand every wanted op of a block in place; returns how many."""
    templates: dict[tuple[Any, ...], Template] = {}
    count = 0
    for view in list(block.operations):
        op = view.operation
        if not wanted(op):
            continue
        key = signature(op)
        if key not in templates:
            templates[key] = Template(node_of(op), expand_if)
        templates[key].splice(op)
        count += 1
    return count
