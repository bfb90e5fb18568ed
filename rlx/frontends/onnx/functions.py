"""Op types that ONNX, or the model, defines by other op types: the function of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto

from rlx.frontends.onnx.edges import Edge
from rlx.frontends.onnx.tensors import ELEM_TYPES

# The stub of onnx.defs.OpSchema lacks what its functions are asked by.
Schema = Any

__all__ = ["bound", "defaults", "has_function", "of_schema", "static_function"]


def has_function(schema: Schema) -> bool:
    """Whether ONNX defines the op type by others."""
    return schema.has_function or schema.has_context_dependent_function


def static_function(schema: Schema, version: int) -> FunctionProto | None:
    """The function where it is the same for all nodes; None if it depends on a node's types."""
    if not schema.has_function:
        return None
    known = _at(schema.function_opset_versions, version)
    return _parsed(schema.get_function_with_opset_version(known))


def of_schema(
    schema: Schema, version: int, proto: NodeProto, inputs: Sequence[Edge | None]
) -> FunctionProto:
    """The function of one node, for the newest opset that is not newer than ``version``."""
    found = static_function(schema, version)
    if found is not None:
        return found
    known = _at(schema.context_dependent_function_opset_versions, version)
    types = [_type(e).SerializeToString() for e in inputs]
    body = schema.get_context_dependent_function_with_opset_version(
        known, proto.SerializeToString(), types
    )
    return _parsed(body)


def _parsed(body: bytes) -> FunctionProto:
    function = FunctionProto()
    function.ParseFromString(body)
    return function


def _at(versions: Sequence[int], version: int) -> int:
    return max((v for v in versions if v <= version), default=min(versions))


def _type(edge: Edge | None) -> TypeProto:
    out = TypeProto()
    if edge is not None:
        out.tensor_type.elem_type = ELEM_TYPES[edge.dtype.name]
        out.tensor_type.shape.SetInParent()
        for d in edge.shape:
            dim = out.tensor_type.shape.dim.add()
            if isinstance(d, int):
                dim.dim_value = d
            else:
                dim.dim_param = str(d)
    return out


def bound(proto: NodeProto, attributes: Mapping[str, AttributeProto]) -> NodeProto:
    """A node of a function's body with the attributes that it takes from the function's caller;
    those that the caller leaves out are left out."""
    if not any(a.ref_attr_name for a in proto.attribute):
        return proto
    out = NodeProto()
    out.CopyFrom(proto)
    del out.attribute[:]
    for a in proto.attribute:
        if not a.ref_attr_name:
            out.attribute.append(a)
        elif a.ref_attr_name in attributes:
            given = out.attribute.add()
            given.CopyFrom(attributes[a.ref_attr_name])
            given.name = a.name
    return out


def defaults(schema: Schema) -> dict[str, AttributeProto]:
    """What attributes are where a node leaves them out."""
    return {
        name: a.default_value
        for name, a in schema.attributes.items()
        if a.default_value.type != AttributeProto.UNDEFINED
    }
