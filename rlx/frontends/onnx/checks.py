"""A node against the schema that ONNX has of its op type: numbers, types and attributes.

What passes holds for every row, so rows check none of it again. ONNX converts nothing silently, so
two inputs of one type variable that differ are a damaged file and not a promotion.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, NodeProto
from onnx.defs import OpSchema

from rlx.errors import ModelError, UnsupportedError
from rlx.frontends.onnx.edges import Edge
from rlx.frontends.onnx.node import full_name
from rlx.frontends.onnx.tensors import ELEM_TYPES, array_of, type_text
from rlx.types import DTYPES, DType

__all__ = ["attributes_of", "check", "default_attributes", "onnx_name", "schema_of"]

_VARIADIC = OpSchema.FormalParameterOption.Variadic
_READ = {
    AttributeProto.INT: "i", AttributeProto.FLOAT: "f", AttributeProto.STRING: "s",
    AttributeProto.INTS: "ints", AttributeProto.FLOATS: "floats", AttributeProto.STRINGS: "strings",
    AttributeProto.TENSOR: "t", AttributeProto.GRAPH: "g",
}  # fmt: skip


def onnx_name(dt: DType) -> str:
    """ONNX's name of a tensor type of ours, such as ``tensor(float)``."""
    return _NAMES[dt]


_NAMES = {
    DTYPES[name]: "tensor(" + type_text(number).lower() + ")" for name, number in ELEM_TYPES.items()
}


def attributes_of(proto: NodeProto, schema: OpSchema | None, folder: Path | None) -> dict[str, Any]:
    """The attributes by name: numbers, strings, arrays and graphs, alone or in tuples. ModelError
    for one that is of another type than the schema says, missing or unknown."""
    found: dict[str, Any] = {}
    for a in proto.attribute:
        if schema is not None:
            _check_attribute(a, schema)
        found[a.name] = _attribute(a, folder)
    if schema is not None:
        missing = [n for n, s in schema.attributes.items() if s.required and n not in found]
        if missing:
            raise ModelError(f"its attribute {missing[0]!r} is missing; export the model again")
    return found


def default_attributes(schema: OpSchema | None) -> dict[str, Any]:
    """What attributes are where a node leaves them out."""
    given: dict[str, Any] = {} if schema is None else dict(schema.attributes)
    return {
        name: _attribute(a.default_value, None)
        for name, a in given.items()
        if a.default_value.type in _READ
    }


def _check_attribute(a: AttributeProto, schema: OpSchema) -> None:
    declared: Any = schema.attributes.get(a.name)
    if declared is None:
        known = ", ".join(sorted(schema.attributes)) or "none"
        raise ModelError(
            f"it has the attribute {a.name!r}, which {schema.name} of opset"
            f" {schema.since_version} lacks; it has {known}"
        )
    if a.type != declared.type.value:
        found = AttributeProto.AttributeType.Name(a.type)
        raise ModelError(
            f"its attribute {a.name!r} is of type {found}, expected {declared.type.name}"
        )


def _attribute(a: AttributeProto, folder: Path | None) -> Any:
    if a.type not in _READ:
        kind = AttributeProto.AttributeType.Name(a.type)
        raise UnsupportedError(
            f"its attribute {a.name!r} is of type {kind}, which RLX does not read"
        )
    value = getattr(a, _READ[a.type])
    if a.type == AttributeProto.TENSOR:
        return array_of(value, folder, f"its attribute {a.name!r}")
    if a.type == AttributeProto.STRING:
        return _text(value, a.name)
    if a.type == AttributeProto.STRINGS:
        return tuple(_text(v, a.name) for v in value)
    return (
        value
        if a.type in (AttributeProto.GRAPH, AttributeProto.INT, AttributeProto.FLOAT)
        else tuple(value)
    )


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ModelError(f"its attribute {name!r} is no text in UTF-8") from None


_TAKE_4_BITS = ("Cast", "DequantizeLinear", "QuantizeLinear", "com.microsoft.GatherBlockQuantized")


def check_narrow(proto: NodeProto, inputs: Sequence[Edge | None]) -> None:
    """UnsupportedError for an input of 4 bits where the op type computes with whole bytes."""
    at = next((i for i, e in enumerate(inputs) if e is not None and e.narrow), None)
    if at is not None and full_name(proto) not in _TAKE_4_BITS:
        raise UnsupportedError(
            f"its input {proto.input[at]!r} has elements of 4 bits, which {', '.join(_TAKE_4_BITS)}"
            " take here"
        )


def check(proto: NodeProto, schema: OpSchema, inputs: Sequence[Edge | None]) -> None:
    """ModelError for a wrong number of inputs or outputs, and for inputs of wrong types."""
    given = len(inputs)
    if not schema.min_input <= given <= schema.max_input:
        raise ModelError(f"it has {given} inputs, {schema.name} takes {_range(schema)}")
    if len(proto.output) > schema.max_output:
        raise ModelError(
            f"it has {len(proto.output)} outputs, {schema.name} has {schema.max_output} at most"
        )
    bound: dict[str, tuple[str, int]] = {}
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    for i, edge in enumerate(inputs):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if edge is None:
            if formal.option == OpSchema.FormalParameterOption.Single:
                raise ModelError(f"its input {formal.name!r} is left out; {schema.name} needs it")
            continue
        name = onnx_name(edge.dtype)
        types = allowed.get(formal.type_str, {formal.type_str})
        if name not in types:
            raise ModelError(
                f"its input {proto.input[i]!r} is {name}, which {schema.name} of opset"
                f" {schema.since_version} does not take; insert a Cast"
            )
        if formal.option == _VARIADIC and not formal.is_homogeneous:
            continue
        other, at = bound.setdefault(formal.type_str, (name, i))
        if other != name:
            raise ModelError(
                f"its inputs {proto.input[at]!r} and {proto.input[i]!r} are {other} and {name},"
                " and must be of one type; insert a Cast"
            )


def _range(schema: OpSchema) -> str:
    least, most = schema.min_input, schema.max_input
    return (
        f"{least}"
        if least == most
        else f"{least} to {most}"
        if most < 1 << 20
        else f"{least} or more"
    )


def schema_of(op_type: str, version: int, domain: str) -> OpSchema | None:
    """ONNX's schema of an op type at a version of its domain; None if there is none."""
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except (onnx.defs.SchemaError, TypeError):  # the latter for a name that is no text
        return None
