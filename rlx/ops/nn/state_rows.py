"""Recurrences over rows of several sequences at once, whose states lie in slots of one memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, FaultError, ShapeError
from rlx.ir.op import Array, Cost, bad, operand, sample
from rlx.ir.value import Value, bytes_of
from rlx.ops.movement.movement import listed
from rlx.ops.movement.rearrange import stack
from rlx.ops.nn.inference import ForInference
from rlx.types import Dim, TensorType, f32, i32

__all__ = ["CausalConvRows", "StateRows", "chosen"]

OUTSIDE = "a row's slot is outside the states"


class StateRows(ForInference):
    """A recurrence whose rows are those of several sequences.

    The last operands are ``state``, which has a slot for each sequence, and i32 ``[T]`` the
    ``slots`` and the ``positions`` of the rows. Rows of a sequence follow one another, at positions
    that do; at position 0 the state is 0, whatever the slot has. A row whose position is negative
    has the result 0 and changes nothing; a slot that there is not is a FaultError. Results are
    those of the rows, and ``state`` after them. Steps are taken one by one, so the bits of a row
    depend on the rows of its sequence alone, and not on how they are cut into calls.
    """

    result_count = 2

    @property
    def state_operand(self) -> Value:
        """The state before the rows, which is the second result but for the slots of rows."""
        found = self.operands[-3]
        assert found is not None
        return found

    def check(self, rows: Dim, *shapes: tuple[str, Sequence[Dim]]) -> None:
        """Refuse operands that are not f32 of the shape beside their name, and rows of others."""
        for name, want in shapes:
            v = getattr(self, name)
            if v.dtype is not f32:
                raise DTypeError(f"{self.short}: {name} must be f32, found {v.dtype}; cast it")
            if v.shape != tuple(want):
                raise ShapeError(f"{self.short}: {name} must be {listed(want)}, found {v.type}")
        own = TensorType((rows,), i32)
        for name, v in zip(("slots", "positions"), self.operands[-2:], strict=True):
            if v is None or v.type != own:
                raise ShapeError(f"{self.short}: {name} must be i32 {listed(own.shape)}")
        if self.state_operand.shape[0] == 0:
            raise ShapeError(f"{self.short}: a state has one slot or more")

    def each_row(
        self, state: Array, slots: Array, positions: Array, step: Callable[[int, Array], None]
    ) -> Array:
        """The state after ``step(t, state of the row's slot)`` in f64 for all rows in order."""
        state = state.copy()
        for t, (s, p) in enumerate(zip(slots.tolist(), positions.tolist(), strict=True)):
            if p < 0:
                continue
            if not 0 <= s < len(state):
                raise FaultError(f"{self.short}: {OUTSIDE}")
            own = np.zeros(state.shape[1:]) if p == 0 else state[s].astype(np.float64)
            step(t, own)
            state[s] = own
        return state

    def rows_in_order(self, b: Any, body: Callable[[Any, Any, Any, Any], None]) -> None:
        """``body(t, slot, fresh, real)`` for all rows: the state is to be taken for 0 where
        ``fresh``, and nothing is to be written where not ``real``."""
        count = len(self.operands)
        k, slots = b.k, self.state_operand.shape[0]
        steps = self.operands[-1].type.static_shape[0]  # pyright: ignore[reportOptionalMemberAccess]

        def row(t: Any) -> None:
            slot, position = b.load(count - 2, [t]), b.load(count - 1, [t])
            real = position >= 0
            inside = (slot >= 0) & (b.index(slot) < slots)
            b.fault(real & k.logical_not(inside), f"{self.short}: {OUTSIDE}")
            real = real & inside
            body(t, k.select(real, b.index(slot), k.index(0)), position <= 0, real)

        b.loop(steps, row)

    def batch(self, operands: Sequence[Value | None], batched: Sequence[bool]) -> tuple[Value, ...]:
        """One after another: all share slots of other states."""
        size = next(
            v.shape[0] for v, has in zip(operands, batched, strict=True) if v is not None and has
        )
        if not is_known(size):
            raise ShapeError(f"{self.short}: a batch of {size} is not known; bind its size")
        if not size:
            raise ShapeError(f"{self.short}: a batch has one element or more, found none")
        found = [
            self.with_operands(
                [
                    v[n] if v is not None and has else v
                    for v, has in zip(operands, batched, strict=True)
                ]
            ).results
            for n in range(size)
        ]
        return tuple(stack(list(each)) for each in zip(*found, strict=True))

    def cost(self) -> Cost:
        """A handful of operations for each number of a state at each row."""
        rows, state = self.results[0].shape[0], self.state_operand.type
        moved = bytes_of([v for v in self.present if v is not self.state_operand])
        slots, size = state.shape[0], state.size
        if not is_known(rows) or not is_known(slots) or not is_known(size):
            return Cost(0, moved)
        each = size // slots
        return Cost(7 * rows * each, moved + 8 * rows * each)


_ROWS: tuple[Any, ...] = ("3xi32", "3xi32")


class CausalConvRows(StateRows, name="mir.causal_conv_rows"):
    """A convolution along each sequence, channel by channel.

    y_p = sum_j w_j x_{p-K+1+j}, with 0 before the first position. The state has the last K - 1 rows
    of each sequence.
    """

    x: Value = operand("f32 [T, C]")
    weight: Value = operand("f32 [K, C], K being 2 or more; the last one is that of the row itself")
    state: Value = operand("f32 [slots, K - 1, C]")
    slots: Value = operand("i32 [T]: the slot of each row's sequence")
    positions: Value = operand("i32 [T]: where a row stands in its sequence")

    instead = "depthwise_conv1d_causal"
    samples = (
        sample("3x5xf32", "4x5xf32", "2x3x5xf32", *_ROWS, data={3: "index:2", 4: "index:3"}),
        sample("3x16xf32", "2x16xf32", "2x1x16xf32", *_ROWS, data={3: "index:2", 4: "index:3"}),
        sample("0x2xf32", "4x2xf32", "2x3x2xf32", "0xi32", "0xi32"),
    )
    bads = (
        bad("3xf32", "4x5xf32", "2x3x5xf32", *_ROWS, match="x is .T, C.", error=ShapeError),
        bad("3x5xf32", "1x5xf32", "2x0x5xf32", *_ROWS, match="K being 2 or more", error=ShapeError),
        bad("3x5xf32", "4x6xf32", "2x3x5xf32", *_ROWS, match=r"weight must be \[4, 5\]",
            error=ShapeError),
        bad("3x5xf32", "4x5xf32", "2x4x5xf32", *_ROWS, match=r"state must be \[2, 3, 5\]",
            error=ShapeError),
        bad("3x5xf16", "4x5xf32", "2x3x5xf32", *_ROWS, match="x must be f32", error=DTypeError),
        bad("3x5xf32", "4x5xf32", "2x3x5xf32", "3xi64", "3xi32", match="slots must be i32",
            error=ShapeError),
        bad("3x5xf32", "4x5xf32", "0x3x5xf32", *_ROWS, match="one slot or more", error=ShapeError),
    )  # fmt: skip

    def infer(self) -> tuple[TensorType, TensorType]:
        if self.x.rank != 2 or self.weight.rank != 2:
            raise ShapeError(
                f"{self.short}: x is [T, C] and weight [K, C], found {self.x.type} and"
                f" {self.weight.type}"
            )
        (rows, c), taps = self.x.shape, self.weight.shape[0]
        if not is_known(taps) or taps < 2:
            raise ShapeError(f"{self.short}: weight is [K, C], K being 2 or more, found {taps}")
        slots = self.state.shape[0] if self.state.rank else 0
        self.check(
            rows, ("x", (rows, c)), ("weight", (taps, c)), ("state", (slots, taps - 1, c))
        )  # fmt: skip
        return self.x.type, self.state.type

    def reference(
        self, x: Array, weight: Array, state: Array, slots: Array, positions: Array
    ) -> tuple[Array, Array]:
        y, w = np.zeros(x.shape, np.float32), weight.astype(np.float64)

        def step(t: int, own: Array) -> None:
            seen = np.concatenate([own, x[t : t + 1].astype(np.float64)])
            y[t] = (w * seen).sum(0)
            own[:] = seen[1:]

        return y, self.each_row(state, slots, positions, step)

    def loops(self, b: Any) -> None:
        """The rows in order, for some channels at a time."""
        taps, channels = self.weight.type.static_shape
        k, kept = b.k, b.result(1)
        block = next((n for n in (16, 8, 4) if channels % n == 0), 1)
        lanes = block if k.target.lanes(f32) > 1 and block > 1 else 0

        def column(c: Any) -> None:
            zero = k.const(0, f32, lanes)

            def row(t: Any, slot: Any, fresh: Any, real: Any) -> None:
                before = [b.read(kept, [slot, j, c], lanes) for j in range(taps - 1)]
                seen = [chosen(k, fresh, zero, x, lanes) for x in before]
                seen.append(b.load(0, [t, c], lanes))
                y = zero
                for j, x in enumerate(seen):
                    y = k.fma(b.load(1, [j, c], lanes), x, y)
                b.store(0, [t, c], chosen(k, real, y, zero, lanes))

                def write() -> None:
                    for j, x in enumerate(seen[1:]):
                        b.write(kept, [slot, j, c], x)

                b.when(real, write)

            self.rows_in_order(b, row)

        def part(n: Any) -> None:
            if lanes or block == 1:
                column(n * block)
            else:
                b.loop(block, lambda j: column(n * block + j))

        b.parallel((channels // block,), part)


def chosen(k: Any, cond: Any, a: Any, b: Any, lanes: int) -> Any:
    """One of two registers by a condition that has no lanes."""
    return k.select(k.splat(cond, lanes) if lanes else cond, a, b)
