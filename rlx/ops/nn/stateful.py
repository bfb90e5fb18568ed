"""Common base of recurrences with a state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rlx.errors import DTypeError, ShapeError
from rlx.ir.value import Value
from rlx.ops.by_formula import ByFormula
from rlx.ops.movement.movement import listed
from rlx.ops.nn.heads import check_floats
from rlx.types import FLOATS, Dim, DType, bf16, f16, f32

__all__ = ["Stateful"]


class Stateful(ByFormula):
    """A recurrence over sequences. Its last operand is an optional state before the first step, and
    its second result the state after the last."""

    dtypes = FLOATS
    result_count = 2
    shared: ClassVar[tuple[str, ...]] = ()
    """The operands that all rows have in common."""

    @property
    def wide(self) -> DType:
        """The type that is computed in, which the state has: f32 for 16-bit floats."""
        own = self.present[0].dtype
        return f32 if own in (f16, bf16) else own

    def check(self, *shapes: tuple[str, Sequence[Dim]]) -> None:
        """Refuse operands that are not of one float type and of the shape beside their name, and a
        state, the last operand, that is not of their type or the wide one."""
        state = self.operands[-1]
        check_floats(self.short, [v for v in self.present if v is not state])
        for name, want in shapes:
            v = getattr(self, name)
            if v is not None and v.shape != tuple(want):
                raise ShapeError(f"{self.short}: {name} must be {listed(want)}, found {v.type}")
        if state is not None and state.dtype not in (self.present[0].dtype, self.wide):
            raise DTypeError(f"{self.short}: the state must be {self.wide}, found {state.dtype}")

    def batch(self, operands: Sequence[Value | None], batched: Sequence[bool]) -> tuple[Value, ...]:
        """The new axis joins the first, which counts sequences, where no shared operand has it."""
        shared = [f.name in self.shared for f in self.operand_fields]
        if any(s and has for s, has in zip(shared, batched, strict=True)):
            return super().batch(operands, batched)
        pairs = list(zip(operands, batched, strict=True))
        size = next(v.shape[0] for v, has in pairs if v is not None and has)
        rows = self.present[0].shape[0]

        def merged(v: Value, has: bool) -> Value:
            v = v if has else v.expand((size, *v.shape))
            return v.reshape((size * rows, *v.shape[2:]))

        node = self.with_operands(
            [
                v if v is None or s else merged(v, has)
                for v, s, has in zip(operands, shared, batched, strict=True)
            ]
        )
        return tuple(r.reshape((size, rows, *r.shape[1:])) for r in node.results)
