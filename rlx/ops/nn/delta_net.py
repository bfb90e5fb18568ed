"""The gated delta rule: a linear attention that writes over what it remembers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factors
from rlx.ir.op import Array, Cost, bad, operand, optional, sample
from rlx.ir.value import Value, bytes_of
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import zeros
from rlx.ops.movement.slicing import Pad
from rlx.ops.nn.stateful import Stateful
from rlx.ops.pointwise.cast import converted, widened
from rlx.ops.pointwise.unary import Exp
from rlx.ops.reduction.cumulative import Cumsum
from rlx.ops.sugar import concat
from rlx.types import TensorType

__all__ = ["GatedDeltaNet"]

CHUNK = 64
"""Steps that the formula does at once."""

_X, _G = "2x3x2x4xT", "2x3x2xT"


class GatedDeltaNet(Stateful, name="mir.gated_delta_net"):
    """The recurrence of Gated DeltaNet (S. Yang et al., 2024), and its last state.

    For each head there is a state S of N x M numbers. A step decays it by e^g, moves what it holds
    for the key k toward v by the share beta, and reads it: S = e^g S; S += k (beta (v - k S)); the
    result is q S / sqrt N. The state begins at 0 or as given. It is computed and given in f32 where
    the operands have 16 bits.
    """

    q: Value = operand("[B, S, H, N]")
    k: Value = operand("[B, S, H, N], most often of length 1")
    v: Value = operand("[B, S, H, M]")
    g: Value = operand("[B, S, H]: the logarithm of the decay, at most 0")
    beta: Value = operand("[B, S, H]: from 0 to 1")
    state: Value | None = optional("[B, H, N, M] before the first step")

    samples = (
        sample(_X, _X, "2x3x2x3xT", _G, _G, data={3: "unit", 4: "unit"}),
        sample("1x2x1x2xT", "1x2x1x2xT", "1x2x1x16xT", "1x2x1xT", "1x2x1xT", "1x1x2x16xT",
               data={3: "unit", 4: "unit"}),
        sample("1x5x1x2xT", "1x5x1x2xT", "1x5x1x2xT", "1x5x1xT", "1x5x1xT", "1x1x2x2xT",
               data={3: "unit", 4: "unit"}),
        sample("1x0x2x3xT", "1x0x2x3xT", "1x0x2x3xT", "1x0x2xT", "1x0x2xT", "1x2x3x3xT"),
    )  # fmt: skip
    bads = (
        bad("2x3x4xf32", "2x3x4xf32", "2x3x4xf32", "2x3xf32", "2x3xf32", error=ShapeError,
            match="q and v are .B, S, H, N."),
        bad("2x3x2x4xf32", "2x3x2x5xf32", "2x3x2x4xf32", "2x3x2xf32", "2x3x2xf32",
            error=ShapeError, match=r"k must be \[2, 3, 2, 4\]"),
        bad("2x3x2x4xf32", "2x3x2x4xf32", "2x4x2x4xf32", "2x3x2xf32", "2x3x2xf32",
            error=ShapeError, match=r"v must be \[2, 3, 2, 4\]"),
        bad("2x3x2x4xf32", "2x3x2x4xf32", "2x3x2x4xf32", "2x3x2xf32", "2x3x2x4xf32",
            error=ShapeError, match=r"beta must be \[2, 3, 2\]"),
        bad("2x3x2x4xf32", "2x3x2x4xf32", "2x3x2x4xf32", "2x3x2xf32", "2x3x2xf64",
            error=DTypeError, match="one type"),
        bad("2x3x2x4xf32", "2x3x2x4xf32", "2x3x2x4xf32", "2x3x2xf32", "2x3x2xf32",
            "2x2x4x4xf64", error=DTypeError, match="state must be f32"),
        bad("2x3x2x0xf32", "2x3x2x0xf32", "2x3x2x4xf32", "2x3x2xf32", "2x3x2xf32",
            error=ShapeError, match="keys of no length"),
    )  # fmt: skip

    def infer(self) -> tuple[TensorType, TensorType]:
        if self.q.rank != 4 or self.v.rank != 4:
            raise ShapeError(
                f"{self.short}: q and v are [B, S, H, N] and [B, S, H, M], found {self.q.type} and"
                f" {self.v.type}"
            )
        (b, s, h, n), m = self.q.shape, self.v.shape[3]
        if n == 0:
            raise ShapeError(f"{self.short}: {self.q.type} has keys of no length")
        self.check(
            ("k", self.q.shape), ("v", (b, s, h, m)), ("g", (b, s, h)), ("beta", (b, s, h)),
            ("state", (b, h, n, m)),
        )  # fmt: skip
        return self.v.type, TensorType((b, h, n, m), self.wide)

    def reference(
        self, q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array | None
    ) -> tuple[Array, Array]:
        q, k, v, g, beta = (np.asarray(x, np.float64) for x in (q, k, v, g, beta))
        b, steps, h, n = q.shape
        s = np.zeros((b, h, n, v.shape[3]))
        s = s if state is None else s + np.asarray(state, np.float64)
        o = np.zeros(v.shape)
        for t in range(steps):
            s = s * np.exp(g[:, t, :, None, None])
            held = np.einsum("bhnm,bhn->bhm", s, k[:, t])
            moved = beta[:, t, :, None] * (v[:, t] - held)
            s = s + k[:, t, :, :, None] * moved[:, :, None, :]
            o[:, t] = np.einsum("bhnm,bhn->bhm", s, q[:, t]) / math.sqrt(n)
        return converted(o, self.v.dtype), converted(s, self.wide)

    def loops(self, b: Any) -> None:
        """The steps in order. Columns of the state do not meet, so tasks are blocks of them, and a
        block is a vector where the target has such."""
        rows, steps, h, n = self.q.type.static_shape
        m = self.v.type.static_shape[3]
        block = next(w for w in (64, 16, 1) if m % w == 0)
        k, wide, kept = b.k, self.wide, b.result(1)
        lanes = block if k.target.lanes(wide) > 1 and block > 1 else 0

        def columns(r: Any, head: Any, part: Any) -> None:
            if lanes:
                column(r, head, part * block)
            else:
                b.loop(block, lambda j: column(r, head, part * block + j))

        def column(r: Any, head: Any, j: Any) -> None:
            zero = k.const(0, wide, lanes)

            def start(i: Any) -> None:
                there = self.state is not None
                b.write(kept, [r, head, i, j], b.load(5, [r, head, i, j], lanes) if there else zero)

            def step(t: Any) -> None:
                at = [r, t, head]
                decay = k.exp(b.load(3, at))

                def holds(i: Any, held: Any) -> Any:
                    s = b.read(kept, [r, head, i, j], lanes) * decay
                    b.write(kept, [r, head, i, j], s)
                    return held + s * b.load(1, [*at, i])

                (held,) = b.loop(n, holds, [zero])
                moved = (b.load(2, [*at, j], lanes) - held) * b.load(4, at)

                def write(i: Any, read: Any) -> Any:
                    s = b.read(kept, [r, head, i, j], lanes) + moved * b.load(1, [*at, i])
                    b.write(kept, [r, head, i, j], s)
                    return read + s * b.load(0, [*at, i])

                (read,) = b.loop(n, write, [zero])
                b.store(0, [*at, j], read * (1.0 / math.sqrt(n)))

            b.loop(n, start)
            b.loop(steps, step)

        b.parallel((rows, h, m // block), columns)

    def cost(self) -> Cost:
        """Seven operations for each number of the state at each step."""
        size, n = self.v.type.size, self.q.shape[3]
        flops = 7 * size * n if is_known(size) and is_known(n) else 0
        return Cost(flops, bytes_of([*self.present, *self.results]))

    def formula(
        self, q: Value, k: Value, v: Value, g: Value, beta: Value, state: Value | None
    ) -> tuple[Value, Value]:
        """By chunks: within one the updates u of all steps solve a triangular system, as in section
        3.3 of the paper; the state goes from chunk to chunk."""
        rows, steps, h, n = q.shape
        m = v.shape[3]
        if not is_known(steps) or not is_known(n):
            raise ShapeError(
                f"{self.short}: its derivative needs a known S and N, found {steps} and {n}; bind"
                " them"
            )
        size = min(CHUNK, 1 << max(0, steps - 1).bit_length())
        q, k, v, g, beta = (_chunks(widened(x), size) for x in (q, k, v, g, beta))
        decay = Cumsum.build(g, -1)
        fade = _fading(decay, size)
        scaled = beta.unsqueeze(-1)
        inverse = _unit_lower_inverse(scaled * fade * k.matmul(k.mT), size)
        alone = inverse.matmul(scaled * v)
        since = Exp.build(decay).unsqueeze(-1)
        removed = inverse.matmul(scaled * since * k)
        read = q.matmul(k.mT) * fade
        left = Exp.build(decay[..., -1:] - decay).unsqueeze(-1)
        s = zeros((rows, h, n, m), q.dtype) if state is None else state.cast(to=q.dtype)
        parts: list[Value] = []
        for c in range(-(-steps // size)):
            u = alone[:, :, c] - removed[:, :, c].matmul(s)
            parts.append((q * since)[:, :, c].matmul(s) + read[:, :, c].matmul(u))
            s = since[:, :, c, -1:] * s + (k * left)[:, :, c].mT.matmul(u)
        if not parts:
            return zeros(self.v.shape, self.v.dtype), s
        o = concat(parts, 2)[:, :, :steps] * (1.0 / math.sqrt(n))
        return o.transpose((0, 2, 1, 3)).cast(to=self.v.dtype), s

    def factors(self) -> Factors:
        given = ["bshn", "bshn", "bshm", "bsh", "bsh", None if self.state is None else "bhnm"]
        return Factors(self, given, ["bshm", "bhnm"], whole="sn")


def _chunks(x: Value, size: int) -> Value:
    """[B, S, H, ...] as [B, H, S / size, size, ...], with zeros behind the last step."""
    rows, steps, h, *rest = x.shape
    assert is_known(steps)
    spare = -steps % size
    if spare:
        x = Pad.build(x, [0] * x.rank, [spare if i == 1 else 0 for i in range(x.rank)])
    order = (0, 2, 1, *range(3, x.rank))
    return x.transpose(order).reshape((rows, h, (steps + spare) // size, size, *rest))


def _fading(decay: Value, size: int) -> Value:
    """What is left at step t (a row) of what was written at step i (a column), 0 for later ones.

    The exponent is masked before, not after: that of a later step may overflow.
    """
    past = Constant(np.tril(np.ones((size, size), bool))).out
    gap = past.where(decay.unsqueeze(-1) - decay.unsqueeze(-2), 0.0)
    return past.where(Exp.build(gap), 0.0)


def _unit_lower_inverse(a: Value, size: int) -> Value:
    """The inverse of the unit lower triangular matrix whose part below the diagonal is that of a.

    Diagonal blocks are inverted first, and those of twice the size by them: with B below the
    diagonal, -D^-1 B A^-1 comes there. ``size`` is a power of two.
    """
    x = Constant(np.eye(size, dtype=a.dtype.numpy)).out.expand(a.shape)
    at = np.arange(size)
    width = 1
    while width < size:
        block = at // width
        below = (block[:, None] == block + 1) & (block[:, None] % 2 == 1)
        x = x - x.matmul(Constant(below).out.where(a, 0.0)).matmul(x)
        width *= 2
    return x
