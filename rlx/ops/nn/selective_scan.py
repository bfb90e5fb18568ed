"""The selective scan of state-space models."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factors
from rlx.ir.op import Array, Cost, bad, operand, optional, sample
from rlx.ir.value import Value, bytes_of
from rlx.ops.movement.movement import zeros
from rlx.ops.movement.slicing import Concat
from rlx.ops.nn.stateful import Stateful
from rlx.ops.pointwise.cast import converted, widened
from rlx.ops.pointwise.unary import Exp
from rlx.ops.reduction.recurrence import LinearRecurrence
from rlx.types import TensorType

__all__ = ["SelectiveScan"]


class SelectiveScan(Stateful, name="mir.selective_scan"):
    """The recurrence of Mamba (A. Gu, T. Dao, 2023), for each channel h, and its last state.

    s_t = exp(delta_t a) s_{t-1} + delta_t x_t b_t, with a state s of n numbers; y_t is the inner
    product of c_t and s_t, plus d x_t. The state begins at 0 or as given. It is computed and given
    in f32 where the operands have 16 bits.
    """

    x: Value = operand("[B, S, H]")
    delta: Value = operand("the step sizes [B, S, H]")
    a: Value = operand("[H, N], negative where the state is to decay")
    b: Value = operand("[B, S, N]: how the input enters")
    c: Value = operand("[B, S, N]: how the state is read")
    d: Value | None = optional("[H]: what goes past the state")
    state: Value | None = optional("[B, H, N] before the first step")

    shared = ("a", "d")

    samples = (
        sample("2x5x3xT", "2x5x3xT", "3x4xT", "2x5x4xT", "2x5x4xT", data={1: "positive"}),
        sample(
            "1x3x2xT", "1x3x2xT", "2x3xT", "1x3x3xT", "1x3x3xT", "2xT", "1x2x3xT",
            data={1: "positive"},
        ),
        sample("2x0x3xT", "2x0x3xT", "3x2xT", "2x0x2xT", "2x0x2xT", "3xT", "2x3x2xT"),
        sample("1x2x1xT", "1x2x1xT", "1x0xT", "1x2x0xT", "1x2x0xT"),
    )  # fmt: skip
    bads = (
        bad("5x3xf32", "5x3xf32", "3x4xf32", "5x4xf32", "5x4xf32", match="x is .B, S, H., found",
            error=ShapeError),
        bad("2x5x3xf32", "2x5x3xf32", "4xf32", "2x5x4xf32", "2x5x4xf32", match="a is .H, N., found",
            error=ShapeError),
        bad("2x5x3xf32", "2x5x2xf32", "3x4xf32", "2x5x4xf32", "2x5x4xf32",
            match=r"delta must be \[2, 5, 3\]", error=ShapeError),
        bad("2x5x3xf32", "2x5x3xf32", "3x4xf32", "2x5x4xf32", "2x5x3xf32",
            match=r"c must be \[2, 5, 4\]", error=ShapeError),
        bad("2x5x3xf32", "2x5x3xf32", "3x4xf32", "2x5x4xf32", "2x5x4xf64", match="one type",
            error=DTypeError),
        bad("2x5x3xf32", "2x5x3xf32", "3x4xf32", "2x5x4xf32", "2x5x4xf32", None, "2x3x4xf16",
            match="state must be f32", error=DTypeError),
    )  # fmt: skip

    def infer(self) -> tuple[TensorType, TensorType]:
        if self.x.rank != 3:
            raise ShapeError(f"{self.short}: x is [B, S, H], found {self.x.type}")
        if self.a.rank != 2:
            raise ShapeError(f"{self.short}: a is [H, N], found {self.a.type}")
        (rows, steps, h), n = self.x.shape, self.a.shape[1]
        inner = (rows, steps, n)
        self.check(
            ("delta", self.x.shape), ("a", (h, n)), ("b", inner), ("c", inner), ("d", (h,)),
            ("state", (rows, h, n)),
        )  # fmt: skip
        return self.x.type, TensorType((rows, h, n), self.wide)

    def reference(
        self, x: Array, delta: Array, a: Array, b: Array, c: Array,
        d: Array | None, state: Array | None,
    ) -> tuple[Array, Array]:  # fmt: skip
        x, delta, a, b, c = (np.asarray(v, np.float64) for v in (x, delta, a, b, c))
        rows, steps, h = x.shape
        s = np.zeros((rows, h, a.shape[1]))
        s = s if state is None else s + np.asarray(state, np.float64)
        y = np.zeros(x.shape)
        for t in range(steps):
            step = delta[:, t, :, None]
            s = np.exp(step * a) * s + step * x[:, t, :, None] * b[:, t, None, :]
            y[:, t] = (s * c[:, t, None, :]).sum(-1)
        if d is not None:
            y += np.asarray(d, np.float64) * x
        return converted(y, self.x.dtype), converted(s, self.wide)

    def loops(self, b: Any) -> None:
        """The steps in order, channels side by side; the state in registers where they hold it."""
        rows, steps, h = self.x.type.static_shape
        n = int(self.a.type.static_shape[1])
        k, wide, kept = b.k, self.wide, b.result(1)
        lanes = n if n > 1 and n & (n - 1) == 0 and n <= 4 * k.target.lanes(wide) > 4 else 0

        def read_state(*at: Any) -> Any:
            return k.const(0, wide, lanes) if self.state is None else b.load(6, at, lanes)

        def channel(r: Any, ch: Any) -> None:
            def moved(t: Any, j: Any, s: Any, step: Any, pushed: Any) -> Any:
                decay = k.exp(step * b.load(2, [ch, j], lanes))
                return decay * s + pushed * b.load(3, [r, t, j], lanes)

            def entering(t: Any) -> tuple[Any, Any, Any]:
                x, step = b.load(0, [r, t, ch]), b.load(1, [r, t, ch])
                past = b.const(0, wide) if self.d is None else x * b.load(5, [ch])
                return step, step * x, past

            def by_vector(t: Any, s: Any) -> Any:
                step, pushed, past = entering(t)
                s = moved(t, 0, s, step, pushed)
                b.store(0, [r, t, ch], k.reduce("add", s * b.load(4, [r, t, 0], lanes)) + past)
                return s

            def by_element(t: Any) -> None:
                step, pushed, past = entering(t)

                def one(j: Any, y: Any) -> Any:
                    s = moved(t, j, b.read(kept, [r, ch, j]), step, pushed)
                    b.write(kept, [r, ch, j], s)
                    return y + s * b.load(4, [r, t, j])

                (y,) = b.loop(n, one, [past])
                b.store(0, [r, t, ch], y)

            if lanes:
                (s,) = b.loop(steps, by_vector, [read_state(r, ch, 0)])
                b.write(kept, [r, ch, 0], s)
                return
            b.loop(n, lambda j: b.write(kept, [r, ch, j], read_state(r, ch, j)))
            b.loop(steps, by_element)

        b.parallel((rows, h), channel)

    def cost(self) -> Cost:
        """Seven operations for each number of the state at each step."""
        size, n = self.x.type.size, self.a.shape[1]
        flops = 7 * size * n if is_known(size) and is_known(n) else 0
        return Cost(flops, bytes_of([*self.present, *self.results]))

    def formula(
        self, x: Value, delta: Value, a: Value, b: Value, c: Value,
        d: Value | None, state: Value | None,
    ) -> tuple[Value, Value]:  # fmt: skip
        """By a linear recurrence along the steps, whose first element is the state before them."""
        x, delta, a, b, c = (widened(v) for v in (x, delta, a, b, c))
        rows, steps, h = x.shape
        n = a.shape[1]
        whole = (rows, steps, h, n)

        def beside(v: Value) -> Value:
            return v.reshape((rows, steps, h, 1)).expand(whole)

        def across(v: Value) -> Value:
            return v.reshape((rows, steps, 1, n)).expand(whole)

        decay = Exp.build(beside(delta) * a)
        pushed = beside(delta * x) * across(b)
        shape = (rows, 1, h, n)
        first = zeros(shape, x.dtype) if state is None else state.cast(to=x.dtype).reshape(shape)
        s = LinearRecurrence.build(
            Concat(zeros(shape, x.dtype), decay, 1).out, Concat(first, pushed, 1).out, 1
        )
        y = (s[:, 1:] * across(c)).sum(axes=-1)
        y = y if d is None else y + widened(d) * x
        return y.cast(to=self.x.dtype), s[:, -1]

    def factors(self) -> Factors:
        state = None if self.state is None else "bhn"
        given = ["bsh", "bsh", "hn", "bsn", "bsn", None if self.d is None else "h", state]
        return Factors(self, given, ["bsh", "bhn"], whole="sn")
