"""Products by weights that are chosen or adapted: mixtures of experts, low-rank adapters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.base.dims import as_dim, is_known
from rlx.errors import DTypeError, FaultError, ShapeError
from rlx.ir.factors import Factors, Parts
from rlx.ir.lift import lift
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.indexing.index_modes import same_batch
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.movement import DimLike, is_negative, listed, zeros
from rlx.ops.nn.blocks import Block
from rlx.ops.nn.heads import check_floats, compute_type, total
from rlx.ops.pointwise.cast import converted
from rlx.types import FLOATS, Dim, TensorType, i64

__all__ = ["GroupedMatMul", "GroupedOuter", "LoraMatMul"]


class Grouped(Op):
    """What the products by experts share: each row has one, by its number."""

    dtypes = FLOATS
    x: Value
    experts: Value

    def check_experts(self) -> None:
        """Refuse experts that are no integers, or not one a row of x."""
        x, experts = self.x, self.experts
        if not experts.dtype.is_int:
            raise DTypeError(
                f"{self.short} takes integer experts, found {experts.dtype}; cast them to i64 first"
            )
        if experts.shape != x.shape[:1]:
            raise ShapeError(
                f"{self.short}: experts must be {listed(x.shape[:1])}, one for every row of"
                f" {x.type}; found {listed(experts.shape)}"
            )

    def out_of_range(self, count: int) -> str:
        """What is said of an expert that is not there."""
        return f"{self.short}: an expert out of range for {count} experts"

    def check_range(self, experts: Array, count: int) -> None:
        """FaultError for an expert that is not there."""
        if ((experts < 0) | (experts >= count)).any():
            raise FaultError(self.out_of_range(count), self.location)

    def expert(self, b: Any, i: Any, count: int) -> Any:
        """The expert of the row i, as an index; one out of range is recorded, and 0."""
        expert = b.load(2, (i,))
        expert = b.k.cast(expert, b.k.index_word(expert.dtype))
        outside = (expert < 0) | (expert >= count)
        b.fault(outside, self.out_of_range(count))
        return b.index(b.k.select(outside, 0, expert))

    def own(self, experts: Value, parts: Parts) -> tuple[Value, Value]:
        """Which rows have an expert of this rank, and the experts counted from the rank's first;
        rows of others have 0, and those of none stay out of range."""
        given, size = experts.cast(to=i64), _number(parts.factors.sizes["e"])
        local = given - parts.start("e")
        mine = local.ge(0).logical_and(local.lt(_number(parts.length("e"))))
        there = given.ge(0).logical_and(given.lt(size))
        return mine, mine.where(local, there.where(0, -1))


def _moved(experts: Value, count: Dim) -> Value:
    """Experts [n, M] of n batches as those of one, each batch with ``count`` of its own. One out of
    range stays so."""
    experts = experts.cast(to=i64)
    known = experts.ge(0).logical_and(experts.lt(_number(count)))
    return known.where(experts + Iota((experts.shape[0], 1), 0, i64).out * _number(count), -1)


def _number(dim: Dim) -> int:
    if not is_known(dim):
        raise ShapeError(f"the number of experts {dim} is not known; bind it")
    return dim


class GroupedMatMul(Grouped, name="mir.grouped_matmul"):
    """Every row times the matrix of its expert: ``out[i] = x[i] @ w[experts[i]]``.

    16-bit floats accumulate in f32 and round once. An expert outside 0 .. E - 1 is a fault of the
    run.
    """

    x: Value = operand("rows [M, K]")
    w: Value = operand("the experts' matrices [E, K, N]")
    experts: Value = operand("[M], integers: the expert of each row")

    linear = ((0,), (1,))
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
        x, w = self.x, self.w
        check_floats(self.short, (x, w))
        if x.rank != 2 or w.rank != 3:
            raise ShapeError(
                f"grouped_matmul takes x of rank 2 and w of rank 3, found {x.type} and {w.type}"
            )
        if x.shape[1] != w.shape[1]:
            raise ShapeError(
                f"grouped_matmul: inner dims {x.shape[1]} and {w.shape[1]} of {x.type} and {w.type}"
                " differ"
            )
        self.check_experts()
        if w.shape[0] == 0 and x.shape[0] != 0:
            raise ShapeError(f"grouped_matmul: {w.type} has no expert for a row")
        return x.type.with_shape((x.shape[0], w.shape[2]))

    def cost(self) -> Cost:
        """Two operations for every element of a row and of the result."""
        size, inner = self.out.type.size, self.x.shape[1]
        flops = 2 * size * inner if is_known(size) and is_known(inner) else 0
        return Cost(flops, super().cost().bytes)

    def reference(self, x: Array, w: Array, experts: Array) -> Array:
        self.check_range(experts, len(w))
        wide = compute_type(self.x.dtype).numpy
        rows = [r.astype(wide) @ w[e].astype(wide) for r, e in zip(x, experts, strict=True)]
        out = np.stack(rows) if rows else np.zeros(self.out.type.static_shape, wide)
        return converted(out, self.x.dtype)

    def loops(self, b: Any) -> None:
        (rows, inner), (count, _, columns) = (v.type.static_shape for v in (self.x, self.w))

        def point(i: Any, j: Any) -> None:
            expert = self.expert(b, i, count)

            def step(n: Any, acc: Any) -> Any:
                return b.k.fma(b.load(0, (i, n)), b.load(1, (expert, n, j)), acc)

            zero = b.const(0, self.x.dtype)
            b.store(0, (i, j), b.loop(inner, step, init=(zero,))[0])

        b.parallel((rows, columns), point)

    def factors(self) -> Factors:
        return Factors(self, ["mk", "ekn", "m"], ["mn"], sums="ke")

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        x, w, experts = operands
        if "e" not in parts.cut or experts is None:
            return self.with_operands(operands).results
        mine, experts = self.own(experts, parts)
        found = self.with_operands([x, w, experts]).out
        return [mine.reshape((*mine.shape, 1)).where(found, 0)]

    def vjp(self, g: Value) -> tuple[Value, Value, None]:
        back = GroupedMatMul(g, self.w.transpose(0, 2, 1), self.experts).out
        return back, GroupedOuter(self.x, g, self.experts, self.w.shape[:1]).out, None

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
            experts = _moved(experts, count)
            w = w.reshape((n * count, *self.w.shape[1:]))
        out = self.with_operands((x.reshape((rows, x.shape[2])), w, experts.reshape((rows,)))).out
        return out.reshape((n, *self.out.shape))


class GroupedOuter(Grouped, name="mir.grouped_outer"):
    """The products of the rows of each expert: ``out[e] = x[rows of e]ᵀ @ y[rows of e]``.

    It is the gradient of grouped_matmul by its matrices. 16-bit floats accumulate in f32 and round
    once. An expert outside 0 .. E - 1 is a fault of the run.
    """

    x: Value = operand("rows [M, K]")
    y: Value = operand("rows [M, N]")
    experts: Value = operand("[M], integers: the expert of each row")
    count: tuple[Dim, ...] = attr(doc="how many experts there are, E (one dim)")

    linear = ((0,), (1,))
    samples = (
        sample("3x2xT", "3x4xT", "3xi64", count=(2,), data={2: "index:2"}),
        sample("4x3xT", "4x16xT", "4xu8", count=(3,), data={2: "index:3"}),
        sample("0x2xT", "0x2xT", "0xi32", count=(2,), data={2: "index:2"}),
    )
    bads = (
        bad("3xf32", "3x4xf32", "3xi64", match="rank 2", error=ShapeError, count=(2,)),
        bad("3x2xf32", "2x4xf32", "3xi64", match="as many rows", error=ShapeError, count=(2,)),
        bad("3x2xf32", "3x4xf32", "2xi64", match="must be", error=ShapeError, count=(2,)),
        bad("3x2xf32", "3x4xf32", "3xf32", match="cast them", error=DTypeError, count=(2,)),
        bad("3x2xf32", "3x4xf64", "3xi64", match="one type", error=DTypeError, count=(2,)),
        bad("3x2xf32", "3x4xf32", "3xi64", match="no expert", error=ShapeError, count=(0,)),
        bad("3x2xf32", "3x4xf32", "3xi64", match="one dim", error=ShapeError, count=()),
        bad("3x2xf32", "3x4xf32", "3xi64", match="0 or more", error=ShapeError, count=(-1,)),
    )

    @classmethod
    def build(cls, x: Value, y: Value, experts: Any, count: DimLike) -> Value:
        """The experts may be an array or a list."""
        return cls(x, y, lift(experts, x), (as_dim(count),)).out

    def infer(self) -> TensorType:
        x, y = self.x, self.y
        check_floats(self.short, (x, y))
        if x.rank != 2 or y.rank != 2:
            raise ShapeError(f"{self.short} takes x and y of rank 2, found {x.type} and {y.type}")
        if x.shape[0] != y.shape[0]:
            raise ShapeError(
                f"{self.short} takes as many rows of x as of y, found {x.type} and {y.type}"
            )
        if len(self.count) != 1 or is_negative(self.count[0]):
            raise ShapeError(
                f"{self.short}: count is one dim of 0 or more, found {listed(self.count)}"
            )
        self.check_experts()
        if self.count[0] == 0 and x.shape[0] != 0:
            raise ShapeError(f"{self.short}: there is no expert for a row of {x.type}")
        return x.type.with_shape((*self.count, x.shape[1], y.shape[1]))

    def cost(self) -> Cost:
        """Two operations for every pair of elements of two rows."""
        size, columns = self.x.type.size, self.y.shape[1]
        flops = 2 * size * columns if is_known(size) and is_known(columns) else 0
        return Cost(flops, super().cost().bytes)

    def reference(self, x: Array, y: Array, experts: Array) -> Array:
        out = np.zeros(self.out.type.static_shape, compute_type(self.x.dtype).numpy)
        self.check_range(experts, len(out))
        for e in range(len(out)):
            mine = experts == e
            out[e] = x[mine].astype(out.dtype).T @ y[mine].astype(out.dtype)
        return converted(out, self.x.dtype)

    def loops(self, b: Any) -> None:
        """A point has a few columns of a row of every matrix, to which it adds row after row."""
        (rows, inner), columns = self.x.type.static_shape, self.y.type.static_shape[1]
        count, dt = self.out.type.static_shape[0], self.x.dtype
        wide = compute_type(dt)
        kept = b.result(0) if wide is dt else b.workspace((count, inner, columns), wide)
        block = 16 if columns % 16 == 0 else 1
        lanes = block if block > 1 and b.k.target.lanes(wide) > 1 else 0

        def point(k: Any, part: Any) -> None:
            if lanes or block == 1:
                piece(k, part * block)
            else:
                b.loop(block, lambda j: piece(k, part * block + j))

        def piece(k: Any, at: Any) -> None:
            def add(i: Any) -> None:
                place = [self.expert(b, i, count), k, at]
                more = b.load(1, (i, at), lanes) * b.load(0, (i, k))
                b.write(kept, place, b.read(kept, place, lanes) + more)

            b.loop(count, lambda e: b.write(kept, [e, k, at], b.k.const(0, wide, lanes)))
            b.loop(rows, add)
            if wide is not dt:
                b.loop(count, lambda e: b.store(0, [e, k, at], b.read(kept, [e, k, at], lanes)))

        b.parallel((inner, columns // block), point)

    def factors(self) -> Factors:
        return Factors(self, ["mk", "mn", "m"], ["ekn"], sums="m")

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        x, y, experts = operands
        if "e" not in parts.cut or x is None or experts is None:
            return self.with_operands(operands).results
        mine, experts = self.own(experts, parts)
        x = mine.reshape((*mine.shape, 1)).where(x, 0)
        return self.with_operands([x, y, experts], count=(parts.length("e"),)).results

    def vjp(self, g: Value) -> tuple[Value, Value, None]:
        """The rows times the cotangent of the matrix that they are part of."""
        gx = GroupedMatMul(self.y, g.transpose(0, 2, 1), self.experts).out
        return gx, GroupedMatMul(self.x, g, self.experts).out, None

    def jvp(self, tx: Value | None, ty: Value | None, te: Value | None) -> Value:
        parts = [(tx, self.y), (self.x, ty)]
        there = [
            self.with_operands((x, y, self.experts)).out
            for x, y in parts
            if x is not None and y is not None
        ]
        return total(there) if there else zeros(self.out.shape, self.out.dtype)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        """The batches one below the other, each with matrices of its own."""
        x, y, experts = same_batch(operands, batched)
        n, rows = x.shape[:2]
        node = self.with_operands(
            (
                x.reshape((n * rows, x.shape[2])),
                y.reshape((n * rows, y.shape[2])),
                _moved(experts, self.count[0]).reshape((n * rows,)),
            ),
            count=(n * self.count[0],),
        )
        return node.out.reshape((n, *self.out.shape))


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
