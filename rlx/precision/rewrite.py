"""A precision policy as a rewrite of a graph.

A value that was declared f32 may lie in 16 bits: then it is cast back where an op needs f32. So a
pair of casts that meet and change nothing is never made, and one that rounds is never dropped. The
leaves and the outputs of a graph, and of the bodies in it, keep their types. Integers, bools, f64,
complex numbers, and the 16-bit floats that a graph declares are left alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rlx.ir.graph import Graph, topological
from rlx.ir.op import Op, located
from rlx.ir.value import Value
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.pointwise.binary import Add, Sub
from rlx.ops.pointwise.cast import Cast
from rlx.ops.quant.affine import QuantizeRows
from rlx.ops.quant.product import DequantMatMul, decoded_product
from rlx.ops.quant.rows import ROW_BLOCK, DequantMatMulRows, takes_rows
from rlx.precision import OpClass, Types
from rlx.precision.classes import PRODUCTS, ROUNDED, class_of
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named
from rlx.types import DType, bf16, f16, f32

__all__ = ["PrecisionReport", "with_precision"]

_TILE_K = 32
"""Elements of K in a tile of bf16 (``rlx.kernels.matmul.amx``)."""


@dataclass
class PrecisionReport:
    """What a policy did: how many ops of each name and type it changed, and how many casts of which
    types it put in."""

    types: Types
    changed: Counter[str] = field(default_factory=Counter[str])
    casts: Counter[str] = field(default_factory=Counter[str])

    def __str__(self) -> str:
        def listed(counts: Counter[str]) -> str:
            return ", ".join(f"{what} x {n}" for what, n in sorted(counts.items())) or "none"

        changed, casts = listed(self.changed), listed(self.casts)
        return f"precision: {self.types}\n  changed: {changed}\n  casts: {casts}"


def with_precision(graph: Graph, types: Types) -> tuple[Graph, PrecisionReport]:
    """The graph computed in the element types of a policy; its leaves and outputs are the same."""
    report = PrecisionReport(types)
    return _Rewrite(types, report).graph(graph), report


class _Rewrite:
    """Rewrites one graph. ``now`` has what each value of the old graph has become; its type is
    narrower than the declared one where it holds the same numbers in 16 bits."""

    def __init__(self, types: Types, report: PrecisionReport) -> None:
        self.types, self.report = types, report
        self.now: dict[Value, Value] = {}
        self.casts: dict[tuple[Value, DType], Value] = {}
        self.halves: dict[Value, tuple[Value, Value]] = {}
        self.rows: dict[Value, tuple[Value, Value]] = {}

    def graph(self, graph: Graph) -> Graph:
        out = Graph(graph.name)
        out._names = dict(graph._names)
        out.param_values = dict(graph.param_values)
        for old, new in ((graph.inputs, out.inputs), (graph.params, out.params)):
            for v in old:
                self.now[v] = Value(v.type, graph=out, name=v.name)
                new.append(self.now[v])
        for op in graph.nodes():
            self.visit(op)
        out.outputs = [self.declared(v) for v in graph.outputs]
        out.output_names = graph.output_names
        return out

    # -- values ----------------------------------------------------------------------------

    def cast(self, v: Value, to: DType) -> Value:
        """A value in another type; the cast of a cast that widened it is the value before."""
        if v.dtype is to:
            return v
        if v.op is not None and isinstance(v.op, Cast) and v.op.x.dtype is to and v.dtype is f32:
            return v.op.x
        if (v, to) not in self.casts:
            self.casts[v, to] = Cast(v, to, True).out
            self.report.casts[f"{v.dtype} to {to}"] += 1
        return self.casts[v, to]

    def declared(self, v: Value) -> Value:
        """What a value has become, in the type that the graph declares."""
        return self.cast(self.now[v], v.dtype)

    def rounded(self, v: Value, to: DType) -> Value:
        """As ``declared``, but what is declared f32 comes in the type ``to``."""
        return self.cast(self.now[v], to) if v.dtype is f32 else self.declared(v)

    # -- ops -------------------------------------------------------------------------------

    def visit(self, op: Op) -> None:
        with located(op.location):
            if op.dialect == "hir" or (op.name == "mir.dot_general" and self.types.compute):
                self.expand(op)
                return
            made = self.changed(op) or self.same(op)
            self.now.update(zip(op.results, made.results, strict=True))

    def expand(self, op: Op) -> None:
        """Visit what a composite is made of."""
        leaves = [None if v is None else Value(v.type) for v in op.operands]
        for leaf, v in zip(leaves, op.operands, strict=True):
            if leaf is not None and v is not None:
                self.now[leaf] = self.now[v]
        outs = op.with_operands(leaves).expansion()
        for inner in topological(outs):
            self.visit(inner)
        self.now.update(zip(op.results, (self.now[v] for v in outs), strict=True))

    def changed(self, op: Op) -> Op | None:
        """The op in the policy's type, or None if it stays as it is declared."""
        if self.types.rounds_rows:
            return self.by_rows(op)
        kind = class_of(op)
        if kind is None or not all(v.dtype is f32 for v in op.results):
            return None
        to = self.types.of(kind)
        if self.types.splits:
            return self.split(op) if op.name == MatMul.name and to else None
        if to is None:
            return self.moved(op) if kind is OpClass.MOVEMENT else None
        rounds = ROUNDED.get(op.name, len(op.operands))
        if not any(v.dtype is f32 for v in op.present[:rounds]):
            return None
        operands = [
            v if v is None else self.rounded(v, to) if i < rounds else self.declared(v)
            for i, v in enumerate(op.operands)
        ]
        sums = self.types.keeps_sums and op.name in PRODUCTS
        if sums:
            operands = [None if v is None else self.cast(v, f32) for v in operands]
        self.report.changed[f"{op.short} in {to}"] += 1
        return op.with_operands(operands)

    def by_rows(self, op: Op) -> Op | None:
        """A product of f32 by a weight in packed blocks, of rows in 8 bits; else None."""
        found = _packed_product(op)
        if found is None:
            return None
        x, packed, scheme = self.declared(found.x), self.declared(found.packed), found.scheme
        if x not in self.rows:
            q, scales = QuantizeRows(x, ROW_BLOCK).results
            self.rows[x] = q, scales
        self.report.changed[f"{op.short} of rows in 8 bits by {scheme}"] += 1
        return DequantMatMulRows(*self.rows[x], packed, scheme)

    def split(self, op: Op) -> Op | None:
        """A product as three: with ``x = h + l`` and each part a bf16, ``x y`` is ``lx hy + hx ly +
        hx hy``, but for ``lx ly``, some 2**-16 of it. None if K makes no whole tiles of AMX."""
        k = op.present[0].shape[-1]
        if not isinstance(k, int) or k % _TILE_K:
            return None
        (high_x, low_x), (high_y, low_y) = (self.parts(self.declared(v)) for v in op.present)
        small = Add(MatMul(low_x, high_y).out, MatMul(high_x, low_y).out).out
        self.report.changed[f"{op.short} in 3 x {self.types.compute}"] += 1
        return Add(small, MatMul(high_x, high_y).out)

    def parts(self, v: Value) -> tuple[Value, Value]:
        """The number of the policy's type next to each element, and that next to the rest; as f32,
        which holds both."""
        if v not in self.halves:
            to = self.types.compute
            assert to is not None
            high = self.cast(self.cast(v, to), f32)
            self.halves[v] = high, self.cast(self.cast(Sub(v, high).out, to), f32)
        return self.halves[v]

    def moved(self, op: Op) -> Op | None:
        """A movement of values that all lie in one 16-bit type, in that type."""
        found = {self.now[v].dtype for v in op.present if v.dtype is f32}
        if len(found) != 1 or not found & {f16, bf16}:
            return None
        return op.with_operands([None if v is None else self.now[v] for v in op.operands])

    def same(self, op: Op) -> Op:
        """The op in the types that it declares, its bodies rewritten."""
        bodies = {
            a.name: _Rewrite(self.types, self.report).graph(op.attrs[a.name])
            for a in op.attr_fields
            if a.kind == "Graph"
        }
        operands = [None if v is None else self.declared(v) for v in op.operands]
        return op.with_operands(operands, **bodies)


def _packed_product(op: Op) -> DequantMatMul | None:
    """A product of f32 rows by a weight in packed blocks, also one that is written with ops; None
    if it is no such product, or rows in 8 bits do not go by its blocks."""
    if isinstance(op, MatMul):
        found = decoded_product(op)
    else:
        found = op if isinstance(op, DequantMatMul) else None
    if found is None or found.x.dtype is not f32 or found.x.shape[-1] == 0:
        return None
    row = scheme_named(found.scheme)
    return found if isinstance(row, BlockScheme) and takes_rows(row) else None
