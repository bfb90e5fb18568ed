"""What collectives have in common: the axis of the mesh, and how they are checked and batched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rlx.base import meeting
from rlx.base.mesh import Axis, check_axis
from rlx.errors import GraphError, UnsupportedError, shown
from rlx.ir.op import Array, Op, attr, operand
from rlx.ir.value import Value
from rlx.types import Dim, TensorType

__all__ = ["Collective", "Moving", "axis_given"]


def axis_given(axis: Any, what: str) -> Axis:
    """The axis that a user gave."""
    if not isinstance(axis, Axis):
        raise GraphError(f"{what}: axis is {shown(axis)}, expected one of a mesh: mesh['data']")
    return axis


class Collective(Op):
    """An op in which all ranks along an axis take part, each with an operand of the same type.

    All ranks run the same graph, and meet in the order of its collectives. ``across`` is the
    meaning, in NumPy, for all ranks at once.
    """

    flops_per_element = 0
    meets = True

    kind: ClassVar[str] = ""
    """What the step of a schedule is called (``rlx.schedule.steps.COLLECTIVES``)."""

    @property
    def along(self) -> Axis:
        """The axis of the mesh: a subclass declares the attributes ``axis`` and ``ranks``."""
        return Axis(self.attrs["axis"], self.attrs["ranks"])

    def infer(self) -> TensorType:
        check_axis(self.along.name, self.along.ranks)
        return self.result_type()

    def result_type(self) -> TensorType:
        """The type of the result on each rank."""
        raise AssertionError(f"{self.name} defines no result_type")

    def across(self, given: Sequence[Array]) -> Sequence[Array]:
        """The results on all ranks, from the operands of all, in order."""
        raise AssertionError(f"{self.name} defines no across")

    def simulated(self, operands: Sequence[Value], size: int) -> tuple[Value, bool]:
        """The op where an operand has the ranks, so many, as a new first axis, or none of them if
        it is the same on all: the result, and whether it has that axis."""
        raise AssertionError(f"{self.name} defines no simulated")

    def flat(self) -> bool:
        """Whether blocks of memory are moved whole, as communicators do."""
        return True

    def block(self) -> Dim:
        """The elements of a block that it moves."""
        return 0

    def peers(self) -> tuple[int, ...]:
        """The ranks that it names."""
        return ()

    def reduction(self) -> str:
        """How it combines elements, if it does."""
        return "sum"

    def one(self) -> Value:
        """What it is on one rank."""
        raise AssertionError(f"{self.name} defines no one")

    def by_blocks(self) -> Value:
        """The same by a collective of which ``flat`` is true."""
        raise AssertionError(f"{self.name} defines no by_blocks")

    def expand(self) -> Value:
        along = self.along
        if along.ranks == 1:
            return self.one()
        if not self.flat():
            return self.by_blocks()
        raise UnsupportedError(
            f"{self.short} over the {along.ranks} ranks along {along.name!r} run on CPUs and GPUs,"
            " which have communicators; compile the graph for them",
            self.location,
        )


class Moving(Collective):
    """A collective of a tensor."""

    x: Value = operand("a tensor, of the same type on every rank")
    axis: str = attr(doc="the name of the mesh's axis")
    ranks: int = attr(doc="how many ranks there are along it")

    def block(self) -> Dim:
        return self.x.type.size

    def reference(self, x: Array) -> Array:
        if self.ranks == 1:
            return self.across([x])[0]
        here = meeting.here(self.short, self.axis, self.ranks)
        return here.exchange(self.axis, self.ranks, self.short, x, self.across)

    def simulated(self, operands: Sequence[Value], size: int) -> tuple[Value, bool]:
        return self.named(operands[0], size)

    def named(self, x: Value, size: int) -> tuple[Value, bool]:
        """``simulated`` of the one operand."""
        raise AssertionError(f"{self.name} defines no named")

    def wide(self, x: Value, size: int) -> Value:
        """The operand with the axis of the ranks, whether it had it or not."""
        return x if x.rank > self.x.rank else x.expand((size, *x.shape))

    def over(self, x: Value, kind: type[Moving], *rest: Any) -> Value:
        """Another collective along the same axis."""
        return kind(x, self.axis, self.ranks, *rest).out

    def one(self) -> Value:
        return self.x
