"""The gated delta rule over rows of several sequences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.nn.state_rows import StateRows, chosen
from rlx.types import TensorType, f32

__all__ = ["GatedDeltaRows"]

_ROWS: tuple[Any, ...] = ("3xi32", "3xi32")
_DATA = {3: "unit", 4: "unit", 6: "index:2", 7: "index:3"}
_Q, _G = "3x2x3xf32", "3x4xf32"
_STATE = "2x4x3x2xf32"


class GatedDeltaRows(StateRows, name="mir.gated_delta_rows"):
    """The recurrence of Gated DeltaNet (S. Yang et al., 2024), as ``gated_delta_net`` has it.

    S = e^g S; S += k (beta (v - k S)); the result is q S / sqrt N. Heads of values that follow one
    another share a head of keys.
    """

    q: Value = operand("f32 [T, G, N]; G divides H")
    k: Value = operand("f32 [T, G, N], most often of length 1")
    v: Value = operand("f32 [T, H, M]")
    g: Value = operand("f32 [T, H]: the logarithm of the decay, at most 0")
    beta: Value = operand("f32 [T, H]: from 0 to 1")
    state: Value = operand("f32 [slots, H, N, M]")
    slots: Value = operand("i32 [T]: the slot of each row's sequence")
    positions: Value = operand("i32 [T]: where a row stands in its sequence")

    instead = "gated_delta_net"
    samples = (
        sample(_Q, _Q, "3x4x2xf32", _G, _G, _STATE, *_ROWS, data=_DATA),
        sample("3x1x4xf32", "3x1x4xf32", "3x1x32xf32", "3x1xf32", "3x1xf32", "2x1x4x32xf32",
               *_ROWS, data=_DATA),
        sample("0x2x3xf32", "0x2x3xf32", "0x4x2xf32", "0x4xf32", "0x4xf32", _STATE, "0xi32",
               "0xi32"),
    )  # fmt: skip
    bads = (
        bad("3x3xf32", "3x3xf32", "3x4x2xf32", _G, _G, _STATE, *_ROWS, match="q is .T, G, N.",
            error=ShapeError),
        bad("3x3x3xf32", "3x3x3xf32", "3x4x2xf32", _G, _G, _STATE, *_ROWS,
            match="3 heads of keys do not divide 4", error=ShapeError),
        bad(_Q, _Q, "3x4x2xf32", _G, _G, "2x4x2x3xf32", *_ROWS,
            match=r"state must be \[2, 4, 3, 2\]", error=ShapeError),
        bad(_Q, _Q, "3x4x2xf32", _G, "3x4xf16", _STATE, *_ROWS, match="beta must be f32",
            error=DTypeError),
    )  # fmt: skip

    def infer(self) -> tuple[TensorType, TensorType]:
        if self.q.rank != 3 or self.v.rank != 3:
            raise ShapeError(
                f"{self.short}: q is [T, G, N] and v [T, H, M], found {self.q.type} and"
                f" {self.v.type}"
            )
        (rows, groups, n), (_, h, m) = self.q.shape, self.v.shape
        if is_known(h) and is_known(groups) and (groups < 1 or h % groups):
            raise ShapeError(f"{self.short}: {groups} heads of keys do not divide {h} of values")
        slots = self.state.shape[0] if self.state.rank else 0
        self.check(
            rows, ("q", (rows, groups, n)), ("k", (rows, groups, n)), ("v", (rows, h, m)),
            ("g", (rows, h)), ("beta", (rows, h)), ("state", (slots, h, n, m)),
        )  # fmt: skip
        return self.v.type, self.state.type

    def reference(
        self, q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array, slots: Array,
        positions: Array,
    ) -> tuple[Array, Array]:  # fmt: skip
        each = v.shape[1] // max(1, q.shape[1])
        q, k, v, g, beta = (x.astype(np.float64) for x in (q, k, v, g, beta))
        q, k = (np.repeat(x, each, 1) for x in (q, k))
        y = np.zeros(v.shape, np.float32)

        def step(t: int, own: Array) -> None:
            own *= np.exp(g[t, :, None, None])
            held = np.einsum("hnm,hn->hm", own, k[t])
            own += k[t, :, :, None] * (beta[t, :, None] * (v[t] - held))[:, None, :]
            y[t] = np.einsum("hnm,hn->hm", own, q[t]) / math.sqrt(q.shape[2])

        return y, self.each_row(state, slots, positions, step)

    def loops(self, b: Any) -> None:
        """The rows in order. Columns of the state do not meet, so tasks are blocks of them."""
        _, groups, n = self.q.type.static_shape
        _, heads, m = self.v.type.static_shape
        k, kept, each = b.k, b.result(1), heads // groups
        block = next((w for w in (16, 8, 4) if m % w == 0), 1)
        lanes = block if k.target.lanes(f32) > 1 and block > 1 else 0

        def column(h: Any, j: Any) -> None:
            def row(t: Any, slot: Any, fresh: Any, real: Any) -> None:
                zero = k.const(0, f32, lanes)
                decay = k.exp(b.load(3, [t, h]))

                def faded(i: Any) -> Any:
                    s = b.read(kept, [slot, h, i, j], lanes)
                    return chosen(k, fresh, zero, s, lanes) * decay

                def holds(i: Any, held: Any) -> Any:
                    return held + faded(i) * b.load(1, [t, h // each, i])

                (held,) = b.loop(n, holds, [zero])
                moved = (b.load(2, [t, h, j], lanes) - held) * b.load(4, [t, h])

                def write(i: Any, read: Any) -> Any:
                    s = faded(i) + moved * b.load(1, [t, h // each, i])
                    b.when(real, lambda: b.write(kept, [slot, h, i, j], s))
                    return read + s * b.load(0, [t, h // each, i])

                (read,) = b.loop(n, write, [zero])
                y = read * (1.0 / math.sqrt(n))
                b.store(0, [t, h, j], chosen(k, real, y, zero, lanes))

            self.rows_in_order(b, row)

        def part(h: Any, c: Any) -> None:
            if lanes or block == 1:
                column(h, c * block)
            else:
                b.loop(block, lambda j: column(h, c * block + j))

        b.parallel((heads, m // block), part)
