"""The selective scan of state-space models over rows of several sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.nn.state_rows import StateRows, chosen
from rlx.types import TensorType, f32

__all__ = ["SelectiveScanRows"]

_ROWS: tuple[Any, ...] = ("3xi32", "3xi32")
_DATA = {1: "positive", 6: "index:2", 7: "index:3"}
_STATE = "2x4x2x3xf32"
_X, _B = "3x4x2xf32", "3x2x3xf32"


class SelectiveScanRows(StateRows, name="mir.selective_scan_rows"):
    """The recurrence of Mamba (A. Gu, T. Dao, 2023), and with one ``a`` to a head that of Mamba 2.

    Of channel p of head h: s = exp(delta a) s + delta x b, with a state s of N numbers, and y is
    the inner product of c and s. Heads that follow one another share the b and c of a group.
    """

    x: Value = operand("f32 [T, H, P]")
    delta: Value = operand("the step sizes, f32 [T, H]")
    a: Value = operand("f32 [H, N] or [H, 1], negative where the state is to decay")
    b: Value = operand("f32 [T, G, N]: how the input enters; G divides H")
    c: Value = operand("f32 [T, G, N]: how the state is read")
    state: Value = operand("f32 [slots, H, P, N]")
    slots: Value = operand("i32 [T]: the slot of each row's sequence")
    positions: Value = operand("i32 [T]: where a row stands in its sequence")

    instead = "selective_scan"
    samples = (
        sample(_X, "3x4xf32", "4x3xf32", _B, _B, _STATE, *_ROWS, data=_DATA),
        sample("3x2x3xf32", "3x2xf32", "2x1xf32", "3x1x32xf32", "3x1x32xf32", "2x2x3x32xf32",
               *_ROWS, data=_DATA),
        sample("0x4x2xf32", "0x4xf32", "4x3xf32", "0x2x3xf32", "0x2x3xf32", _STATE, "0xi32",
               "0xi32"),
    )  # fmt: skip
    bads = (
        bad("3x4xf32", "3x4xf32", "4x3xf32", _B, _B, _STATE, *_ROWS, match="x is .T, H, P.",
            error=ShapeError),
        bad(_X, "3x4xf32", "4x3xf32", "3x3x3xf32", "3x3x3xf32", _STATE, *_ROWS,
            match="3 groups do not divide 4 heads", error=ShapeError),
        bad(_X, "3x4xf32", "4x2xf32", _B, _B, _STATE, *_ROWS, match=r"a must be \[4, 3\]",
            error=ShapeError),
        bad(_X, "3x4xf64", "4x3xf32", _B, _B, _STATE, *_ROWS, match="delta must be f32",
            error=DTypeError),
        bad(_X, "3x4xf32", "4x3xf32", _B, _B, _STATE, "3xi32", "2xi32", match="positions must be",
            error=ShapeError),
    )  # fmt: skip

    def infer(self) -> tuple[TensorType, TensorType]:
        if self.x.rank != 3 or self.b.rank != 3 or self.a.rank != 2:
            raise ShapeError(
                f"{self.short}: x is [T, H, P], b [T, G, N] and a [H, N], found {self.x.type},"
                f" {self.b.type} and {self.a.type}"
            )
        (rows, h, p), (_, groups, n) = self.x.shape, self.b.shape
        if is_known(h) and is_known(groups) and (groups < 1 or h % groups):
            raise ShapeError(f"{self.short}: {groups} groups do not divide {h} heads")
        slots = self.state.shape[0] if self.state.rank else 0
        self.check(
            rows, ("x", (rows, h, p)), ("delta", (rows, h)),
            ("a", (h, 1 if self.a.shape[1] == 1 else n)), ("b", (rows, groups, n)),
            ("c", (rows, groups, n)), ("state", (slots, h, p, n)),
        )  # fmt: skip
        return self.x.type, self.state.type

    def reference(
        self, x: Array, delta: Array, a: Array, b: Array, c: Array, state: Array, slots: Array,
        positions: Array,
    ) -> tuple[Array, Array]:  # fmt: skip
        each = x.shape[1] // max(1, b.shape[1])
        x, delta, a, b, c = (v.astype(np.float64) for v in (x, delta, a, b, c))
        b, c = (np.repeat(v, each, 1)[:, :, None, :] for v in (b, c))
        y = np.zeros(x.shape, np.float32)

        def step(t: int, own: Array) -> None:
            width = delta[t, :, None, None]
            own[:] = np.exp(width * a[:, None, :]) * own + width * x[t, :, :, None] * b[t]
            y[t] = (own * c[t]).sum(-1)

        return y, self.each_row(state, slots, positions, step)

    def loops(self, b: Any) -> None:
        """The rows in order, for a channel of a head."""
        _, heads, width = self.x.type.static_shape
        _, groups, n = self.b.type.static_shape
        alike = self.a.type.static_shape[1] == 1 and n != 1
        k, kept, each = b.k, b.result(1), heads // groups
        block = next((w for w in (16, 8, 4) if n % w == 0), 1)
        lanes = block if k.target.lanes(f32) > 1 and block > 1 else 0
        stride = lanes or 1

        def channel(h: Any, p: Any) -> None:
            def row(t: Any, slot: Any, fresh: Any, real: Any) -> None:
                delta = b.load(1, [t, h])
                pushed = delta * b.load(0, [t, h, p])
                zero = k.const(0, f32, lanes)
                fade = k.exp(delta * b.load(2, [h, 0])) if alike else None

                def part(i: Any, read: Any) -> Any:
                    j = i * stride
                    decay = k.exp(delta * b.load(2, [h, j], lanes)) if fade is None else fade
                    s = chosen(k, fresh, zero, b.read(kept, [slot, h, p, j], lanes), lanes)
                    s = decay * s + pushed * b.load(3, [t, h // each, j], lanes)
                    b.when(real, lambda: b.write(kept, [slot, h, p, j], s))
                    return read + s * b.load(4, [t, h // each, j], lanes)

                (read,) = b.loop(n // stride, part, [zero])
                y = k.reduce("add", read) if lanes else read
                b.store(0, [t, h, p], k.select(real, y, 0.0))

            self.rows_in_order(b, row)

        b.parallel((heads, width), channel)
