"""Graphs as their ops alone: the blocks of a model builder are what they expand to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import FaultError
from rlx.ir.clone import leaves_of
from rlx.ir.graph import Graph, topological
from rlx.ir.op import Op, located
from rlx.ir.value import Value
from rlx.ops.conv.conv import Conv
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.movement import Transpose
from rlx.types import f32

__all__ = [
    "MOST", "Change", "expanded", "finite_value", "output_axis", "rewritten", "scales_along",
    "scales_of", "source_of", "weight_of",
]  # fmt: skip

Array = np.ndarray[Any, Any]

MOST = 127
"""What the largest element becomes."""
SCALE_OF_ZEROS = 1e-6

Change = Callable[[Graph, Op, Sequence[Value | None]], Sequence[Value] | None]
"""What an op becomes in a new graph, on operands of that; None: the same op."""
Read = Callable[[Value, Value], Value]
"""What ops read in the place of a value: takes that of the old graph, and the one that stands for
it in the new one."""


def expanded(graph: Graph) -> Graph:
    """The graph without blocks; its leaves and results are alike."""
    return rewritten(graph)[0]


def rewritten(
    graph: Graph, change: Change | None = None, read: Read | None = None
) -> tuple[Graph, dict[Value, Value]]:
    """A graph with ops changed, and which of its values stand for those of the old one. ``change``
    sees no blocks, ``read`` what they read. Bodies of control flow stay as they are."""
    out, env = leaves_of(graph, lambda v: v.type)
    change = change or (lambda out, op, operands: None)
    read = read or (lambda old, new: new)

    def visit(op: Op, env: dict[Value, Value]) -> None:
        operands = [None if v is None else read(v, env[v]) for v in op.operands]
        with located(op.location):
            if op.dialect == "hir":
                leaves = [None if v is None else Value(v.type) for v in op.operands]
                inner = {
                    leaf: v
                    for leaf, v in zip(leaves, operands, strict=True)
                    if leaf is not None and v is not None
                }
                outs = op.with_operands(leaves).expansion()
                for o in topological(outs):
                    visit(o, inner)
                results: Sequence[Value] = [inner[v] for v in outs]
            else:
                results = change(out, op, operands) or op.with_operands(operands).results
        env.update(zip(op.results, results, strict=True))

    for op in graph.nodes():
        visit(op, env)
    out.outputs, out.output_names = [env[v] for v in graph.outputs], graph.output_names
    return out, env


def source_of(v: Value) -> tuple[Value, bool]:
    """The matrix that a value is, and whether it is the transpose of that."""
    if v.op is not None and isinstance(v.op, Transpose) and v.op.perm == (1, 0):
        return v.op.x, True
    return v, False


def weight_of(op: Op) -> tuple[Value, bool] | None:
    """The param of f32 that a product or a convolution multiplies by, and whether it is
    transposed; None for another op, and in a block."""
    if not isinstance(op, MatMul | Conv) or op.results[0].dtype is not f32:
        return None
    found, turned = source_of(op.present[1]) if isinstance(op, MatMul) else (op.present[1], False)
    if found.op is not None or found.graph is None or found.dtype is not f32:
        return None
    if not any(found is p for p in found.graph.params):
        return None
    return None if isinstance(op, MatMul) and found.rank != 2 else (found, turned)


def output_axis(op: Op, turned: bool) -> int:
    """The axis of a weight along which there is a place for each output of a product, or of a
    convolution, that reads it as ``weight_of`` says."""
    return 0 if turned or isinstance(op, Conv) else 1


def finite_value(weight: Value, values: Mapping[str, Array]) -> Array:
    """The value of a weight. ShapeError if its sizes are not known, FaultError unless all of it is
    finite."""
    found = values[str(weight.name)].reshape(weight.type.static_shape)
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        place = tuple(int(i) for i in bad[0])
        raise FaultError(
            f"the weight {weight.name!r} has {len(bad)} elements that are not finite, the first is"
            f" {found[place]} at {place}; scales are of finite numbers"
        )
    return found


def scales_of(most: Any) -> Array:
    """The scales, f32, that make ``MOST`` of the largest elements; what is 0 throughout has
    ``SCALE_OF_ZEROS``."""
    found = np.asarray(np.asarray(most) / MOST, np.float32)
    return np.where(found > 0, found, np.float32(SCALE_OF_ZEROS))


def scales_along(value: Array, axis: int) -> Array:
    """A scale for each place of an axis, from the largest element there."""
    others = tuple(a for a in range(value.ndim) if a != axis)
    return scales_of(np.abs(value).max(others, initial=0.0))
