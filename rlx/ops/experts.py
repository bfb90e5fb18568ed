"""Products by weights that are chosen or adapted: mixtures of experts, low-rank adapters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, FaultError, ShapeError
from rlx.ops.base import Array, Cost, Op, attr, bad, operand, sample
from rlx.ops.blocks import Block
from rlx.ops.cast import converted
from rlx.ops.constant import Iota
from rlx.ops.contraction import DotGeneral
from rlx.ops.heads import check_floats, compute_type, total
from rlx.ops.lift import lift
from rlx.ops.movement import listed
from rlx.ops.value import Value
from rlx.types import FLOATS, TensorType, i64

__all__ = ["GroupedMatMul", "LoraMatMul"]


class GroupedMatMul(Op, name="mir.grouped_matmul"):
    """Every row times the matrix of its expert: ``out[i] = x[i] @ w[experts[i]]``.

    16-bit floats accumulate in f32 and round once. An expert outside 0 .. E - 1 is a fault of the
    run.
    """

    x: Value = operand("rows [M, K]")
    w: Value = operand("the experts' matrices [E, K, N]")
    experts: Value = operand("[M], integers: the expert of each row")

    dtypes = FLOATS
    samples = (
        sample("3x2xT", "2x2x4xT", "3xi64", data={2: "index:2"}),
        sample("4x3xT", "3x3x1xT", "4xu8", data={2: "index:3"}),
        sample("0x2xT", "2x2x2xT", "0xi32", data={2: "index:2"}),
        sample("2x0xT", "1x0x2xT", "2xi32", data={2: "index:1"}),
    )
    bads = (
        bad("3xf32", "2x2x4xf32", "3xi64", match="rank 2", error=ShapeError),
        bad("3x2xf32", "2x3x4xf32", "3xi64", match="2 and 3", error=ShapeError),
        bad("3x2xf32", "2x4xf32", "3xi64", match="rank 3", error=ShapeError),
        bad("3x2xf32", "2x2x4xf32", "2xi64", match=r"experts must be \[3\]", error=ShapeError),
        bad("3x2xf32", "2x2x4xf32", "3xf32", match="cast them to i64", error=DTypeError),
        bad("3x2xf32", "2x2x4xf64", "3xi64", match="one type", error=DTypeError),
        bad("3x2xf32", "0x2x4xf32", "3xi64", match="no expert", error=ShapeError),
    )

    @classmethod
    def build(cls, x: Value, w: Value, experts: Any) -> Value:
        """The experts may be an array or a list."""
        return cls(x, w, lift(experts, x)).out

    def infer(self) -> TensorType:
        x, w, experts = self.x, self.w, self.experts
        check_floats(self.short, (x, w))
        if not experts.dtype.is_int:
            raise DTypeError(
                f"grouped_matmul takes integer experts, found {experts.dtype}; cast them to i64"
                " first"
            )
        if x.rank != 2 or w.rank != 3:
            raise ShapeError(
                f"grouped_matmul takes x of rank 2 and w of rank 3, found {x.type} and {w.type}"
            )
        if x.shape[1] != w.shape[1]:
            raise ShapeError(
                f"grouped_matmul: inner dims {x.shape[1]} and {w.shape[1]} of {x.type} and {w.type}"
                " differ"
            )
        if experts.shape != x.shape[:1]:
            raise ShapeError(
                f"grouped_matmul: experts must be {listed(x.shape[:1])}, one for every row of"
                f" {x.type}; found {listed(experts.shape)}"
            )
        if w.shape[0] == 0 and x.shape[0] != 0:
            raise ShapeError(f"grouped_matmul: {w.type} has no expert for a row")
        return x.type.with_shape((x.shape[0], w.shape[2]))

    def cost(self) -> Cost:
        """Two operations for every element of a row and of the result."""
        size, inner = self.out.type.size, self.x.shape[1]
        flops = 2 * size * inner if isinstance(size, int) and isinstance(inner, int) else 0
        return Cost(flops, super().cost().bytes)

    def _fault(self, count: int) -> str:
        return f"grouped_matmul: an expert out of range for {count} experts"

    def reference(self, x: Array, w: Array, experts: Array) -> Array:
        if ((experts < 0) | (experts >= len(w))).any():
            raise FaultError(self._fault(len(w)), self.location)
        wide = compute_type(self.x.dtype).numpy
        rows = [r.astype(wide) @ w[e].astype(wide) for r, e in zip(x, experts, strict=True)]
        out = np.stack(rows) if rows else np.zeros(self.out.type.static_shape, wide)
        return converted(out, self.x.dtype)

    def loops(self, b: Any) -> None:
        (rows, inner), (count, _, columns) = (v.type.static_shape for v in (self.x, self.w))

        def point(i: Any, j: Any) -> None:
            expert = b.k.cast(b.load(2, (i,)), i64)
            outside = (expert < 0) | (expert >= count)
            b.fault(outside, self._fault(count))
            expert = b.index(b.k.select(outside, 0, expert))

            def step(n: Any, acc: Any) -> Any:
                return b.k.fma(b.load(0, (i, n)), b.load(1, (expert, n, j)), acc)

            zero = b.const(0, self.x.dtype)
            b.store(0, (i, j), b.loop(inner, step, init=(zero,))[0])

        b.parallel((rows, columns), point)

    def vjp(self, g: Value) -> tuple[Value, Value, None]:
        """The weights' gradient is one product with the rows spread over the experts."""
        back = GroupedMatMul(g, self.w.transpose(0, 2, 1), self.experts).out
        count, inner, columns = self.w.shape
        mine = Iota((1, count, 1), 1, i64).out.eq(self.experts.cast(to=i64).reshape([-1, 1, 1]))
        spread = mine.where(self.x.unsqueeze(1), 0.0).reshape([self.x.shape[0], count * inner])
        return (
            back,
            DotGeneral(spread, g, (0,), (0,), (), ()).out.reshape([count, inner, columns]),
            None,
        )

    def jvp(self, tx: Value | None, tw: Value | None, te: Value | None) -> Value | None:
        parts = [(tx, self.w), (self.x, tw)]
        there = [
            self.with_operands((x, w, self.experts)).out
            for x, w in parts
            if x is not None and w is not None
        ]
        return total(there) if there else None

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        """The batches one below the other, each with experts of its own where they differ."""
        n = next(v.shape[0] for v, has in zip(operands, batched, strict=True) if has)
        x, w, experts = operands
        x, experts = (
            v if has else v.expand((n, *v.shape))
            for v, has in ((x, batched[0]), (experts, batched[2]))
        )
        rows = n * self.x.shape[0]
        if batched[1]:
            count = self.w.shape[0]
            experts = experts.cast(to=i64)
            known = experts.ge(0).logical_and(experts.lt(count))
            moved = experts + Iota((n, 1), 0, i64).out * count
            # What is out of range stays so.
            experts = known.where(moved, -1)
            w = w.reshape((n * count, *self.w.shape[1:]))
        out = self.with_operands((x.reshape((rows, x.shape[2])), w, experts.reshape((rows,)))).out
        return out.reshape((n, *self.out.shape))


