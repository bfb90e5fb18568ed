"""From a graph with weights in int8 to a network of integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from rlx.errors import GraphError, ShapeError, UnsupportedError
from rlx.ir.given import param_arrays
from rlx.ir.graph import Graph
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.conv.conv import Conv
from rlx.ops.conv.max_pool import MaxPool as MaxPoolOp
from rlx.ops.conv.pool import MeanPool as MeanPoolOp
from rlx.ops.matmul.contraction import DotGeneral, MatMul
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import Reshape
from rlx.ops.pointwise.binary import Add, Mul, Sub
from rlx.ops.pointwise.unary import Relu
from rlx.ops.quant.affine import Quantize, QuantizeRows
from rlx.ops.quant.integer import ScaledConv, ScaledMatMul
from rlx.ops.reduction.argreduce import ArgMax as ArgMaxOp
from rlx.ops.reduction.reduce import ReduceMean
from rlx.targets.integer.network import (
    ArgMax,
    Layer,
    MaxPool,
    MeanPool,
    Network,
    Product,
    Size,
)

__all__ = ["is_network", "read_network"]

Array = np.ndarray[Any, Any]

HOW = "quantise it first: rlx.quant.quantize_graph(graph, params, 'int8', calibration)"
OUT_BITS = 16
MOST_TAPS = 1 << 14
"""Of a mean, whose sum of 16 bits each fits 30."""


def read_network(
    graph: Graph,
    params: Mapping[str, Any],
    weight_bits: int = 8,
    multiplier_bits: int = 31,
    who: str = "cortexm",
) -> Network:
    """See ``rlx.fpga.network`` and ``rlx.cortexm.network``; ``who`` is the one that asks."""
    if weight_bits not in (8, 4, 2) or multiplier_bits not in (15, 31):
        raise GraphError(
            f"{who}: weights have 8, 4 or 2 bits and multipliers 15 or 31, found {weight_bits} and"
            f" {multiplier_bits}"
        )
    if len(graph.inputs) != 1 or len(graph.outputs) != 1:
        raise UnsupportedError(
            f"{who}: a network has one input and one output, and {graph.name!r} has"
            f" {len(graph.inputs)} and {len(graph.outputs)}"
        )
    return _Reader(graph, params, weight_bits, multiplier_bits, who).run()


def is_network(graph: Graph) -> bool:
    """Whether a graph is meant as one of integers: it makes or multiplies codes."""
    of_codes = (Quantize, QuantizeRows, ScaledMatMul, ScaledConv)
    return any(isinstance(op, of_codes) for op in graph.nodes())


def _image(v: Value, who: str) -> Size:
    """Rows, columns and channels of what an image becomes."""
    dims = v.shape[1:]
    if not all(isinstance(d, int) for d in dims) or len(dims) not in (1, 3):
        raise ShapeError(
            f"{who}: a network takes images [batch, elements] or [batch, channels, rows, columns]"
            f" of known sizes, found {v.type}"
        )
    sizes = v.type.with_shape(dims).static_shape
    return (1, 1, sizes[0]) if len(sizes) == 1 else (sizes[1], sizes[2], sizes[0])


class _Reader:
    """One walk along the chain of a graph."""

    def __init__(
        self,
        graph: Graph,
        params: Mapping[str, Any],
        weight_bits: int,
        multiplier_bits: int,
        who: str,
    ) -> None:
        self.graph, self.who = graph, who
        self.bits, self.multiplier_bits = weight_bits, multiplier_bits
        self.known: dict[Value, Array] = {}
        self.params = set(graph.params)
        values = {**graph.param_values, **param_arrays(graph, params)}
        for p in graph.params:
            if str(p.name) in values:
                self.known[p] = np.asarray(values[str(p.name)])
        self.at = graph.inputs[0]
        self.source = self.size = _image(self.at, who)
        self.flat_from: Size | None = None
        """The size before rows, columns and channels became one axis, in the graph's order."""
        self.scale: float | None = None
        self.input_scale = 1.0
        self.layers: list[Layer] = []
        self.behind: list[Layer] = []
        """What stands between a product and its requantization, which does not alter orders."""
        self.sums: tuple[Product, Array, Array] | None = None
        """The last product, the scales of its sums, and its bias as numbers."""

    def run(self) -> Network:
        """The network; UnsupportedError for what is none."""
        for op in self.graph.nodes():
            self.node(op)
        if self.at is not self.graph.outputs[0]:
            raise UnsupportedError(f"{self.who}: the output is not the end of the chain of layers")
        result = 1.0
        if self.sums is not None:
            result = self.finish(None)
        elif not self.layers:
            raise UnsupportedError(
                f"{self.who}: {self.graph.name!r} has no product of integers; {HOW}"
            )
        return Network(self.graph.name, self.source, self.input_scale, tuple(self.layers), result)

    def node(self, op: Op) -> None:
        if isinstance(op, Constant):
            self.known[op.out] = op.value
            return
        if op.present and len(op.results) == 1 and all(v in self.known for v in op.present):
            self.known[op.out] = op.reference(*(self.known[v] for v in op.present))
            return
        main = [v for v in op.present if v not in self.known]
        without = [str(v.name) for v in main if v in self.params]
        if without:
            raise self.refusal(op, f"needs the values of {', '.join(without)}: give params")
        if len(main) != 1 or main[0] is not self.at:
            raise self.refusal(op, "takes more than the layer before it, and values that are known")
        rule = _RULES.get(type(op))
        if rule is None:
            raise self.refusal(op, "is no layer of integers here")
        rule(self, op)
        self.at = op.out

    def refusal(self, op: Op, why: str) -> UnsupportedError:
        return UnsupportedError(f"{self.who}: {op.short} {why}", op.location)

    # -- rules -----------------------------------------------------------------------------

    def floats(self, op: Op) -> None:
        raise self.refusal(op, f"multiplies floats; {HOW}")

    def rows(self, op: Op) -> None:
        raise self.refusal(op, f"finds scales as it runs; give quantize_graph calibration: {HOW}")

    def quantize(self, op: Op) -> None:
        by, zero = op.operands[1:3]
        scale = None if by is None else self.known.get(by)
        if scale is None or scale.size != 1 or zero is not None or str(op.attrs["to"]) != "i8":
            raise self.refusal(op, "is taken with one known scale, no zero point and i8 codes")
        assert self.sums is not None or self.scale is None, "codes are no floats"
        if self.sums is None:
            self.input_scale = float(scale.reshape(()))
        else:
            self.finish(float(scale.reshape(())))
        self.scale = float(scale.reshape(()))

    def matmul(self, op: Any) -> None:
        w = self.weight(op)
        if op.x.rank != 2 or w.ndim != 2:
            raise self.refusal(op, "is taken of images as rows [batch, elements]")
        before = self.flat_from or (1, 1, w.shape[0])
        rows, cols, channels = before
        # The graph's order is channels, rows, columns; memory has channels last.
        w = w.T.reshape(-1, channels, rows, cols).transpose(0, 2, 3, 1)
        self.product(op, w, before, (1, 1, len(w)), (1, 1), (0, 0))

    def conv(self, op: Any) -> None:
        w = self.weight(op)
        a = op.attrs
        if w.ndim != 4 or set(a["dilation"]) != {1} or len(self.at.shape) != 4:
            raise self.refusal(op, "is taken in two dims, without dilation")
        depthwise = a["groups"] > 1 and a["groups"] == len(w) == self.size[2]
        if a["groups"] > 1 and (not depthwise or self.who == "fpga"):
            may = "" if self.who == "fpga" else ", or with one for each channel"
            raise self.refusal(op, f"is taken without groups{may}, found {a['groups']}")
        channels, rows, cols = op.out.type.with_shape(op.out.shape[1:]).static_shape
        w, size = w.transpose(0, 2, 3, 1), (rows, cols, channels)
        self.product(op, w, self.size, size, tuple(a["stride"]), tuple(a["low"]), depthwise)

    def weight(self, op: Any) -> Array:
        assert self.sums is None, "sums are no codes"
        if self.scale is None:
            raise self.refusal(op, "needs codes of a known scale before it")
        if op.x_zero is not None or op.w_zero is not None or self.known[op.w].dtype != np.int8:
            raise self.refusal(op, "is taken with i8 weights and no zero points")
        return self.known[op.w]

    def product(
        self, op: Any, w: Array, source: Size, size: Size, stride: Any, pad: Any,
        depthwise: bool = False,
    ) -> None:  # fmt: skip
        w_scale = np.broadcast_to(self.known[op.w_scale].astype(np.float64).reshape(-1), len(w))
        limit = (1 << (self.bits - 1)) - 1
        if self.bits < 8:
            w = np.rint(w.astype(np.float64) * limit / 127)
            w_scale = w_scale * 127 / limit
        zeros = np.zeros(len(w), np.int64)
        layer = Product(
            f"layer{len(self.layers)}", source, size, w.astype(np.int8), zeros, zeros, 0, -128, 127,
            stride, pad, self.bits, self.multiplier_bits, depthwise,
        )  # fmt: skip
        assert self.scale is not None
        self.sums = layer, w_scale * self.scale, np.zeros(len(w))
        self.size, self.flat_from = size, None

    def affine(self, op: Op) -> None:
        """A bias, and what a batch norm is: numbers of each channel that are added, subtracted or
        multiplied."""
        other = next((self.known[v] for v in op.present if v in self.known), np.zeros(()))
        if self.sums is None or self.behind or self.sums[0].low == 0:
            raise self.refusal(op, "is taken with known numbers, right behind a product")
        layer, scales, bias = self.sums
        spatial = len(op.out.shape) - 2
        shape = (1,) * (len(op.out.shape) - other.ndim) + other.shape
        if other.size not in (1, len(bias)) or prod(shape[2 : 2 + spatial]) != 1 or shape[0] != 1:
            raise self.refusal(op, "is taken with one number a channel")
        if isinstance(op, Sub) and op.present[0] in self.known:
            raise self.refusal(op, "is taken with what is known on its right")
        number = np.broadcast_to(other.astype(np.float64).reshape(-1), len(bias))
        if isinstance(op, Mul):
            if (layer.weights[number < 0] == -128).any():
                raise self.refusal(op, "turns a weight of -128, whose opposite is no i8")
            signs = np.where(number < 0, -1, 1).astype(np.int8)
            layer = replace(layer, weights=layer.weights * signs[:, None, None, None])
            self.sums = layer, scales * np.abs(number), bias * number
        else:
            self.sums = layer, scales, bias - number if isinstance(op, Sub) else bias + number

    def relu(self, op: Op) -> None:
        if self.sums is None:
            raise self.refusal(op, "is taken behind a product")
        if any(isinstance(p, MeanPool) for p in self.behind):
            raise self.refusal(op, "is taken before a mean")
        layer, scales, bias = self.sums
        self.sums = replace(layer, low=0), scales, bias

    def pool(self, op: Any) -> None:
        if any(op.low) or any(op.high) or set(op.dilation) != {1} or len(op.taps) != 2:
            raise self.refusal(op, "is taken in two dims, without padding and dilation")
        channels, rows, cols = op.out.type.with_shape(op.out.shape[1:]).static_shape
        if any(isinstance(p, MeanPool) for p in self.behind):
            raise self.refusal(op, "is taken before a mean")
        made = MaxPool(
            self.next, self.size, (rows, cols, channels), tuple(op.taps), tuple(op.stride)
        )
        (self.layers if self.sums is None else self.behind).append(made)
        self.size = made.size

    @property
    def next(self) -> str:
        """The name of the layer after those that there are."""
        return f"layer{len(self.layers) + len(self.behind) + (self.sums is not None)}"

    def mean_pool(self, op: Any) -> None:
        if any((*op.low, *op.high, *op.beyond)) or len(op.taps) != 2:
            raise self.refusal(op, "is taken in two dims, without padding")
        _, rows, cols = op.out.type.with_shape(op.out.shape[1:]).static_shape
        self.mean(op, rows, cols, tuple(op.taps), tuple(op.stride))

    def reduce_mean(self, op: Any) -> None:
        if len(op.x.shape) != 4 or op.axes != (2, 3):
            raise self.refusal(op, "is taken over the rows and columns of [batch, channels, ...]")
        self.mean(op, 1, 1, self.size[:2], (1, 1))

    def mean(self, op: Op, rows: int, cols: int, taps: Any, stride: Any) -> None:
        """Of sums, whose requantization gives 16 bits first."""
        if self.who == "fpga":
            raise self.refusal(op, "is no layer of integers here")
        if self.sums is None or any(isinstance(p, MeanPool) for p in self.behind):
            raise self.refusal(op, "is taken behind a product, once")
        if prod(taps) > MOST_TAPS:
            raise self.refusal(op, f"is taken over {MOST_TAPS} elements at most, of {prod(taps)}")
        size = (rows, cols, self.size[2])
        self.behind.append(MeanPool(self.next, self.size, size, taps, stride, 0, 0, -128, 127))
        self.size = size

    def reshape(self, op: Any) -> None:
        rows, cols, channels = self.size
        if len(op.out.shape) != 2 or op.out.shape[1] != rows * cols * channels:
            raise self.refusal(op, "is taken as the flattening of each image")
        self.flat_from = self.size

    def argmax(self, op: Any) -> None:
        if (
            self.sums is None
            or self.behind
            or len(op.out.shape) != 1
            or op.attrs["select_last_index"]
        ):
            raise self.refusal(
                op, "is taken of the last product's outputs, the first of equal ones"
            )
        self.finish(None)
        self.layers.append(ArgMax(f"layer{len(self.layers)}", self.size, (1, 1, 1)))

    # -- requantization ----------------------------------------------------------------------

    def finish(self, scale: float | None) -> float:
        """Take the last product, whose results are codes of a scale; of the last layer's, of 16
        bits that any sum fits. The scale."""
        assert self.sums is not None
        layer, scales, bias = self.sums
        whole = np.rint(bias / scales)
        if not np.isfinite(whole).all() or np.abs(whole).max(initial=0) >= 1 << 30:
            raise GraphError(f"{self.who}: the bias of {layer.name} is beyond 30 bits of its sums")
        layer = replace(layer, bias=whole.astype(np.int64))
        if layer.sum_bits > 31:
            raise GraphError(
                f"{self.who}: sums of {layer.name} take {layer.sum_bits} bits, beyond 31"
            )
        mean = next((p for p in self.behind if isinstance(p, MeanPool)), None)
        own = scale
        if own is None or mean is not None:
            high = (1 << (OUT_BITS - 1)) - 1
            layer = replace(layer, low=-high if layer.low else 0, high=high)
            own = max(float((scales * 2.0**layer.sum_bits).max()) / 2 / high, 2 * scales.max())
        q, shift = self.multipliers(layer.name, scales, own, layer.multiplier_bits)
        layer = replace(layer, multiplier=q, shift=shift)
        pools = [replace(p, bits=layer.bits) for p in self.behind if isinstance(p, MaxPool)]
        self.layers += [layer, *pools]
        if mean is not None:
            each = np.array([own / prod(mean.taps)])
            q, shift = self.multipliers(mean.name, each, own if scale is None else scale, 31)
            ends = (layer.low, layer.high) if scale is None else (-128, 127)
            found = replace(mean, multiplier=int(q[0]), shift=shift, low=ends[0], high=ends[1])
            self.layers.append(found)
        self.sums, self.behind = None, []
        return own if scale is None else scale

    def multipliers(self, name: str, scales: Array, to: float, bits: int) -> tuple[Array, int]:
        """What takes sums of some scales to codes of another."""
        q, shift = _multipliers(scales / to, bits)
        if shift < 0:
            raise GraphError(
                f"{self.who}: the codes behind {name} have a scale of {to:.3g}, finer than its"
                f" sums' {scales.max():.3g}; calibrate with inputs as they will be"
            )
        return q, shift


def _multipliers(real: Array, bits: int) -> tuple[Array, int]:
    """Integers of so many bits, and a shift to the right that all share: the largest takes all."""
    exponent = int(np.frexp(real.max())[1])
    q = np.rint(np.ldexp(real, bits - exponent)).astype(np.int64)
    if q.max() >= 1 << bits:
        exponent += 1
        q = np.rint(np.ldexp(real, bits - exponent)).astype(np.int64)
    return q, -exponent


_RULES: dict[type[Op], Any] = {
    MatMul: _Reader.floats, DotGeneral: _Reader.floats, Conv: _Reader.floats,
    QuantizeRows: _Reader.rows, Quantize: _Reader.quantize, ScaledMatMul: _Reader.matmul,
    ScaledConv: _Reader.conv, Add: _Reader.affine,
    Sub: _Reader.affine, Mul: _Reader.affine, MeanPoolOp: _Reader.mean_pool,
    ReduceMean: _Reader.reduce_mean, Relu: _Reader.relu, MaxPoolOp: _Reader.pool,
    Reshape: _Reader.reshape, ArgMaxOp: _Reader.argmax,
}  # fmt: skip
