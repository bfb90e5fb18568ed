"""Rotary position embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factor, Factors
from rlx.ir.op import Array, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.movement import listed
from rlx.ops.movement.slicing import Concat
from rlx.ops.nn.heads import (
    canonical,
    check_floats,
    check_layout,
    compute_type,
    layout_of,
    merge_heads,
    split_heads,
    static,
    total,
)
from rlx.types import FLOATS, Dim, TensorType

__all__ = ["Rope", "check_tables"]

_X, _T = "2x3x8xf32", "3x2xf32"


def check_tables(
    op: str, x: Value, seq: Dim, columns: set[int], tables: Sequence[tuple[str, Value]]
) -> None:
    """Refuse tables that are not ``[seq, one of columns]`` in x's type or its computing type."""
    wants = [(seq, c) for c in sorted(columns)]
    for name, table in tables:
        if table.dtype not in (x.dtype, compute_type(x.dtype)):
            raise DTypeError(
                f"{op}: {name} is {table.dtype} with x of {x.dtype}; cast the table first"
            )
        if table.shape not in wants:
            want = " or ".join(map(listed, wants))
            raise ShapeError(f"{op}: {name} must be {want}, found {table.type}")


class Rope(Op, name="mir.rope"):
    """Rotary position embedding: pairs of elements of every head turned by an angle per position.

    With h = n_rot / 2, for i < h: ``(x[i], x[i+h])`` becomes ``(x[i] c - x[i+h] s, x[i+h] c +
    x[i] s)`` with c and s at row position, column i of the tables (GPT-NeoX's half-split form; Su
    et al., "RoFormer", 2021). Elements n_rot and up of a head are copied.

    x is ``[B, S, H*D]`` (layout "bshd") or ``[B, H, S, D]`` ("bhsd"); the tables are
    ``[S, n_rot/2]`` or ``[S, D/2]``, whose rows count positions in the sequence: a decoder that
    continues a sequence gives the rows from its position on. With a 16-bit x the tables may be
    f32; the result is rounded once.
    """

    x: Value = operand("queries or keys")
    cos: Value = operand("cosines of the angles")
    sin: Value = operand("sines of the angles")
    head_dim: int = attr(doc="elements of a head, D")
    n_rot: int = attr(doc="elements of a head that turn; even, at most D")
    layout: str = attr("bshd", '"bshd" or "bhsd"')

    linear = ((0,),)
    flops_per_element = 3
    dtypes = FLOATS
    samples = (
        sample("2x3x8xT", "3x2xT", "3x2xT", head_dim=4, n_rot=4),
        sample("1x2x6xT", "2x1xT", "2x1xT", head_dim=6, n_rot=2),
        sample("1x2x6xT", "2x3xT", "2x3xT", head_dim=6, n_rot=4),
        sample("2x3x2x5xT", "2x2xT", "2x2xT", head_dim=5, n_rot=2, layout="bhsd"),
        sample("0x2x4xT", "2x2xT", "2x2xT", head_dim=4, n_rot=4),
    )
    bads = (
        bad("2x3x8xi8", _T, _T, match="takes f16", error=DTypeError, head_dim=4, n_rot=4),
        bad(_X, "3x2xf64", "3x2xf64", match="cos is f64", error=DTypeError, head_dim=4, n_rot=4),
        bad(_X, _T, _T, match="rank 4", error=ShapeError, head_dim=4, n_rot=4, layout="bhsd"),
        bad(_X, _T, _T, match="heads of 3", error=ShapeError, head_dim=3, n_rot=2),
        bad(_X, _T, _T, match="even", error=ShapeError, head_dim=4, n_rot=3),
        bad(_X, _T, _T, match="even", error=ShapeError, head_dim=4, n_rot=6),
        bad(_X, _T, "2x2xf32", match="sin must be", error=ShapeError, head_dim=4, n_rot=4),
        bad(_X, "3x4xf32", _T, match="cos must be", error=ShapeError, head_dim=4, n_rot=4),
    )  # fmt: skip

    @classmethod
    def build(
        cls,
        x: Value,
        cos: Value,
        sin: Value,
        head_dim: int | None = None,
        n_rot: int | None = None,
        *,
        layout: str | None = None,
    ) -> Value:
        """Turn x by the tables. Rank 2 is a batch of one; rank 4 needs ``layout``, where "bshd"
        means ``[B, S, H, D]``, and no head_dim. n_rot is head_dim unless given."""
        shape, layout = x.shape, layout_of("rope", x, layout)
        if head_dim is None:
            if x.rank < 4:
                raise ShapeError(f"rope needs head_dim to part {x.type} into heads")
            head_dim = static(x.shape[-1])
        rotated = head_dim if n_rot is None else n_rot
        out = cls(canonical(x, layout), cos, sin, head_dim, rotated, layout).out
        return out if out.shape == shape else out.reshape(shape)

    # -- types -----------------------------------------------------------------------------

    def infer(self) -> TensorType:
        check_floats("rope", (self.x,))
        check_layout("rope", self.layout, self.x)
        features = static(self.x.shape[-1])
        fits = (
            features == self.head_dim
            if self.layout == "bhsd"
            else self.head_dim > 0 and features % self.head_dim == 0
        )
        if not fits:
            raise ShapeError(
                f"rope: x {self.x.type} does not hold heads of {self.head_dim} ({self.layout})"
            )
        if not 0 < self.n_rot <= self.head_dim or self.n_rot % 2:
            raise ShapeError(
                f"rope: n_rot must be even and at most head_dim {self.head_dim}, found {self.n_rot}"
            )
        tables = (("cos", self.cos), ("sin", self.sin))
        check_tables("rope", self.x, self._seq, {self._half, self.head_dim // 2}, tables)
        return self.x.type

    @property
    def _half(self) -> int:
        return self.n_rot // 2

    @property
    def _seq(self) -> Dim:
        return self.x.shape[-2]

    @property
    def heads(self) -> int:
        """Heads of x."""
        return static(
            self.x.shape[1] if self.layout == "bhsd" else self.x.shape[2] // self.head_dim
        )

    # -- meaning ---------------------------------------------------------------------------

    def reference(self, x: Array, cos: Array, sin: Array) -> Array:
        wide, h = compute_type(self.x.dtype).numpy, self._half
        heads = split_heads(x, self.layout, self.heads).astype(wide)
        c, s = cos[:, :h].astype(wide), sin[:, :h].astype(wide)
        a, b = heads[..., :h], heads[..., h : 2 * h]
        out = np.concatenate([a * c - b * s, b * c + a * s, heads[..., 2 * h :]], axis=-1)
        return np.ascontiguousarray(merge_heads(out, self.layout).astype(x.dtype))

    def loops(self, b: Any) -> None:
        k, h, d = b.k, self._half, self.head_dim

        def point(*at: Any) -> None:
            feature, position = at[-1], at[-2]
            i = feature % d
            x = b.load(0, at)
            first = i < h
            column = k.select(first, i, i - h)
            partner = k.select(first, feature + h, feature - h)
            turns = i < self.n_rot if self.n_rot < d else None
            if turns is not None:
                # Elements that do not turn read a place that exists, and keep their own value.
                column, partner = k.select(turns, column, 0), k.select(turns, partner, feature)
            across = b.load(0, (*at[:-1], partner)) * b.load(2, (position, column))
            out = x * b.load(1, (position, column)) + k.select(first, -across, across)
            b.store(0, at, out if turns is None else k.select(turns, out, x))

        b.parallel(self.x.type.static_shape, point)

    # -- transforms ------------------------------------------------------------------------

    def factors(self) -> Factors:
        packed = self.layout == "bshd"
        x: list[Any] = ["b", "s", ("h", "d")] if packed else ["b", "h", "s", "d"]
        heads = self.x.shape[2] // self.head_dim if packed else self.x.shape[1]
        sizes: dict[Factor, Dim] = {"h": heads, "d": self.head_dim}
        return Factors(self, [x, ["s", None], ["s", None]], [x], whole=["d"], sizes=sizes)

    def vjp(self, g: Value) -> tuple[Value, Value, Value]:
        """x turns back; the tables sum over batch and heads."""
        (a, b), (ga, gb) = self._pairs(self.x), self._pairs(g)
        dcos, dsin = ga * a + gb * b, gb * a - ga * b
        back = self.with_operands((g, self.cos, -self.sin)).out
        return back, self._table_sum(dcos, self.cos), self._table_sum(dsin, self.sin)

    def jvp(self, tx: Value | None, tcos: Value | None, tsin: Value | None) -> Value:
        parts: list[Value] = []
        if tx is not None:
            parts.append(self.with_operands((tx, self.cos, self.sin)).out)
        a, b = self._pairs(self.x)
        if tcos is not None:
            c = self._columns(tcos)
            parts.append(self._joined(a * c, b * c))
        if tsin is not None:
            s = self._columns(tsin)
            parts.append(self._joined(-(b * s), a * s))
        return total(parts)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        """With shared tables the new axis joins B. Otherwise it joins S, to which the tables go."""
        pairs = list(zip(operands, batched, strict=True))
        n = next(v.shape[0] for v, has in pairs if has)
        x, cos, sin = (
            v if has else v.reshape((1, *v.shape)).expand((n, *v.shape)) for v, has in pairs
        )
        shape, seq = self.x.shape, self._seq
        if not batched[1] and not batched[2]:
            folded = x.reshape((n * shape[0], *shape[1:]))
            return self.with_operands((folded, *operands[1:])).out.reshape((n, *shape))
        # [n, ..., S, F] -> [..., n, S, F] -> [..., n*S, F], and back.
        last = len(shape) - 1
        rows = x.transpose([*range(1, last), 0, last, last + 1])
        flat = rows.reshape((*shape[:-2], n * seq, shape[-1]))
        cos, sin = (t.reshape((n * seq, t.shape[-1])) for t in (cos, sin))
        out = self.with_operands((flat, cos, sin)).out.reshape(rows.shape)
        return out.transpose([last - 1, *range(last - 1), last, last + 1])

    def _pairs(self, x: Value) -> tuple[Value, Value]:
        """The elements that turn together, ``[B, H, S, n_rot/2]`` twice, as they are computed."""
        heads = split_heads(x.cast(to=compute_type(self.x.dtype)), self.layout, self.heads)
        return heads.narrow(-1, 0, self._half), heads.narrow(-1, self._half, self._half)

    def _joined(self, a: Value, b: Value) -> Value:
        """The inverse of ``_pairs``, with zeros for the elements that do not turn."""
        heads = Concat(a, b, 3).out
        rest = self.head_dim - self.n_rot
        if rest:
            heads = heads.pad((0, 0, 0, 0), (0, 0, 0, rest))
        return merge_heads(heads, self.layout).cast(to=self.x.dtype)

    def _columns(self, table: Value) -> Value:
        used = table if table.shape[-1] == self._half else table.narrow(-1, 0, self._half)
        return used.cast(to=compute_type(self.x.dtype))

    def _table_sum(self, d: Value, table: Value) -> Value:
        d = d.sum(axes=(0, 1))
        unused = static(table.shape[-1]) - self._half
        if unused:
            d = d.pad((0, 0), (0, unused))
        return d.cast(to=table.dtype)
