"""The ``lir`` dialect: a structured schedule over named memory.

A kernel is a declared ``func.func`` with ``lir.family`` and ``lir.config``; a launch is a
``func.call`` of it with ``lir.range``, ``lir.grain`` and ``lir.scratch``; control is scf. What a
launch is for may stand there too, for profiles: ``lir.ops``, ``lir.flops`` and ``lir.bytes``. Two
entries: ``@prologue``, whose launches say by ``lir.when`` which params they follow, and ``@main``.
The arguments of both carry ``lir.role`` (arena, packed, error, param, input, output) and
``lir.name``.

Other ops are our own. ``lir.view`` is a place in one of those memories. ``lir.test`` reads a bool
there; it stands right before the ``scf.if`` that it decides, or ends the first region of the
``scf.while`` (which may carry ``lir.limit``, the most rounds, and ``lir.site``, the fault site of
one more). ``lir.count`` stands first in an ``scf.for`` and stores its round. An ``scf.for`` with
``lir.reverse`` runs its rounds from the last to the first. A step that holds no others is an op on
its places, such as ``lir.collective``, which is what the ranks along an axis of a mesh do together:
with ``lir.apart`` it may run beside what follows, up to a ``lir.await``.
A view inside a loop may move with the rounds of the loops around it, by so many bytes each:

    %more = "lir.test"(%flag) : (memref<?xi8>) -> i1
    scf.if %more { func.call @add_0(...) ... }
    scf.for %i = %c0 to %c10 step %c1 {
      %x = "lir.view"(%input0, %i) {offset = 0 : i64, moves = array<i64: 64>, ...}
      "lir.count"(%i, %counter) : (index, memref<?xi64>) -> ()
      func.call @add_0(...) ...
    }
"""

from __future__ import annotations

from typing import Any

from rlx._mlir import ir
from rlx.dialects.declare import (
    ANY,
    INDEX,
    INTEGER,
    INTEGER_TYPE,
    MEMREF,
    STRING,
    Field,
    OpDeclaration,
    load_dialect,
)
from rlx.dialects.verify import verifier
from rlx.errors import IRError
from rlx.schedule import steps
from rlx.schedule.steps import KINDS

__all__ = ["PLAIN", "check_extent", "load_lir", "places_of", "words_of"]


