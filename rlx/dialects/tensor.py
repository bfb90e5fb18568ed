"""The ``hir`` and ``mir`` dialects, declared in memory from the op classes.

``mir`` also has the two structural ops of fusion: ``mir.fused``, a region over outer values, and
its terminator ``mir.yield``. The declarations stay here and are never written twice: a new op class
is a new MLIR op with its verifier.

This module must not use postponed annotations: the dialect classes read theirs at run time.
"""

# The bindings type their dialect classes at run time, from keyword arguments of the class.
# pyright: reportGeneralTypeIssues=false, reportUntypedBaseClass=false, reportCallIssue=false

from functools import cache
from typing import Any, Optional

from rlx._mlir import ext, ir
from rlx.dialects.bridge import check_attributes, node_of
from rlx.dialects.convert import from_type
from rlx.dialects.verify import verifier
from rlx.errors import IRError
from rlx.ops import load_all
from rlx.ops.base import OWN_DIALECTS, Op, op_class, registry

__all__ = ["Hir", "Mir", "dialects_of", "foreign"]

Tensor = ext.Operand[ir.RankedTensorType]


class Hir(ext.Dialect, name="hir"):
    """Blocks as the model builder said them; a hir module holds mir ops too."""


class Mir(ext.Dialect, name="mir"):
    """Primitive and composite tensor ops."""


_ATTRIBUTES = {
    "int": ir.IntegerAttr,
    "float": ir.FloatAttr,
    "str": ir.StringAttr,
    "DType": ir.TypeAttr,
}


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


def _declare(dialect: Any, cls: type[Op]) -> None:
    notes: dict[str, Any] = {}
    for f in cls.operand_fields:
        notes[f"{f.name}_"] = Optional[Tensor] if f.optional else Tensor  # noqa: UP045
    for a in cls.attr_fields:
        notes[a.name] = _ATTRIBUTES.get(a.kind, Any)
    for i in range(cls.result_count):
        notes[f"result{i}"] = ext.Result[ir.RankedTensorType]
    body = {
        "__annotations__": notes,
        "verify_invariants": staticmethod(_as_inferred),
        "verify_region_invariants": lambda op: True,
    }
    type(
        cls.__name__ + "Op",
        (dialect.Operation,),
        body,
        name=cls.name.split(".")[1],
        traits=[ext.Pure],
    )


@verifier
def _ends_in_yield(op: ir.Operation) -> None:
    body = list(op.regions[0].blocks[0].operations) if len(op.regions[0].blocks) else []
    if not body or body[-1].operation.name != "mir.yield":
        raise IRError("its body must end in mir.yield")
    yielded = [v.type for v in body[-1].operation.operands]
    if yielded != [v.type for v in op.results]:
        raise IRError("it must yield its result")


class Fused(Mir.Operation, name="fused", traits=[ext.Pure]):
    """A region that one kernel runs. It means what its body means; ``kind`` is a hint.

    The body uses outer values directly: an IRDL variadic must be of one type, so the op cannot list
    its operands. Fusing is moving ops in, un-fusing is moving them out.
    """

    kind: ir.StringAttr
    result: ext.Result[ir.RankedTensorType]
    body: ext.Region

    verify_invariants = staticmethod(lambda op: True)
    verify_region_invariants = staticmethod(_ends_in_yield)


class Yield(Mir.Operation, name="yield", traits=[ir.IsTerminatorTrait]):
    """Ends the body of ``mir.fused``."""

    value: ext.Operand[ir.RankedTensorType]


def foreign() -> tuple[type[Op], ...]:
    """The op classes that were declared outside RLX, under the names of other dialects."""
    return tuple(c for c in registry.values() if c.dialect not in OWN_DIALECTS)


@cache
def dialects_of(classes: tuple[type[Op], ...]) -> tuple[Any, ...]:
    """Dialects that declare these op classes."""
    made: dict[str, Any] = {}
    for cls in classes:
        if cls.dialect not in made:
            made[cls.dialect] = type(cls.dialect, (ext.Dialect,), {}, name=cls.dialect)
        _declare(made[cls.dialect], cls)
    return tuple(made.values())


load_all()
for _cls in list(registry.values()):
    if _cls.dialect in ("hir", "mir"):
        _declare({"hir": Hir, "mir": Mir}[_cls.dialect], _cls)
