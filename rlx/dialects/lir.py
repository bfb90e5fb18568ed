"""The ``lir`` dialect: a structured schedule over named memory.

A kernel is a declared ``func.func`` with ``lir.family`` and ``lir.config``; a launch is a ``func.call`` of
it with ``lir.range``, ``lir.grain`` and ``lir.scratch``; control is scf. Two entries: ``@prologue``, whose
launches say by ``lir.when`` which params they follow, and ``@main``. The arguments of both carry
``lir.role`` (arena, packed, error, param, input, output) and ``lir.name``.

Three ops are our own. ``lir.view`` is a place in one of those memories. ``lir.test`` reads a bool
there; it stands right before the ``scf.if`` that it decides, or ends the first region of the
``scf.while`` (which may carry ``lir.limit``, the most rounds, and ``lir.site``, the fault site of
one more). ``lir.count`` stands first in an ``scf.for`` and stores its round:

    %more = "lir.test"(%flag) : (memref<?xi8>) -> i1
    scf.if %more { func.call @add_0(...) ... }
    scf.for %i = %c0 to %c10 step %c1 {
      "lir.count"(%i, %counter) : (index, memref<?xi64>) -> ()
      func.call @add_0(...) ...
    }

This module must not use postponed annotations: the dialect classes read theirs at run time.
"""

from typing import Any

from rlx._mlir import ext, ir

__all__ = ["ROLES", "Lir"]

ROLES = ("arena", "packed", "error", "param", "constant", "input", "output")
"""The memories, in the order in which the arguments of an entry list them."""


class Lir(ext.Dialect, name="lir"):
    """Schedules: views of memory, launches, structured control."""


def _bytes(t: Any) -> int:
    element = ir.MemRefType(t).element_type
    text = str(element)
    return max(1, int("".join(c for c in text if c.isdigit())) // 8)


def _view_ok(view: Any) -> bool:
    op = view.operation

    def fail(message: str) -> bool:
        op.location.emit_error(f"lir.view: {message}")
        return False

    base, result = ir.MemRefType(op.operands[0].type), ir.MemRefType(op.results[0].type)
    offset = ir.IntegerAttr(op.attributes["offset"]).value
    if not all(isinstance(op.attributes[k], ir.DenseI64ArrayAttr) for k in ("shape", "strides")):
        return fail("shape and strides must be arrays of i64")
    shape = list(ir.DenseI64ArrayAttr(op.attributes["shape"]))
    strides = list(ir.DenseI64ArrayAttr(op.attributes["strides"]))
    if len(shape) != len(strides):
        return fail(f"shape has {len(shape)} dims and strides {len(strides)}")
    if offset < 0 or any(d < 0 for d in (*shape, *strides)):
        return fail("offset, shape and strides must not be negative")
    width = _bytes(result)
    last = sum((d - 1) * s for d, s in zip(shape, strides, strict=True)) if all(shape) else -1
    if base.has_static_shape:
        size = _bytes(base)
        for d in base.shape:
            size *= d
        if offset + (last + 1) * width > size:
            return fail(
                f"bytes {offset} to {offset + (last + 1) * width} of a memory of {size} bytes"
            )
    return True


class View(Lir.Operation, name="view", traits=[ext.Pure]):
    """A strided tensor at a byte offset of a memory; strides count elements."""

    base: ext.Operand[ir.MemRefType]
    offset: ir.IntegerAttr
    shape: Any
    strides: Any
    result: ext.Result[ir.MemRefType]

    verify_invariants = staticmethod(_view_ok)
    verify_region_invariants = staticmethod(lambda op: True)


def _element_ok(position: int, kind: str, element: str) -> Any:
    """The verifier of an op that reads or writes one element at a view."""

    def verify(view: Any) -> bool:
        op = view.operation
        found = str(ir.MemRefType(op.operands[position].type).element_type)
        if found != element:
            op.location.emit_error(f"{op.name}: {kind} is {element}, found a view of {found}")
            return False
        return True

    return staticmethod(verify)


class Test(Lir.Operation, name="test"):
    """Read a bool (one byte, not zero) when the step after it runs."""

    place: ext.Operand[ir.MemRefType]
    result: ext.Result[ir.IntegerType]

    verify_invariants = _element_ok(0, "a bool in memory", "i8")
    verify_region_invariants = staticmethod(lambda op: True)


class Count(Lir.Operation, name="count"):
    """Store the round of a loop, from 0, before the steps of the round run."""

    round: ext.Operand[ir.IndexType]
    place: ext.Operand[ir.MemRefType]

    verify_invariants = _element_ok(1, "a count in memory", "i64")
    verify_region_invariants = staticmethod(lambda op: True)
