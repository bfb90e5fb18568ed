"""Writing by integer index along an axis: scatter, and the adjoint of gather, scatter_add."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlx.base.dims import as_dim
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.factors import Factors, Parts
from rlx.ir.lift import lift
from rlx.ir.op import Array, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.indexing.index_modes import as_indices, own_places
from rlx.ops.indexing.scatter_common import REDUCTIONS, Scattering
from rlx.ops.movement.constant import Constant, Iota
from rlx.ops.movement.movement import DimLike, axis_of, listed, zeros
from rlx.ops.movement.slicing import shifted
from rlx.ops.pointwise.base import ANY, ARITHMETIC, check_ordered
from rlx.ops.pointwise.cast import widened
from rlx.ops.reduction.reduce import as_value
from rlx.types import Dim, TensorType, bool_, i64

__all__ = ["Scatter", "ScatterAdd"]


class ScatterAdd(Scattering, name="mir.scatter_add"):
    """Zeros to which updates are added by index along one axis; the adjoint of gather.

    The result has the updates' dims with those of the indices replaced by ``size``. Updates for
    one place add up in index order, so the result does not depend on threads; 16-bit floats
    accumulate in f32 and round once.
    """

    updates: Value = operand("what is added: dims before axis, the indices' dims, dims after")
    indices: Value = operand("integers: where each update goes along the axis")
    size: tuple[Dim, ...] = attr(doc="the length of the result's axis (one dim)")
    axis: int = attr(0, "the axis that the indices point into")
    mode: str = attr("fault", '"fault", "clip", "wrap" or "fill": an index out of range')
    batch_dims: int = attr(0, "number of leading axes that updates and indices share")

    linear = ((0,),)
    dtypes = ARITHMETIC
    samples = (
        sample("4x3xT", "4xi64", size=(5,), axis=0, data={1: "index:5"}),
        sample("2x2x2xT", "2x2xi32", size=(3,), axis=1, data={1: "index:3"}),
        sample("6xT", "6xu8", size=(2,), mode="clip", data={1: "index:4"}),
        sample("3xT", "i64", size=(4,), axis=0, data={1: "index:4"}),
        sample("2x3x2xT", "2x3xi16", size=(4,), axis=1, batch_dims=1, data={1: "index:4"}),
        sample("0x2xT", "0xi64", size=(3,), data={1: "index:3"}),
    )
    bads = (
        bad("4x3xf32", "4xf32", match="cast them to i64", error=DTypeError, size=(5,)),
        bad("4x3xf32", "3xi64", match="dims of the indices", error=ShapeError, size=(5,)),
        bad("4xf32", "4xi64", match="axis 1", error=ShapeError, size=(5,), axis=1),
        bad("4xf32", "4xi64", match='"clip"', error=GraphError, size=(5,), mode="drop"),
        bad("4xf32", "4xi64", match="one size", error=ShapeError, size=(5, 2)),
        bad("4xf32", "4xi64", match="empty", error=ShapeError, size=(0,)),
        bad("4xbool", "4xi64", match="found bool", error=DTypeError, size=(5,)),
    )

    @classmethod
    def build(
        cls,
        updates: Value,
        indices: Value | Array | int,
        size: DimLike,
        axis: int = 0,
        mode: str = "fault",
        batch_dims: int = 0,
    ) -> Value:
        """The indices may be a number or an array; a negative axis counts from the end."""
        index = as_indices(indices)
        axis = axis_of(axis, updates.rank - index.rank + batch_dims + 1, "scatter_add")
        return cls(updates, index, (as_dim(size),), axis, mode, batch_dims).out

    def infer(self) -> TensorType:
        updates = self.updates
        if updates.dtype not in ARITHMETIC:
            raise DTypeError(f"scatter_add adds numbers, found {updates.dtype}")
        if len(self.size) != 1:
            raise ShapeError(f"scatter_add takes one size, found {listed(self.size)}")
        middle = self.indices.rank - self.batch_dims
        axis = axis_of(self.axis, updates.rank - middle + 1, "scatter_add")
        shape = (*updates.shape[:axis], *self.size, *updates.shape[axis + middle :])
        self.check_updates(shape)
        return updates.type.with_shape(shape)

    @property
    def what(self) -> str:
        return "add"

    @property
    def target(self) -> None:
        return None

    def reference(self, updates: Array, indices: Array) -> Array:
        start = np.zeros(self.out.type.static_shape, updates.dtype)
        return self.written(start, updates, indices)

    def factors(self) -> Factors:
        lead, axis = self.batch_dims, self.axis
        middle = [f"i{i}" for i in range(lead, self.indices.rank)]
        behind = range(axis + len(middle), self.updates.rank)
        before, after = list(range(axis)), [f"t{i}" for i in behind]
        return Factors(
            self,
            [[*before, *middle, *after], [*before[:lead], *middle]],
            [[*before, "at", *after]],
            sums=middle,
        )

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        """Of a result that is cut along the axis, each rank adds up what falls on its part."""
        updates, indices = operands
        if "at" not in parts.cut or indices is None:
            return self.with_operands(operands).results
        mine, local = own_places(self, indices, parts, self.size)
        size = parts.length("at")
        at = mine.where(local, as_value(size))
        return self.with_operands([updates, at], size=(size,), mode="fill").results

    def vjp(self, g: Value) -> tuple[Value, None]:
        return self.taken(g), None

    def jvp(self, tu: Value | None, ti: Value | None) -> Value:
        if tu is None:
            return zeros(self.out.shape, self.out.dtype)
        return self.with_operands([tu, self.indices]).out


class Scatter(Scattering, name="mir.scatter"):
    """A tensor with updates written by index along one axis; what gather reads, it writes.

    The updates have the tensor's dims with that of ``axis`` replaced by the indices' dims. They
    are set, added, multiplied, or the lesser or greater is kept. Of several set to one place the
    last in index order stays. Ties of min and max share the gradient evenly.
    """

    x: Value = operand("the tensor to write on")
    indices: Value = operand("integers: where each update goes along the axis")
    updates: Value = operand("the tensor's dims, with the indices' dims in place of the axis")
    axis: int = attr(0, "the axis that the indices point into")
    reduction: str = attr("set", '"set", "add", "mul", "min" or "max"')
    mode: str = attr("fault", '"fault", "clip", "wrap" or "fill": an index out of range')
    batch_dims: int = attr(0, "number of leading axes that tensor, updates and indices share")

    dtypes = ANY
    samples = (
        sample("5x3xT", "4xi64", "4x3xT", axis=0, data={1: "index:5"}),
        sample("2x6x2xT", "2x3xi32", "2x3x2xT", axis=1, batch_dims=1, data={1: "index:4"}),
        sample("2x3xT", "4xu8", "2x4xT", axis=1, mode="fill", data={1: "index:5"}),
        sample("4xT", "i64", "T", data={1: "index:4"}),
        sample("3x2xT", "0xi64", "0x2xT", data={1: "index:3"}),
        sample("3x2xf16", "5xi64", "5x2xf16", reduction="add", data={1: "index:3"}),
        sample("3x2xbf16", "5xi64", "5x2xbf16", reduction="mul", data={1: "index:3"}),
        sample("3x2xf64", "5xi64", "5x2xf64", reduction="add", data={1: "index:3"}),
        sample("2x3xf64", "7xi32", "2x7xf64", axis=1, reduction="mul", data={1: "index:3"}),
        sample("2x3xf64", "2x4xi32", "2x4xf64", axis=1, reduction="mul", batch_dims=1,
               data={1: "index:3"}),
        sample("3x2xf64", "2x2xi64", "2x2x2xf64", reduction="min", data={1: "index:3"}),
        sample("3xi8", "5xi64", "5xi8", reduction="max", data={1: "index:3"}),
        sample("3xu64", "5xi64", "5xu64", reduction="mul", mode="wrap", data={1: "index:9"}),
    )  # fmt: skip
    bads = (
        bad("4xf32", "2xf32", "2xf32", match="cast them to i64", error=DTypeError),
        bad("4xc64", "2xi64", "2xc64", match="has an order", error=DTypeError, reduction="min"),
        bad("4x3xf32", "2xi64", "3x3xf32", match=r"must be \[2, 3\]", error=ShapeError),
        bad("4xf32", "2xi64", "2xf32", match="axis 1", error=ShapeError, axis=1),
        bad("4xf32", "2xi64", "2xf64", match="one type", error=DTypeError),
        bad("4xf32", "2xi64", "2xf32", match='"clip"', error=GraphError, mode="drop"),
        bad("4xf32", "2xi64", "2xf32", match='"max"', error=GraphError, reduction="mean"),
        bad("0xf32", "2xi64", "2xf32", match="empty", error=ShapeError),
        bad("4xbool", "2xi64", "2xbool", match="bool", error=DTypeError, reduction="add"),
    )

    @classmethod
    def build(
        cls,
        x: Value,
        indices: Value | Array | int,
        updates: Value | Array | float,
        axis: int = 0,
        reduction: str = "set",
        mode: str = "fault",
        batch_dims: int = 0,
    ) -> Value:
        """The indices may be a number or an array; updates broadcast, and numbers take the tensor's
        element type; a negative axis counts from the end."""
        index, new, axis = as_indices(indices), lift(updates, x), axis_of(axis, x.rank, "scatter")
        wanted = (*x.shape[:axis], *index.shape[batch_dims:], *x.shape[axis + 1 :])
        if new.shape != wanted and new.rank <= len(wanted):
            new = new.expand(wanted)
        return cls(x, index, new, axis, reduction, mode, batch_dims).out

    def infer(self) -> TensorType:
        x, updates = self.x, self.updates
        axis_of(self.axis, x.rank, "scatter")
        if self.reduction not in REDUCTIONS:
            known = ", ".join(f'"{r}"' for r in REDUCTIONS)
            raise GraphError(f"scatter: reduction is one of {known}; found {self.reduction!r}")
        if updates.dtype is not x.dtype:
            raise DTypeError(
                f"scatter takes a tensor and updates of one type, found {x.dtype} and"
                f" {updates.dtype}"
            )
        if self.reduction in ("min", "max"):
            check_ordered(f"scatter of {self.reduction}", x.dtype)
        if x.dtype is bool_ and self.reduction in ("add", "mul"):
            raise DTypeError(f"scatter: bools have no {self.reduction}; take max (or), min (and)")
        self.check_updates(x.shape)
        return x.type

    @property
    def what(self) -> str:
        return self.reduction

    @property
    def target(self) -> Value:
        return self.x

    def reference(self, x: Array, indices: Array, updates: Array) -> Array:
        return self.written(x, updates, indices)

    # -- derivatives -----------------------------------------------------------------------

    def factors(self) -> Factors:
        lead, axis = self.batch_dims, self.axis
        middle = [f"i{i}" for i in range(lead, self.indices.rank)]
        before, after = list(range(axis)), [f"t{i}" for i in range(axis + 1, self.x.rank)]
        x = [*before, "at", *after]
        updates = [*before, *middle, *after]
        return Factors(self, [x, [*before[:lead], *middle], updates], [x], whole=["at", *middle])

    def vjp(self, g: Value) -> tuple[Value, None, Value]:
        if self.reduction == "add":
            return g, None, self.taken(g)
        if self.reduction == "set":
            nothing = zeros(self.updates.shape, g.dtype)
            stays = self._stays().where(self.taken(g), 0.0)
            return self.with_operands([g, self.indices, nothing]).out, None, stays
        wide = widened(g)
        if self.reduction == "mul":
            factor, others = self._factors()
            gu = self.taken(wide) * others
            return (wide * factor).cast(to=g.dtype), None, gu.cast(to=g.dtype)
        mine, theirs, count = self._winners()
        share = wide / count
        gx, gu = mine.where(share, 0.0), theirs.where(self.taken(share), 0.0)
        return gx.cast(to=g.dtype), None, gu.cast(to=g.dtype)

    def jvp(self, tx: Value | None, ti: Value | None, tu: Value | None) -> Value:
        dt = self.out.dtype
        tx = zeros(self.x.shape, dt) if tx is None else tx
        tu = zeros(self.updates.shape, dt) if tu is None else tu
        if self.reduction in ("add", "set"):
            return self.with_operands([tx, self.indices, tu]).out
        tx, tu = widened(tx), widened(tu)
        if self.reduction == "mul":
            factor, others = self._factors()
            return self._added(tx * factor, tu * others).cast(to=dt)
        mine, theirs, count = self._winners()
        return (self._added(mine.where(tx, 0.0), theirs.where(tu, 0.0)) / count).cast(to=dt)

    def _added(self, x: Value, updates: Value) -> Value:
        return self.with_operands([x, self.indices, updates], reduction="add").out

    def _spread(self, v: Value) -> Value:
        """A value of the indices' shape as one of the updates' shape."""
        before, after = self.axis - self.batch_dims, self.x.rank - 1 - self.axis
        lead, middle = v.shape[: self.batch_dims], v.shape[self.batch_dims :]
        return v.reshape((*lead, *[1] * before, *middle, *[1] * after)).expand(self.updates.shape)

    def _stays(self) -> Value:
        """Whether an update is the last for its place, for every update."""
        lead, shape = self.batch_dims, self.indices.shape
        count = self.indices.type.with_shape(shape[lead:]).size
        number = Iota((count,), 0, i64).out.reshape(shape[lead:]).expand(shape)
        none = zeros((*shape[:lead], self.x.shape[self.axis]), i64)
        last = Scatter(none, self.indices, number, lead, "set", self.mode, lead).out
        found = Gather(last, self.indices, lead, self.mode, lead).out
        return self._spread(found.eq(number))

    def _winners(self) -> tuple[Value, Value, Value]:
        """Which elements and which updates equal the result at their place; how many do there."""
        mine, theirs = self.x.eq(self.out), self.updates.eq(self.taken(self.out))
        wide = widened(self.x).dtype
        return mine, theirs, self._added(mine.cast(to=wide), theirs.cast(to=wide))

    def _factors(self) -> tuple[Value, Value]:
        """For every element the product of its updates; for every update the product of the
        element and of the other updates for its place. Nothing is divided, so that both hold at
        zeros, and so do their own derivatives."""
        x, updates = widened(self.x), widened(self.updates)
        one = Constant(np.ones((), x.dtype.numpy)).out.expand(x.shape)
        factor = self.with_operands([one, self.indices, updates]).out
        return factor, self.taken(x) * self._others(updates)

    def _others(self, updates: Value) -> Value:
        """For every update the product of the others for its place: sorted by place, those before
        it times those behind it, each by doubling steps."""
        lead, shape, axis = self.batch_dims, self.indices.shape, self.axis
        count = math.prod(self.indices.type.static_shape[lead:])
        flat = (*self.x.shape[:axis], count, *self.x.shape[axis + 1 :])
        place = self._places().reshape((*shape[:lead], count))
        order = place.argsort(lead)
        back = order.argsort(lead)
        sorted_ = Gather(updates.reshape(flat), order, axis, "clip", lead).out
        place = Gather(place, order, lead, "clip", lead).out
        before, behind = (_running(self, sorted_, place, count, way) for way in (1, -1))
        others = Gather(before * behind, back, axis, "clip", lead).out
        return others.reshape(self.updates.shape)

    def _places(self) -> Value:
        """The place that each index names; with "fill" one past the end for one out of range."""
        lead, shape, length = self.batch_dims, self.indices.shape, self.x.shape[self.axis]
        line = Iota((length,), 0, i64).out + 1
        if lead:
            line = line.expand((*shape[:lead], length))
        return Gather(line, self.indices, lead, self.mode, lead).out


def _running(op: Scatter, v: Value, place: Value, count: int, way: int) -> Value:
    """For every update, sorted by place, the product of those for the same place before it
    (``way`` 1) or behind it (-1)."""
    axis, lead = op.axis, op.batch_dims

    def spread(v: Value) -> Value:
        dims = [*v.shape[:lead], *[1] * (axis - lead), count, *[1] * (op.x.rank - 1 - axis)]
        return v.reshape(dims)

    def near(v: Value, by: int) -> Value:
        same = shifted(place, lead, way * by, -1).eq(place)
        return spread(same).where(shifted(v, axis, way * by, 1), 1)

    out, reach = near(v, 1), 1
    while reach < count - 1:
        out, reach = out * near(out, reach), 2 * reach
    return out
