"""Rematerialisation in derivatives: ``rlx.checkpoint``, and the barrier behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlx.errors import GraphError
from rlx.ir.factors import Factors
from rlx.ir.op import Array, Op, attr, variadic
from rlx.ir.value import Value
from rlx.ops.control.control import Call, Control
from rlx.types import TensorType

if TYPE_CHECKING:
    from rlx.ir.graph import Graph

__all__ = ["Barrier", "Checkpoint"]


class Checkpoint(Control, name="control.checkpoint"):
    """What ``body`` gives for ``args``, of which a derivative in reverse mode keeps ``args`` and
    the last ``kept`` results: it computes the rest again (``rlx.checkpoint``).

    Else it is its body, which a compile puts in the place of the op.
    """

    args: tuple[Value, ...] = variadic("what the region takes")
    body: Graph = attr(doc="the region")
    kept: int = attr(0, "how many of the last results are values that a derivative needs")

    def infer(self) -> tuple[TensorType, ...]:
        self._takes(self.body, [v.type for v in self.args], "its region")
        if not 0 <= self.kept < len(self.body.outputs):
            raise GraphError(
                f"checkpoint: it keeps {self.kept} of {len(self.body.outputs)} results, expected"
                " fewer than there are"
            )
        return tuple(v.type for v in self.body.outputs)

    def run(self, call: Call, *args: Array) -> tuple[Array, ...]:
        return tuple(call(self.body, args))

    def expand(self) -> tuple[Value, ...]:
        from rlx.ops.control.remat import expanded

        return expanded(self)

    def record(self) -> tuple[Sequence[Value], dict[Op, Sequence[Value]]]:
        """Nothing is kept but what is a result."""
        return self.results, dict.fromkeys([self], ())

    def vjp(
        self,
        *cotangents: Value | None,
        record: Sequence[Value] = (),
        wanted: Sequence[bool] | None = None,
    ) -> list[Value | None]:
        from rlx.ops.control.remat import checkpoint_vjp

        return checkpoint_vjp(self, cotangents, wanted or [True] * len(self.args))

    def jvp(self, *tangents: Value | None) -> tuple[Value | None, ...]:
        from rlx.ops.control.remat import checkpoint_jvp

        return checkpoint_jvp(self, tangents)

    def batch(
        self, operands: Sequence[Value], batched: Sequence[bool]
    ) -> tuple[tuple[Value, bool], ...]:
        from rlx.ops.control.remat import checkpoint_batch

        return checkpoint_batch(self, operands, batched)


class Barrier(Control, name="control.barrier"):
    """Its operands, none of which is there before all of them are.

    What is computed from the results is computed after all operands, and is not merged with the
    same computation from the operands. Nothing is copied.
    """

    args: tuple[Value, ...] = variadic("any tensors")

    def infer(self) -> tuple[TensorType, ...]:
        if not self.args:
            raise GraphError("barrier: it has no operands, expected one or more")
        return tuple(v.type for v in self.args)

    def run(self, call: Call, *args: Array) -> tuple[Array, ...]:
        return args

    def factors(self) -> Factors:
        dims = [[f"{i}.{d}" for d in range(v.rank)] for i, v in enumerate(self.args)]
        return Factors(self, dims, dims)

    def vjp(self, *cotangents: Value | None) -> list[Value | None]:
        return list(cotangents)

    def jvp(self, *tangents: Value | None) -> tuple[Value | None, ...]:
        return tangents

    def batch(
        self, operands: Sequence[Value], batched: Sequence[bool]
    ) -> tuple[tuple[Value, bool], ...]:
        results = self.with_operands(operands).results
        return tuple(zip(results, batched, strict=True))
