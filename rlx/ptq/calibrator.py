"""Scales of values by running a graph, and graphs that round to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, FaultError, GraphError
from rlx.ir.builders import located, public
from rlx.ir.given import param_arrays
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.ops.quant.affine import Dequantize, Quantize
from rlx.ptq.expanded import (
    expanded,
    finite_value,
    output_axis,
    rewritten,
    scales_along,
    scales_of,
    weight_of,
)
from rlx.ptq.records import CalibrationEntry, CalibrationRecord
from rlx.types import FLOATS

__all__ = ["Calibrator", "insert_q_dq", "product_inputs"]

Array = np.ndarray[Any, Any]


def product_inputs(graph: Graph) -> list[Value]:
    """What products and convolutions by a param multiply it with."""
    found = [op.present[0] for op in graph.nodes() if weight_of(op) is not None]
    return list(dict.fromkeys(found))


@public
class Calibrator:
    """Finds scales of values of a graph from the largest elements that they have in some runs.

        calibrator = rlx.quant.Calibrator(graph, params=weights)
        for batch in batches:
            calibrator.step(batch)
        quantised = rlx.quant.insert_q_dq(calibrator.graph, calibrator.record)

    ``taps`` are floats of the graph, outputs or not. Without them they are what products and
    convolutions by a param multiply it with, and ``graph`` is the one given with its blocks
    expanded, whose values these are; the record has the params too, with a scale for each output.
    GraphError for a tap of another graph; NameError, DTypeError and ShapeError for ``params`` that
    do not fit, FaultError for weights that are not finite.
    """

    def __init__(
        self,
        graph: Graph,
        taps: Sequence[Value] | None = None,
        params: Mapping[str, Any] | None = None,
        device: str = "cpu",
    ) -> None:
        self.graph = expanded(graph) if taps is None else graph
        self.taps = product_inputs(self.graph) if taps is None else list(taps)
        self._check()
        given = param_arrays(self.graph, params or {})
        values = {**self.graph.param_values, **given}
        self._weights = _of_weights(self.graph, values) if taps is None else {}
        self._most = np.zeros(len(self.taps), np.float64)
        self._steps = 0
        self._run = _measuring(self.graph, self.taps, given, device)

    def _check(self) -> None:
        known = {*self.graph.inputs, *self.graph.params}
        known |= {v for op in self.graph.nodes() for v in op.results}
        if not self.taps:
            raise GraphError(f"graph {self.graph.name!r} has no value to calibrate")
        for tap in self.taps:
            if not isinstance(tap, Value) or tap not in known:
                raise GraphError(
                    f"the tap {tap!r} is no value of graph {self.graph.name!r}; taps are values"
                    " that its outputs need"
                )
            if tap.dtype not in FLOATS:
                raise DTypeError(f"the tap {tap!r} is of {tap.dtype}; scales are of floats")

    def step(self, inputs: Mapping[str, Any]) -> None:
        """Run the graph once, and note the largest elements. FaultError if one is not finite."""
        found = np.array([np.asarray(a, np.float64) for a in self._run.run(inputs)])
        if not np.isfinite(found).all():
            tap = self.taps[int(np.argmin(np.isfinite(found)))]
            raise FaultError(f"the tap {tap!r} has an element that is not finite")
        self._most = np.maximum(self._most, found)
        self._steps += 1

    @property
    def record(self) -> CalibrationRecord:
        """A scale for each tap: the largest element seen becomes 127; 1e-6 for one that was 0 in
        all steps. GraphError without a step."""
        if not self._steps:
            raise GraphError("nothing is known of the taps yet: call step with inputs first")
        scales = scales_of(self._most)
        found = {tap: CalibrationEntry(s) for tap, s in zip(self.taps, scales, strict=True)}
        return CalibrationRecord({**found, **self._weights})


def _of_weights(graph: Graph, values: Mapping[str, Array]) -> dict[Value, CalibrationEntry]:
    """The entries of weights that have values: a scale for each output."""
    found: dict[Value, CalibrationEntry] = {}
    for op in graph.nodes():
        weight, turned = weight_of(op) or (None, False)
        if weight is None or weight in found or weight.name not in values:
            continue
        axis = output_axis(op, turned)
        scales = scales_along(finite_value(weight, values), axis)
        found[weight] = CalibrationEntry(scales, axis=axis)
    return found


def _measuring(
    graph: Graph, taps: Sequence[Value], params: Mapping[str, Array], device: str
) -> Any:
    """The graph compiled with the largest elements of taps as its results."""
    from rlx.runtime.session import Session

    found = graph.snapshot()
    found.outputs = [tap.abs().reduce_max() for tap in taps]
    found.output_names = ()
    compiled = Session(device).compile(found)
    for name, value in params.items():
        compiled.set_param(name, value)
    return compiled


@located
def insert_q_dq(graph: Graph, record: Mapping[Value, CalibrationEntry]) -> Graph:
    """The graph with every value of a record rounded to 8-bit integers and back where it is used.

    On CPUs a product of two such values multiplies the integers. Blocks are expanded;
    outputs stay as they are, and types too.
    GraphError for a value of another graph.
    """
    taps = dict(CalibrationRecord(record))
    seen: set[Value] = set()
    rounded: dict[Value, Value] = {}

    def read(old: Value, new: Value) -> Value:
        if old not in taps:
            return new
        seen.add(old)
        if old not in rounded:
            e = taps[old]
            q = Quantize.build(new, e.scales, e.zero_points, e.axis)
            back = Dequantize.build(q, e.scales, e.zero_points, e.axis)
            rounded[old] = back if back.dtype is old.dtype else back.cast(to=old.dtype.name)
        return rounded[old]

    out, _ = rewritten(graph, read=read)
    missing = [v for v in taps if v not in seen]
    if missing:
        raise GraphError(
            f"graph {graph.name!r} has no op that reads {missing[0]!r}; a record is of the values"
            " of the graph that it is used with, and not of those inside its blocks"
        )
    return out
