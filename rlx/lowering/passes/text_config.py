"""Kernel configs as MLIR attributes and back, so that LIR text says all that a kernel depends on.

A config is made of frozen dataclasses, tuples, strings, numbers and element types. A dataclass
becomes a dictionary whose key ``is`` names the class; classes are found by that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from rlx._mlir import ir
from rlx.dialects.convert import dtype_of, element
from rlx.errors import IRError, a_type
from rlx.types import DType

__all__ = ["decode", "encode"]


def encode(value: Any) -> ir.Attribute:
    """The attribute of a config or of a part of one."""
    if is_dataclass(value) and not isinstance(value, DType | type):
        items = {f.name: encode(getattr(value, f.name)) for f in fields(value)}
        return ir.DictAttr.get({"is": ir.StringAttr.get(type(value).__name__), **items})
    if isinstance(value, DType):
        return ir.TypeAttr.get(element(value))
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if isinstance(value, float):
        return ir.FloatAttr.get(ir.F64Type.get(), value)
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if value is None:
        return ir.UnitAttr.get()
    if isinstance(value, tuple | list):
        return ir.ArrayAttr.get([encode(v) for v in value])
    raise TypeError(f"a kernel config cannot hold {a_type(value)}")


def decode(a: ir.Attribute, classes: Mapping[str, type]) -> Any:
    """The inverse of ``encode``; ``classes`` maps the names of the dataclasses."""
    if isinstance(a, ir.DictAttr):
        items = {named.name: named.attr for named in a}
        kind = ir.StringAttr(items.pop("is")).value if "is" in items else "?"
        if kind not in classes:
            raise IRError(
                f"a kernel config is of the class {kind!r}, expected one of {', '.join(classes)}"
            )
        return classes[kind](**{k: decode(v, classes) for k, v in items.items()})
    if isinstance(a, ir.ArrayAttr):
        return tuple(decode(x, classes) for x in a)
    if isinstance(a, ir.TypeAttr):
        return dtype_of(a.value)
    if isinstance(a, ir.UnitAttr):
        return None
    if isinstance(a, ir.BoolAttr | ir.StringAttr | ir.IntegerAttr | ir.FloatAttr):
        return a.value
    raise IRError(f"a kernel config cannot hold {a}")
