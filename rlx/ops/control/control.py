"""Control flow: ops whose attributes are graphs of their own, run as often as the data says.

A body is isolated: it reads its inputs alone, and what it takes from around the op is an operand.
``rlx.ops.control.builders`` traces Python functions into bodies. In MLIR a body is a function, and
the op is a call (``rlx.dialects.export``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlx.base.dims import SymDim, is_known
from rlx.errors import DTypeError, FaultError, GraphError, ShapeError
from rlx.ir.op import Array, Attr, Op, attr, operand, variadic
from rlx.ir.value import Value
from rlx.types import Dim, TensorType, bool_, i64

if TYPE_CHECKING:
    from rlx.ir.graph import Graph

__all__ = ["Cond", "Control", "Scan", "WhileLoop"]

Call = Callable[["Graph", Sequence[Array]], list[Array]]


class Control(Op):
    """What the ops with bodies share."""

    @classmethod
    def body_fields(cls) -> tuple[Attr, ...]:
        """The attributes that are bodies."""
        return tuple(a for a in cls.attr_fields if a.kind == "Graph")

    def _takes(self, body: Graph, types: Sequence[TensorType], what: str) -> None:
        found = [v.type for v in body.inputs]
        if found != list(types):
            raise GraphError(f"{self.short}: {what} takes {_list(found)}, expected {_list(types)}")
        if body.params:
            raise GraphError(
                f"{self.short}: {what} has the param {body.params[0].name!r};"
                " declare it in the graph around"
            )

    def _gives(self, body: Graph, types: Sequence[TensorType], what: str) -> None:
        found = [v.type for v in body.outputs]
        if found != list(types):
            raise ShapeError(f"{self.short}: {what} gives {_list(found)}, expected {_list(types)}")


class Cond(Control, name="control.cond"):
    """One of two bodies, by a condition: ``then`` where it is true, else ``otherwise``.

    Both take all of ``args`` and give results of the same types; only one of them runs.
    """

    pred: Value = operand("a bool of one element")
    args: tuple[Value, ...] = variadic("the inputs of both bodies")
    then: Graph = attr(doc="what runs where the condition is true")
    otherwise: Graph = attr(doc="what runs where it is false")

    def infer(self) -> tuple[TensorType, ...]:
        _condition(self.pred.type, "cond: the condition")
        types = [v.type for v in self.args]
        self._takes(self.then, types, "its first body")
        self._takes(self.otherwise, types, "its second body")
        results = tuple(v.type for v in self.then.outputs)
        self._gives(self.otherwise, results, "its second body")
        return results

    def run(self, call: Call, pred: Array, *args: Array) -> tuple[Array, ...]:
        return tuple(call(self.then if pred.reshape(()) else self.otherwise, args))

    def vjp(self, *cotangents: Value | None) -> list[Value | None]:
        from rlx.ops.control.derivatives import cond_vjp

        return cond_vjp(self, cotangents)

    def jvp(self, *tangents: Value | None) -> tuple[Value | None, ...]:
        from rlx.ops.control.derivatives import cond_jvp

        return cond_jvp(self, tangents)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> tuple[Value, ...]:
        from rlx.ops.control.batching import cond_batch

        return cond_batch(self, operands, batched)


class WhileLoop(Control, name="control.while_loop"):
    """Carried values that a body replaces again and again while a test on them is true.

    The first ``carries`` of ``args`` are what is carried; the rest stays as it is. ``limit`` is the
    most rounds that may run, one more is a fault; -1 is no limit.
    """

    args: tuple[Value, ...] = variadic("what is carried, then what every round reads")
    test: Graph = attr(doc="gives whether another round runs: one bool")
    body: Graph = attr(doc="gives what is carried on")
    carries: int = attr(doc="how many of the operands are carried")
    limit: int = attr(-1, "the most rounds; -1: any number")

    def infer(self) -> tuple[TensorType, ...]:
        if not 0 < self.carries <= len(self.args):
            raise GraphError(
                f"while_loop: it carries {self.carries} of {len(self.args)} operands, expected 1"
                " or more"
            )
        if self.limit < -1:
            raise GraphError(f"while_loop: limit is {self.limit}, expected -1 (none) or more")
        types = [v.type for v in self.args]
        self._takes(self.test, types, "its test")
        self._takes(self.body, types, "its body")
        if len(self.test.outputs) != 1:
            found = len(self.test.outputs)
            raise GraphError(f"while_loop: its test gives {found} values, expected one bool")
        _condition(self.test.outputs[0].type, "while_loop: its test")
        carried = tuple(types[: self.carries])
        self._gives(self.body, carried, "its body")
        return carried

    @property
    def fault(self) -> str:
        """What is wrong where the limit is met."""
        return f"while_loop: its test is still true after {self.limit} rounds"

    def run(self, call: Call, *args: Array) -> tuple[Array, ...]:
        carried, fixed, rounds = list(args[: self.carries]), args[self.carries :], 0
        while call(self.test, [*carried, *fixed])[0].reshape(()):
            if rounds == self.limit:
                raise FaultError(self.fault, self.location)
            carried, rounds = call(self.body, [*carried, *fixed]), rounds + 1
        return tuple(carried)

    def vjp(self, *cotangents: Value | None) -> list[Value | None]:
        from rlx.ops.control.derivatives import while_vjp

        return while_vjp(self)

    def jvp(self, *tangents: Value | None) -> tuple[Value | None, ...]:
        from rlx.ops.control.derivatives import while_jvp

        return while_jvp(self, tangents)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> tuple[Value, ...]:
        from rlx.ops.control.batching import while_batch

        return while_batch(self, operands, batched)


class Scan(Control, name="control.scan"):
    """A body run over the first axis of some operands, carrying values from round to round.

    ``args`` are what is carried, what every round reads, and last the ``scanned`` ones, whose first
    axis has the length. The body takes the round (an i64), what is carried, what is fixed, and
    element ``round`` of every scanned operand; it gives what is carried on, then values that are
    stacked along a new first axis. The results are what is carried at the end, and the stacks.
    ``reverse`` runs the rounds from the last to the first.
    """

    args: tuple[Value, ...] = variadic("what is carried, what is fixed, what is scanned")
    body: Graph = attr(doc="one round")
    length: tuple[Dim, ...] = attr(doc="the number of rounds, a single dim")
    carries: int = attr(doc="how many of the operands are carried")
    scanned: int = attr(doc="how many of the operands are scanned")
    reverse: bool = attr(False, "from the last round to the first")

    @property
    def rounds(self) -> int | SymDim:
        """The number of rounds."""
        return self.length[0]

    def infer(self) -> tuple[TensorType, ...]:
        fixed = len(self.args) - self.carries - self.scanned
        if min(self.carries, self.scanned, fixed) < 0 or len(self.length) != 1:
            raise GraphError(
                f"scan: {self.carries} carried and {self.scanned} scanned of {len(self.args)}"
                f" operands over a length {self.length} of one dim have no meaning"
            )
        if is_known(self.rounds) and self.rounds < 0:
            raise ShapeError(f"scan: the length is {self.rounds}, expected 0 or more")
        types = [v.type for v in self.args]
        elements = [self._element(t) for t in types[len(types) - self.scanned :]]
        whole = types[: len(types) - self.scanned]
        self._takes(self.body, [TensorType((), i64), *whole, *elements], "its body")
        carried = tuple(types[: self.carries])
        given = tuple(v.type for v in self.body.outputs)
        if given[: self.carries] != carried:
            raise ShapeError(
                f"scan: its body carries on {_list(given[: self.carries])}, expected"
                f" {_list(carried)}"
            )
        return carried + tuple(t.with_shape((self.rounds, *t.shape)) for t in given[self.carries :])

    def _element(self, t: TensorType) -> TensorType:
        if not t.shape or t.shape[0] != self.rounds:
            raise ShapeError(
                f"scan: it runs {self.rounds} rounds over {t}, whose first axis must be as long"
            )
        return t.with_shape(t.shape[1:])

    def run(self, call: Call, *args: Array) -> tuple[Array, ...]:
        at, end = self.carries, len(args) - self.scanned
        carried, fixed, scanned = list(args[:at]), args[at:end], args[end:]
        n = int(self.rounds) if is_known(self.rounds) else len(scanned[0])
        stacks = [
            np.empty((n, *v.type.static_shape), v.dtype.numpy) for v in self.body.outputs[at:]
        ]
        for i in reversed(range(n)) if self.reverse else range(n):
            given = call(
                self.body, [np.asarray(i, np.int64), *carried, *fixed, *(x[i] for x in scanned)]
            )
            carried = given[:at]
            for stack, y in zip(stacks, given[at:], strict=True):
                stack[i] = y
        return (*carried, *stacks)

    def vjp(
        self,
        *cotangents: Value | None,
        record: Sequence[Value] | None = None,
        wanted: Sequence[bool] | None = None,
    ) -> list[Value | None]:
        from rlx.ops.control.scan_reverse import scan_vjp

        return scan_vjp(self, cotangents, record, wanted)

    def record(self) -> tuple[Sequence[Value], dict[Op, Sequence[Value]]]:
        from rlx.ops.control.scan_reverse import scan_record

        return scan_record(self)

    def jvp(self, *tangents: Value | None) -> tuple[Value | None, ...]:
        from rlx.ops.control.derivatives import scan_jvp

        return scan_jvp(self, tangents)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> tuple[Value, ...]:
        from rlx.ops.control.batching import scan_batch

        return scan_batch(self, operands, batched)


def _condition(t: TensorType, what: str) -> None:
    if t.dtype is not bool_:
        raise DTypeError(f"{what} is {t}, expected a bool; compare it with something")
    if t.size != 1:
        raise ShapeError(f"{what} has the shape {list(t.shape)}, expected one element")


def _list(types: Sequence[TensorType]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"
