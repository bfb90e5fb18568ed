"""Graphs whose weights are in few bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import GraphError
from rlx.ir.builders import located
from rlx.ir.given import param_arrays
from rlx.ir.graph import Graph, topological
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.conv.conv import Conv
from rlx.ops.quant.affine import Quantize, QuantizeRows
from rlx.ops.quant.integer import ScaledConv, ScaledMatMul
from rlx.ops.quant.product import DequantMatMul
from rlx.ptq.calibrator import Calibrator, product_inputs
from rlx.ptq.expanded import (
    MOST,
    expanded,
    finite_value,
    output_axis,
    rewritten,
    scales_along,
    weight_of,
)
from rlx.ptq.records import INT8, CalibrationRecord, QuantMap, Row
from rlx.quant import dequantize, quantize
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named
from rlx.types import TensorType

__all__ = ["Quantized", "quantize_graph"]

Array = np.ndarray[Any, Any]


class Quantized(NamedTuple):
    """A graph with weights in few bits, the values of its params, and a row for each weight of a
    product. ``str`` is a table of the rows."""

    graph: Graph
    params: dict[str, Array]
    rows: list[Row]

    def __str__(self) -> str:
        lines = [f"{'weight':40} {'scheme':>10} {'error':>9} {'MiB':>8} {'was':>8}"]
        for r in self.rows:
            error = "" if r.error != r.error else f"{r.error:.5f}"
            lines.append(
                f"{r.name:40} {r.scheme:>10} {error:>9} {r.after / 2**20:8.2f}"
                f" {r.before / 2**20:8.2f}"
            )
        return "\n".join(lines)


@located
def quantize_graph(
    graph: Graph,
    params: Mapping[str, Any] | None = None,
    scheme: QuantMap | Mapping[str, str | None] | str = INT8,
    calibration: Iterable[Mapping[str, Any]] | None = None,
    device: str = "cpu",
) -> Quantized:
    """The graph with the weights of its products and convolutions in few bits.

    ``params`` are the values of params that the graph does not have itself. ``scheme`` is one for
    all weights, or a ``QuantMap`` of them by name. "int8" has a scale for each output, and rounds
    what it multiplies to 8 bits too: by scales of ``calibration``, which are inputs of some runs on
    ``device``, or without them by the largest element of each row. Of a scheme of blocks, such as
    "q4_0", the weight is decoded and rows stay as they are; a weight whose rows are no whole
    blocks is left, as is a convolution's. The rows of the result say what became of each weight.

    GraphError for a weight without a value, and for a convolution in int8 without calibration;
    NameError, DTypeError and ShapeError for ``params`` that do not fit, FaultError for weights that
    are not finite.
    """
    flat = expanded(graph)
    values = {**flat.param_values, **param_arrays(flat, params or {})}
    work = _Work(flat, values, QuantMap.of(scheme))
    if calibration is not None and work.int8_inputs():
        calibrator = Calibrator(flat, work.int8_inputs(), values, device)
        for inputs in calibration:
            calibrator.step(inputs)
        work.record = calibrator.record
    return work.run()


class _Work:
    """One rewrite of a graph."""

    def __init__(self, graph: Graph, values: Mapping[str, Array], schemes: QuantMap) -> None:
        self.graph, self.values, self.schemes = graph, values, schemes
        self.record = CalibrationRecord({})
        self.params: dict[str, Array] = {}
        self.made: dict[tuple[str, bool], tuple[Value, Value | None]] = {}
        self.codes: dict[Value, tuple[Value, Value]] = {}
        self.places: dict[str, tuple[str, int]] = {}
        self.rows: dict[str, Row] = {}
        self.out = graph

    def int8_inputs(self) -> list[Value]:
        """What weights in int8 are multiplied with."""
        wanted: set[Value] = set()
        for op in self.graph.nodes():
            found = weight_of(op)
            if found is not None and self.schemes.scheme_of(str(found[0].name)) == INT8:
                wanted.add(op.present[0])
        return [v for v in product_inputs(self.graph) if v in wanted]

    def run(self) -> Quantized:
        """The rewritten graph, with the values of the params that it needs."""
        out, _ = rewritten(self.graph, self.change)
        used = {v for op in topological(out.outputs) for v in op.present if v.op is None}
        used |= set(out.outputs)
        new = [v for pair in self.made.values() for v in pair if v is not None]
        out.params = [p for p in out.params if p in used] + new
        for v in new:
            out._names[str(v.name)] = self.places[str(v.name)]
        names = {str(p.name) for p in out.params}
        kept = {n: v for n, v in self.values.items() if n in names}
        out.param_values = {n: v for n, v in out.param_values.items() if n in names}
        rows = [
            replace(r, after=r.after + r.before) if n in names else r for n, r in self.rows.items()
        ]
        return Quantized(out, {**kept, **self.params}, rows)

    def change(
        self, out: Graph, op: Op, operands: Sequence[Value | None]
    ) -> Sequence[Value] | None:
        """A product by a weight that has a scheme."""
        self.out = out
        found = weight_of(op)
        if found is None:
            return None
        weight, turned = found
        name = str(weight.name)
        scheme = self.schemes.scheme_of(name)
        if scheme is None:
            self.leave(weight, "left")
            return None
        x = operands[0]
        assert x is not None
        if scheme == INT8:
            return self.integers(op, x, weight, turned)
        return self.blocks(op, x, weight, turned, scheme)

    def value(self, weight: Value) -> Array:
        """The f32 value of a param."""
        name = str(weight.name)
        if name not in self.values:
            raise GraphError(f"the weight {name!r} has no value: give it by params")
        return finite_value(weight, self.values)

    def param(self, weight: Value, kind: str, turned: bool, value: Array) -> Value:
        """A new param in the place of a weight, which the graph gets when it is done."""
        name = f"{weight.name}.{kind}{'.t' if turned else ''}"
        self.params[name], self.places[name] = value, self.graph.leaf_location(str(weight.name))
        return Value(TensorType.of(value.shape, value.dtype), graph=self.out, name=name)

    # -- schemes ---------------------------------------------------------------------------

    def integers(self, op: Op, x: Value, weight: Value, turned: bool) -> Sequence[Value]:
        """A product or a convolution of 8-bit integers."""
        conv = isinstance(op, Conv)
        key = (str(weight.name), turned)
        if key not in self.made:
            self.made[key] = self.integer_weight(weight, turned, output_axis(op, turned))
        q, scale = self.made[key]
        assert scale is not None
        entry = self.record.get(op.present[0])
        if entry is not None:
            if x not in self.codes:
                at = self.out.constant(entry.scales)
                self.codes[x] = Quantize.build(x, at), at
        elif conv:
            raise GraphError(
                f"the convolution by {weight.name!r} needs scales of its inputs to be in int8: give"
                " calibration, or leave the weight by a QuantMap"
            )
        elif x not in self.codes:
            codes, scales = QuantizeRows(x, 0).results
            self.codes[x] = codes, scales
        codes, own = self.codes[x]
        if conv:
            return ScaledConv(codes, q, own, scale, None, None, **op.attrs).results
        return ScaledMatMul(codes, q, own, scale, None, None).results

    def integer_weight(self, weight: Value, turned: bool, axis: int) -> tuple[Value, Value]:
        """The integers of a weight, and a scale for each output."""
        value = self.value(weight)
        scales = scales_along(value, axis)
        scale = np.expand_dims(scales, tuple(a for a in range(value.ndim) if a != axis))
        q = np.clip(np.rint(value / scale), -MOST, MOST).astype(np.int8)
        self.note(weight, INT8, value, q * scale, q.nbytes + scales.nbytes)
        q = np.ascontiguousarray(q.T) if turned else q
        return self.param(weight, INT8, turned, q), self.param(weight, "scales", turned, scales)

    def blocks(
        self, op: Op, x: Value, weight: Value, turned: bool, scheme: str
    ) -> Sequence[Value] | None:
        """A product by packed blocks, along the rows that it sums over."""
        row = scheme_named(scheme)
        assert isinstance(row, BlockScheme)
        name = str(weight.name)
        if isinstance(op, Conv) or weight.shape[1 if turned else 0] % row.block:
            why = "a convolution" if isinstance(op, Conv) else f"no blocks of {row.block}"
            self.leave(weight, f"left: {why}")
            return None
        key = (name, turned)
        if key not in self.made:
            value = self.value(weight)
            value = value if turned else np.ascontiguousarray(value.T)
            packed = quantize(value, scheme)
            self.note(weight, scheme, value, dequantize(packed, scheme, value.shape), packed.nbytes)
            self.made[key] = self.param(weight, scheme, turned, packed), None
        return DequantMatMul(x, self.made[key][0], scheme).results

    def leave(self, weight: Value, why: str) -> None:
        """Keep a row of a weight that stays, unless it has one."""
        name = str(weight.name)
        held = self.values.get(name)
        unbound = held is None and not weight.type.is_static
        size = 0 if unbound else weight.type.nbytes if held is None else held.nbytes
        self.rows.setdefault(name, Row(name, why, before=size))

    def note(self, weight: Value, scheme: str, value: Array, found: Array, after: int) -> None:
        """Keep a row of a weight that became others, whose bytes are ``after``."""
        off = np.sqrt(np.sum((value - found) ** 2, dtype=np.float64))
        size = np.sqrt(np.sum(value**2, dtype=np.float64))
        error = float(off / size) if size else 0.0
        name = str(weight.name)
        before = self.rows.get(name)
        after += before.after if before is not None else 0
        self.rows[name] = Row(name, scheme, error, value.nbytes, after)