def _bytes(t: Any) -> int:
    item = ir.MemRefType(t).element_type
    if isinstance(item, ir.ComplexType):
        return 2 * item.element_type.width // 8
    return max(1, item.width // 8)


@verifier
def _check_view(op: Any) -> None:
    if len(op.operands) < 1 or len(op.results) != 1:
        found = f"{len(op.operands)} and {len(op.results)}"
        raise IRError(f"it takes a base and rounds and gives 1 result, found {found}")
    base, *rounds = op.operands
    for what, value in (("base", base), ("result", op.results[0])):
        if not isinstance(value.type, ir.MemRefType):
            raise IRError(f"the {what} is {value.type}, expected a memref")
    attrs = op.attributes
    if "offset" not in attrs or not isinstance(attrs["offset"], ir.IntegerAttr):
        raise IRError("offset must be an i64")
    if not all(
        k in attrs and isinstance(attrs[k], ir.DenseI64ArrayAttr) for k in ("shape", "strides")
    ):
        raise IRError("shape and strides must be arrays of i64")
    # The map of attributes has no get.
    moves = attrs["moves"] if "moves" in attrs else ()  # noqa: SIM401
    listed = isinstance(moves, ir.DenseI64ArrayAttr) or moves == ()
    if not listed or len(moves) != len(rounds):
        raise IRError(f"moves must be {len(rounds)} numbers of i64, one for each round")
    if any(step < 0 for step in moves):
        raise IRError("moves must not be negative")
    check_extent(op)


def check_extent(op: Any, moved: int = 0) -> None:
    """Raise IRError unless a view is well-formed and, ``moved`` by so many bytes, ends before its
    memory does, as far as that has a size."""
    attrs = op.attributes
    offset, shape, strides = attrs["offset"].value, list(attrs["shape"]), list(attrs["strides"])
    if len(shape) != len(strides):
        raise IRError(f"shape has {len(shape)} dims and strides {len(strides)}")
    if offset < 0 or any(d < 0 for d in (*shape, *strides)):
        raise IRError("offset, shape and strides must not be negative")
    base = op.operands[0].type
    width = _bytes(op.results[0].type)
    last = sum((d - 1) * s for d, s in zip(shape, strides, strict=True)) if all(shape) else -1
    end = offset + moved + (last + 1) * width
    if base.has_static_shape:
        size = _bytes(base)
        for d in base.shape:
            size *= d
        if end > size:
            raise IRError(f"bytes {offset + moved} to {end} of a memory of {size} bytes")


def _types(values: Any) -> str:
    return " and ".join(str(v.type) for v in values) or "nothing"


def _views(value: Any, element: str) -> bool:
    return isinstance(value.type, ir.MemRefType) and str(value.type.element_type) == element


@verifier
def _check_test(op: Any) -> None:
    ends = [str(v.type) for v in op.results] == ["i1"]
    if len(op.operands) == 1 and _views(op.operands[0], "i8") and ends:
        return
    found = f"{_types(op.operands)} and {_types(op.results)}"
    raise IRError(f"it reads a view of i8 and gives an i1, found {found}")


@verifier
def _check_count(op: Any) -> None:
    values = list(op.operands)
    if len(values) == 2 and str(values[0].type) == "index" and _views(values[1], "i64"):
        return
    raise IRError(f"it stores an index in a view of i64, found {_types(values)}")


VIEW = OpDeclaration(
    "view",
    [Field("base", MEMREF), Field("rounds", INDEX, "variadic")],
    [Field("offset", INTEGER), Field("shape", ANY), Field("strides", ANY)],
    [Field("result", MEMREF)],
    verify=_check_view,
)
"""A strided tensor at a byte offset of a memory; strides count elements. Each of ``rounds`` adds as
many bytes to the offset as ``moves`` says."""

TEST = OpDeclaration(
    "test", [Field("place", MEMREF)], (), [Field("result", INTEGER_TYPE)],
    verify=_check_test, pure=False,
)  # fmt: skip
"""Read a bool (one byte, not zero) when the step after it runs."""


PLAIN: dict[str, type] = {
    f"lir.{kind.__name__.lower()}": kind
    for kind, fields in KINDS.items()
    if all(f.kind in ("word", "words", "flag", "place", "place?") for f in fields)
}
"""The steps that hold no others and launch nothing, by their ops. The text of one follows from its
row in ``KINDS``: its places are operands, its words attributes, and so are flags that are set."""


def places_of(kind: type) -> list[steps.Field]:
    """The places of a step."""
    return [f for f in KINDS[kind] if f.kind in ("place", "place?")]


def words_of(kind: type) -> list[steps.Field]:
    """The words of a step that its text says: an element type is that of what lies at the last
    place."""
    return [f for f in KINDS[kind] if f.kind in ("word", "words") and f.unit != "element type"]


def flags_of(kind: type) -> dict[str, str]:
    """The flags of a step by the names of their marks."""
    return {f"lir.{f.name}": f.name for f in KINDS[kind] if f.kind == "flag"}


def _plain(kind: type) -> OpDeclaration:
    places = places_of(kind)
    counts = sorted({len(places), len([f for f in places if f.kind == "place"])})

    @verifier
    def check(op: Any) -> None:
        if len(op.operands) not in counts:
            takes = " or ".join(map(str, counts))
            raise IRError(f"it takes {takes} places, found {_types(op.operands)}")

    return OpDeclaration(
        kind.__name__.lower(),
        [Field("places", MEMREF, "variadic")] if places else [],
        [Field(f.name, _attribute(f)) for f in words_of(kind)],
        verify=check,
        pure=False,
    )


def _attribute(f: steps.Field) -> str:
    if f.names or f.unit == "letters":
        return STRING
    return ANY if f.kind == "words" else INTEGER


COUNT = OpDeclaration(
    "count", [Field("round", INDEX), Field("place", MEMREF)], verify=_check_count, pure=False
)
"""Store the round of a loop, from 0, before the steps of the round run."""


def load_lir() -> None:
    """Declare lir in the current context."""
    load_dialect("lir", [VIEW, TEST, COUNT, *map(_plain, PLAIN.values())])
