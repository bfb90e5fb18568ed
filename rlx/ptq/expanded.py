"""Graphs as their ops alone: the blocks of a model builder are what they expand to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.ir.clone import leaves_of
from rlx.ir.graph import Graph, topological
from rlx.ir.op import Op, located
from rlx.ir.value import Value
from rlx.ops.conv.conv import Conv
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.movement import Transpose
from rlx.types import f32

__all__ = ["Change", "expanded", "rewritten", "source_of", "weight_of"]

Change = Callable[[Graph, Op, Sequence[Value | None]], Sequence[Value] | None]
"""What an op becomes in a new graph, on operands of that; None: the same op."""


def expanded(graph: Graph) -> Graph:
    """The graph without blocks; its leaves and results are alike."""
    return rewritten(graph, lambda out, op, operands: None)[0]


def rewritten(graph: Graph, change: Change) -> tuple[Graph, dict[Value, Value]]:
    """A graph with ops changed, and which of its values stand for those of the old one. ``change``
    sees no blocks. Bodies of control flow stay as they are."""
    out, env = leaves_of(graph, lambda v: v.type)

    def visit(op: Op, env: dict[Value, Value]) -> None:
        operands = [None if v is None else env[v] for v in op.operands]
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
