"""The ``hir`` and ``mir`` dialects, declared in memory from the op classes.

``mir`` also has the two structural ops of fusion: ``mir.fused``, a region over outer values, and
its terminator ``mir.yield``. The declarations stay here and are never written twice: a new op class
is a new MLIR op with its verifier.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from rlx._mlir import ir
from rlx.dialects.bridge import check_attributes, node_of
from rlx.dialects.convert import from_type
from rlx.dialects.declare import (
    ANY,
    FLOAT,
    INTEGER,
    STRING,
    TENSOR,
    TYPE,
    Field,
    OpDeclaration,
    load_dialect,
)
from rlx.dialects.verify import verifier
from rlx.errors import IRError
from rlx.ir.declared import OWN_DIALECTS
from rlx.ir.op import Op, op_class, registry
from rlx.ops import load_all

__all__ = ["foreign", "load_tensor_dialects"]

_ATTRIBUTES = {"int": INTEGER, "float": FLOAT, "str": STRING, "DType": TYPE}


@verifier
def _as_inferred(op: ir.Operation) -> None:
    """The class's own infer as a verifier: operands must fit, results must be as inferred."""
    if len(op.attributes) > len(op_class(op.name).attr_fields):
        check_attributes(op)
    expected = [v.type for v in node_of(op).results]
    found = [from_type(v.type) for v in op.results]
    if expected != found:
        listed = [", ".join(f"tensor<{t}>" for t in types) for types in (found, expected)]
        raise IRError(f"result is {listed[0]}, expected {listed[1]}")


@cache
def _declared(cls: type[Op], name: str) -> OpDeclaration:
    """The declaration of a class under its name, which changes where it is declared again."""
    return OpDeclaration(
        name.partition(".")[2],
        [Field(f.name, TENSOR, "optional" * f.optional) for f in cls.operand_fields],
        [Field(a.name, _ATTRIBUTES.get(a.kind, ANY)) for a in cls.attr_fields],
        [Field(f"result{i}", TENSOR) for i in range(cls.result_count)],
        verify=_as_inferred,
    )


@verifier
def _ends_in_yield(op: ir.Operation) -> None:
    body = list(op.regions[0].blocks[0].operations) if len(op.regions[0].blocks) else []
    if not body or body[-1].operation.name != "mir.yield":
        raise IRError("its body must end in mir.yield")
    yielded = [v.type for v in body[-1].operation.operands]
    if yielded != [v.type for v in op.results]:
        raise IRError("it must yield its results")


FUSED = OpDeclaration(
    "fused",
    attributes=[Field("kind", STRING)],
    results=[Field("result", TENSOR), Field("more", TENSOR, "variadic")],
    regions=["body"],
    verify=_ends_in_yield,
)
"""A region that one kernel runs. It means what its body means; ``kind`` is a hint.

The body uses outer values directly: an IRDL variadic must be of one type, so the op cannot list its
operands. Fusing is moving ops in, un-fusing is moving them out. For the same reason the first
result has a type of its own, and those behind it are all of one.
"""

YIELD = OpDeclaration(
    "yield",
    operands=[Field("value", TENSOR), Field("more", TENSOR, "variadic")],
    pure=False,
    terminator=True,
)
"""Ends the body of ``mir.fused``."""


def foreign() -> tuple[type[Op], ...]:
    """The op classes that were declared outside RLX, under the names of other dialects."""
    return tuple(c for c in registry.values() if c.dialect not in OWN_DIALECTS)


def load_tensor_dialects() -> None:
    """Declare hir, mir and the dialects of ops from outside in the current context."""
    load_all()
    ops: dict[str, list[OpDeclaration]] = {"hir": [], "mir": [FUSED, YIELD]}
    for cls in _declarable(registry.values()):
        ops.setdefault(cls.dialect, []).append(_declared(cls, cls.name))
    for name, declared in ops.items():
        load_dialect(name, declared)


def _declarable(classes: Iterable[type[Op]]) -> list[type[Op]]:
    """All but control ops, which MLIR has as calls."""
    return [c for c in classes if c.dialect in ("hir", "mir") or c.dialect not in OWN_DIALECTS]
