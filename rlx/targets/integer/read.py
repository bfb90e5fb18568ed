"""From a graph with weights in int8 to a network of integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any, NoReturn

import numpy as np

from rlx.errors import GraphError, UnsupportedError
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
from rlx.ops.quant.affine import Dequantize, Quantize, QuantizeRows
from rlx.ops.quant.integer import ScaledConv, ScaledMatMul
from rlx.ops.reduction.argreduce import ArgMax as ArgMaxOp
from rlx.ops.reduction.reduce import ReduceMean
from rlx.targets.integer.codes import Weights, image_size, multipliers, scale_of, weights_of
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
        self.source = self.size = image_size(self.at, who)
        self.flat_from: Size | None = None
        """The size before rows, columns and channels became one axis, in the graph's order."""
        self.scale: float | None = None
        self.input_scale = 1.0
        self.layers: list[Layer] = []
        self.zero = self.input_zero = 0
        self.weights: dict[Value, Weights] = {}  # numbers that are known as codes
        self.mean_of_codes: MeanPool | None = None  # whose results have no scale yet
        self.numbers = False  # whether codes are given as the numbers that they stand for
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
        result, zero = 1.0, 0
        if self.mean_of_codes is not None:
            raise UnsupportedError(f"{self.who}: a mean of codes is taken before a quantize")
        if self.sums is not None:
            result = self.finish(None)
        elif self.layers and self.numbers:
            assert self.scale is not None
            result, zero = self.scale, self.zero
        elif not self.layers:
            raise UnsupportedError(
                f"{self.who}: {self.graph.name!r} has no product of integers; {HOW}"
            )
        scales = self.input_scale, tuple(self.layers), result
        return Network(self.graph.name, self.source, *scales, self.input_zero, zero)

    def node(self, op: Op) -> None:
        if isinstance(op, Constant):
            self.known[op.out] = op.value
            return
        if op.present and len(op.results) == 1 and all(v in self.known for v in op.present):
            self.known[op.out] = op.reference(*(self.known[v] for v in op.present))
            if (weights := weights_of(op, self.known, self.weights)) is not None:
                self.weights[op.out] = weights
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

    def floats(self, op: Op) -> NoReturn:
        raise self.refusal(op, f"multiplies floats; {HOW}")

    def rows(self, op: Op) -> None:
        raise self.refusal(op, f"finds scales as it runs; give quantize_graph calibration: {HOW}")

    def quantize(self, op: Op) -> None:
        found = scale_of(op, str(op.attrs["to"]), self.known)
        if found is None or (self.who == "fpga" and found[1]):
            what = "no zero point and i8" if self.who == "fpga" else "one zero point and 8-bit"
            raise self.refusal(op, f"is taken with one known scale, {what} codes")
        scale, zero = found
        if self.sums is not None:
            self.finish(scale, zero)
        elif self.mean_of_codes is not None:
            self.finish_mean(scale, zero)
        elif self.scale is None:
            self.input_scale, self.input_zero = scale, zero
        elif found != (self.scale, self.zero):
            raise self.refusal(op, "rounds codes to another scale")
        self.scale, self.zero, self.numbers = scale, zero, False

    def dequantize(self, op: Op) -> None:
        if scale_of(op, str(op.present[0].dtype), self.known) != (self.scale, self.zero):
            raise self.refusal(op, "is taken with the scale and the zero point of its codes")
        self.numbers = True

    def matmul(self, op: Any) -> None:
        w, w_scale = self.weight(op)
        if op.present[0].rank != 2 or w.ndim != 2:
            raise self.refusal(op, "is taken of images as rows [batch, elements]")
        before = self.flat_from or (1, 1, w.shape[0])
        rows, cols, channels = before
        # The graph's order is channels, rows, columns; memory has channels last.
        w = w.T.reshape(-1, channels, rows, cols).transpose(0, 2, 3, 1)
        self.product(w, w_scale, before, (1, 1, len(w)), (1, 1), (0, 0))

    def conv(self, op: Any) -> None:
        w, w_scale = self.weight(op)
        a = op.attrs
        if w.ndim != 4 or set(a["dilation"]) != {1} or len(self.at.shape) != 4:
            raise self.refusal(op, "is taken in two dims, without dilation")
        depthwise = a["groups"] > 1 and a["groups"] == len(w) == self.size[2]
        if a["groups"] > 1 and (not depthwise or self.who == "fpga"):
            may = "" if self.who == "fpga" else ", or with one for each channel"
            raise self.refusal(op, f"is taken without groups{may}, found {a['groups']}")
        channels, rows, cols = op.out.type.with_shape(op.out.shape[1:]).static_shape
        w, size = w.transpose(0, 2, 3, 1), (rows, cols, channels)
        stride, pad = tuple(a["stride"]), tuple(a["low"])
        self.product(w, w_scale, self.size, size, stride, pad, depthwise)

    def weight(self, op: Any) -> Weights:
        """The weights of a product of codes, and the scale of each output or of all."""
        assert self.sums is None, "sums are no codes"
        if isinstance(op, MatMul | Conv):
            weights = self.weights.get(op.present[1])
            if weights is None or not self.numbers or self.who == "fpga":
                self.floats(op)
        else:
            if op.x_zero is not None or op.w_zero is not None:
                raise self.refusal(op, "is taken with i8 weights and no zero points")
            weights = Weights(self.known[op.w], self.known[op.w_scale])
        if self.scale is None or self.mean_of_codes is not None:
            raise self.refusal(op, "needs codes of a known scale before it")
        assert weights is not None
        if weights.codes.dtype != np.int8:
            raise self.refusal(op, "is taken with i8 weights and no zero points")
        return weights

    def product(
        self, w: Array, w_scale: Array, source: Size, size: Size, stride: Any, pad: Any,
        depthwise: bool = False,
    ) -> None:  # fmt: skip
        w_scale = np.broadcast_to(w_scale.astype(np.float64).reshape(-1), len(w))
        limit = (1 << (self.bits - 1)) - 1
        if self.bits < 8:
            w = np.rint(w.astype(np.float64) * limit / 127)
            w_scale = w_scale * 127 / limit
        zeros = np.zeros(len(w), np.int64)
        layer = Product(
            f"layer{len(self.layers)}", source, size, w.astype(np.int8), zeros, zeros, 0, -128, 127,
            stride, pad, self.bits, self.multiplier_bits, depthwise, 0, self.zero,
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
        last = self.layers[-1] if self.layers else None
        if self.sums is None and self.numbers and isinstance(last, Product):
            self.layers[-1] = replace(last, low=max(last.low, last.zero))
            return
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
        if self.mean_of_codes or any(isinstance(p, MeanPool) for p in self.behind):
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
        again = self.mean_of_codes or any(isinstance(p, MeanPool) for p in self.behind)
        if again or (self.sums is None and not self.numbers):
            raise self.refusal(op, "is taken behind a product, once")
        if prod(taps) > MOST_TAPS:
            raise self.refusal(op, f"is taken over {MOST_TAPS} elements at most, of {prod(taps)}")
        size = (rows, cols, self.size[2])
        made = MeanPool(self.next, self.size, size, taps, stride, 0, 0, -128, 127)
        if self.sums is None:
            self.mean_of_codes = replace(made, source_bits=8, source_zero=self.zero)
        else:
            self.behind.append(made)
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

    def finish_mean(self, scale: float, zero: int) -> None:
        """Take the mean of codes, whose results are codes of a scale."""
        mean = self.mean_of_codes
        assert mean is not None and self.scale is not None
        each = np.array([self.scale / prod(mean.taps)])
        q, shift = multipliers(mean.name, each, scale, 31, self.who)
        self.layers.append(replace(mean, multiplier=int(q[0]), shift=shift, zero=zero))
        self.mean_of_codes = None

    def finish(self, scale: float | None, zero: int = 0) -> float:
        """Take the last product, whose results are codes of a scale; of the last layer's, of 16
        bits that any sum fits. The scale."""
        assert self.sums is not None
        layer, scales, bias = self.sums
        whole = np.rint(bias / scales)
        if not np.isfinite(whole).all() or np.abs(whole).max(initial=0) >= 1 << 30:
            raise GraphError(f"{self.who}: the bias of {layer.name} is beyond 30 bits of its sums")
        of_zero = layer.pad_code * layer.weights.astype(np.int64).sum(axis=(1, 2, 3))
        layer = replace(layer, bias=whole.astype(np.int64) - of_zero)
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
        else:
            layer = replace(layer, zero=zero, low=zero if layer.low == 0 else -128)
        q, shift = multipliers(layer.name, scales, own, layer.multiplier_bits, self.who)
        layer = replace(layer, multiplier=q, shift=shift)
        pools = [replace(p, bits=layer.bits) for p in self.behind if isinstance(p, MaxPool)]
        self.layers += [layer, *pools]
        if mean is not None:
            each = np.array([own / prod(mean.taps)])
            q, shift = multipliers(mean.name, each, own if scale is None else scale, 31, self.who)
            ends = (layer.low, layer.high) if scale is None else (-128, 127)
            found = replace(
                mean, multiplier=int(q[0]), shift=shift, low=ends[0], high=ends[1], zero=zero
            )
            self.layers.append(found)
        self.sums, self.behind = None, []
        return own if scale is None else scale


_RULES: dict[type[Op], Any] = {
    MatMul: _Reader.matmul, DotGeneral: _Reader.floats, Conv: _Reader.conv,
    Dequantize: _Reader.dequantize, QuantizeRows: _Reader.rows, Quantize: _Reader.quantize,
    ScaledMatMul: _Reader.matmul, ScaledConv: _Reader.conv, Add: _Reader.affine,
    Sub: _Reader.affine, Mul: _Reader.affine, MeanPoolOp: _Reader.mean_pool,
    ReduceMean: _Reader.reduce_mean, Relu: _Reader.relu, MaxPoolOp: _Reader.pool,
    Reshape: _Reader.reshape, ArgMaxOp: _Reader.argmax,
}  # fmt: skip
