"""Random ONNX nodes: an op type, attributes at random, and operands of random sizes.

ONNX Runtime judges what RLX makes of each, and ONNX's reference evaluator where that is not there
or refuses the node. Axes without elements, negative axes, optional inputs left out and blocks
of scales are among the draws. What the judges do not agree on themselves is not drawn: slices
backwards from before the start or to INT_MAX, and pooling with ``auto_pad`` and dilations.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import rlx
from rlx.errors import RlxError

__all__ = ["RandomNode", "random_node", "wrong"]

Array = np.ndarray[Any, Any]
F32, I64 = np.float32, np.int64


class RandomNode(NamedTuple):
    """A node: its op type, opset and attributes, its inputs, of which None is left out and those
    in ``known`` are initialisers, and the number of its outputs."""

    op: str
    opset: int
    attributes: dict[str, Any]
    inputs: list[Array | None]
    known: tuple[int, ...] = ()
    outputs: int = 1

    def model(self) -> tuple[ModelProto, dict[str, Array]]:
        """A model of the node alone, and what it is given."""
        names = ["" if a is None else f"x{i}" for i, a in enumerate(self.inputs)]
        feeds = {n: a for n, a in zip(names, self.inputs, strict=True) if a is not None}
        fixed = {f"x{i}" for i in self.known}
        infos = [
            helper.make_tensor_value_info(n, _kind(a), a.shape)
            for n, a in feeds.items()
            if n not in fixed
        ]
        literals = [numpy_helper.from_array(a, n) for n, a in feeds.items() if n in fixed]
        outs = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.op, names, outs, **self.attributes)
        unknown = [helper.make_empty_tensor_value_info(n) for n in outs]
        graph = helper.make_graph([node], "g", infos, unknown, literals)
        opset = helper.make_opsetid("", self.opset)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=10)
        return model, {n: a for n, a in feeds.items() if n not in fixed}


def _kind(a: Array) -> int:
    return helper.np_dtype_to_tensor_dtype(a.dtype)


class Draw:
    """Choices at random."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 8])

    def one_of(self, *items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def upto(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, p: float = 0.5) -> bool:
        return bool(self.rng.random() < p)

    def some(self, **attributes: Any) -> dict[str, Any]:
        """About half of the attributes, with a value of those listed for each."""
        return {n: self.one_of(*v) for n, v in attributes.items() if self.chance()}

    def shape(self, low: int = 1, high: int = 4, least: int = 1) -> tuple[int, ...]:
        return tuple(self.upto(least, 5) for _ in range(self.upto(low, high)))

    def floats(self, *shape: int) -> Array:
        """Halves, of which some are equal."""
        return (self.rng.integers(-6, 7, shape) / 2).astype(F32)

    def axes(self, rank: int) -> list[int]:
        picked = self.rng.permutation(rank)[: self.upto(1, rank)]
        return [int(a) - rank * self.chance(0.4) for a in picked]


def slices(d: Draw) -> RandomNode:
    shape = d.shape(least=int(d.chance(0.9)))
    axes = d.axes(len(shape))
    steps = [d.one_of(1, 2, -1, -2) for _ in axes]
    starts = [d.upto(-shape[a], 6) for a in axes]
    ends = [d.one_of(d.upto(-6, 6), 2**31 - 1 if s > 0 else -(2**31)) for s in steps]
    how = [np.array(v, I64) for v in (starts, ends, axes, steps)]
    return RandomNode("Slice", d.one_of(10, 13), {}, [d.floats(*shape), *how], (1, 2, 3, 4))


def reductions(d: Draw) -> RandomNode:
    kind = d.one_of("Sum", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp")
    shape = d.shape(0, 4)
    axes = np.array(d.axes(len(shape)) if shape and d.chance(0.8) else [], I64)
    more = d.some(keepdims=(0, 1), noop_with_empty_axes=(0, 1))
    return RandomNode(f"Reduce{kind}", 18, more, [d.floats(*shape), axes], (1,))


def pads(d: Draw) -> RandomNode:
    shape, mode = d.shape(least=2), d.one_of("constant", "reflect", "edge", "wrap")
    axes = d.axes(len(shape)) if d.chance() else list(range(len(shape)))
    places = [d.upto(-1 if mode == "constant" else 0, shape[a] - 1) for a in axes + axes]
    fill = np.array(1.5, F32) if mode == "constant" and d.chance() else None
    given = [d.floats(*shape), np.array(places, I64), fill, np.array(axes, I64)]
    return RandomNode("Pad", d.one_of(19, 21), {"mode": mode}, given, (1, 3))


def affine_grids(d: Draw) -> RandomNode:
    rank, batch = d.upto(2, 3), d.upto(1, 2)
    size = np.array([batch, 1, *d.shape(rank, rank)], I64)
    theta = d.floats(batch, rank, rank + 1)
    return RandomNode("AffineGrid", 20, d.some(align_corners=(0, 1)), [theta, size], (1,))


def scaled(d: Draw) -> RandomNode:
    """Codes with scales for all, for each place of an axis, or for blocks."""
    shape = tuple(d.one_of(2, 4) for _ in range(d.upto(1, 3)))
    axis = d.upto(-len(shape), len(shape) - 1)
    kind, by = d.one_of(np.int8, np.uint8), list[int]()
    more: dict[str, Any] = {}
    match d.upto(0, 2):
        case 1:
            by, more = [shape[axis]], {"axis": axis}
        case 2:
            by, more = list(shape), {"axis": axis, "block_size": 2}
            by[axis] //= 2
    scale = np.asarray(2.0 ** d.rng.integers(-3, 3, by), F32)
    zero = np.asarray(d.rng.integers(0, 20, by)).astype(kind)
    given: list[Array | None] = [scale, *([zero] if d.chance() or kind is np.int8 else [])]
    if d.chance():
        return RandomNode("QuantizeLinear", 21, more, [d.floats(*shape), *given])
    codes = d.rng.integers(-128, 128, shape).astype(np.int8).view(kind)
    return RandomNode("DequantizeLinear", 21, more, [codes, *given])


def pools(d: Draw) -> RandomNode:
    rank, kind = d.upto(1, 2), d.one_of("MaxPool", "AveragePool")
    kernel = [d.upto(1, 3) for _ in range(rank)]
    more: dict[str, Any] = {"kernel_shape": kernel, **d.some(ceil_mode=(0, 1))}
    more |= {"strides": [d.upto(1, 3) for _ in kernel]} if d.chance() else {}
    more |= {"pads": [d.upto(0, k // 2) for k in kernel + kernel]} if d.chance() else {}
    more |= d.some(count_include_pad=(0, 1)) if kind == "AveragePool" else {}
    return RandomNode(kind, 22, more, [d.floats(2, 2, *[d.upto(4, 7) for _ in kernel])])


def gathers(d: Draw) -> RandomNode:
    shape = d.shape(1, 3)
    axis = d.upto(-len(shape), len(shape) - 1)
    kind, places = d.one_of(("Gather", d.shape(0, 2)), ("GatherElements", shape))
    at = d.rng.integers(-shape[axis], shape[axis], places).astype(d.one_of(np.int32, I64))
    return RandomNode(kind, 13, {"axis": axis}, [d.floats(*shape), at])


def along(d: Draw) -> RandomNode:
    """What runs along an axis."""
    shape = d.shape(1, 3)
    x, axis = d.floats(*shape), d.upto(-len(shape), len(shape) - 1)
    kind = d.one_of("ArgMax", "ArgMin", "CumSum", "Softmax", "LogSoftmax", "TopK")
    if kind == "CumSum":
        more = d.some(exclusive=(0, 1), reverse=(0, 1))
        return RandomNode(kind, 14, more, [x, np.array(axis, I64)], (1,))
    if kind == "TopK":
        count = np.array([d.upto(1, shape[axis])], I64)
        more = {"axis": axis, **d.some(largest=(0, 1))}
        return RandomNode(kind, 11, more, [x, count], (1,), 2)
    more = d.some(keepdims=(0, 1), select_last_index=(0, 1)) if kind[0] == "A" else {}
    return RandomNode(kind, 13, {"axis": axis, **more}, [x])


DRAWS: tuple[Callable[[Draw], RandomNode], ...] = (
    slices, reductions, affine_grids, scaled, gathers, along, pads, pools,
)  # fmt: skip
BY_REFERENCE = DRAWS[:6]
"""Of what the reference evaluator is right about: not uneven padding, and padding below 0."""


def random_node(seed: int) -> RandomNode:
    """The node of a seed."""
    d = Draw(seed)
    return d.one_of(*(DRAWS if _has_peer() else BY_REFERENCE))(d)


def _has_peer() -> bool:
    return find_spec("onnxruntime") is not None


def wrong(seed: int) -> str:
    """What is wrong with what RLX makes of a random node; empty if nothing is, or no judge can
    tell."""
    node = random_node(seed)
    model, feeds = node.model()
    shown = f"{node.op} {node.attributes} of {node.inputs}"
    try:
        expected = _judged(model, feeds)
    except Exception:  # of NumPy, in the evaluator
        return ""
    for v, a in zip(model.graph.output, expected, strict=True):
        v.CopyFrom(helper.make_tensor_value_info(v.name, _kind(a), None))
    try:
        with np.errstate(all="ignore"):
            found = rlx.interpret(rlx.from_onnx(model), feeds)
    except RlxError as e:
        return f"{shown}: refused: {e}"
    for a, e in zip(found, expected, strict=True):
        same = a.shape == e.shape and a.dtype == e.dtype
        if not same or not np.allclose(a, e, rtol=1e-5, atol=1e-5, equal_nan=True):
            return f"{shown}: found {a}, expected {e}"
    return ""


def _judged(model: ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """By ONNX Runtime, but where axes of one element are aligned: it has none of its own there."""
    if _has_peer() and model.graph.node[0].op_type != "AffineGrid":
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString())
            return [np.asarray(a) for a in session.run(None, feeds)]
        except Exception:  # it refuses the node; whatever class that is
            pass
    with np.errstate(all="ignore"):
        return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, feeds)]