class LoraMatMul(Block, name="hir.lora_matmul"):
    """A product with a low-rank adapter: ``x @ w + scale * (x @ a) @ b``."""

    x: Value = operand("[..., K]")
    w: Value = operand("[K, N]")
    a: Value = operand("[K, R]")
    b: Value = operand("[R, N]")
    scale: float = attr(1.0, "the weight of the adapter")

    samples = (
        sample("2x3xT", "3x4xT", "3x2xT", "2x4xT", scale=0.5),
        sample("2x2x3xT", "3x4xT", "3x1xT", "1x4xT"),
    )
    bads = (
        bad("3xf32", "3x4xf32", "3x2xf32", "2x4xf32", match="rank 2 or more", error=ShapeError),
        bad("2x3xf32", "3x4xf32", "4x2xf32", "2x4xf32", match="a must be", error=ShapeError),
        bad("2x3xf32", "3x4xf32", "3x2xf32", "2x3xf32", match="b must be", error=ShapeError),
        bad("2x3xf32", "3x4xf32", "3x2xf64", "2x4xf64", match="one type", error=DTypeError),
    )

    def infer(self) -> TensorType:
        self.check_types()
        self.check_rank("x", 2, or_more=True)
        outputs = self.outputs_of("w", self.x.shape[-1])
        rank = self.outputs_of("a", self.x.shape[-1])
        self.check(("b", (rank, outputs)))
        return self.x.type.with_shape((*self.x.shape[:-1], outputs))

    def expand(self) -> Value:
        return self.x.matmul(self.w) + self.x.matmul(self.a).matmul(self.b) * self.scale
