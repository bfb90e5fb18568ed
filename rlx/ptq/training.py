"""Training with weights of few bits: what a graph computes with is rounded, what learns is not."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from rlx.errors import GraphError
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.movement.movement import Transpose
from rlx.ops.quant.fake import FakeQuantize
from rlx.ptq.expanded import expanded, output_axis, rewritten, weight_of

__all__ = ["insert_fake_quantize"]


@located
def insert_fake_quantize(
    graph: Graph, bits: int = 8, weights: str | Sequence[str] = "*", ste: str = "identity"
) -> Graph:
    """The graph with weights of products and convolutions rounded to ``bits`` (8, 4 or 2) by
    ``fake_quantize``, each output by a scale of its own; for ``rlx.fit``.

    ``weights`` are patterns of their names, ``ste`` is the derivative of rounding. The params stay
    floats under their names; ``quantize_graph`` makes integers of what was learnt. GraphError if no
    weight has such a name.
    """
    patterns = [weights] if isinstance(weights, str) else list(weights)
    rounded: dict[tuple[str, bool], Value] = {}

    def change(_: Graph, op: Op, operands: Sequence[Value | None]) -> Sequence[Value] | None:
        weight, turned = weight_of(op) or (None, False)
        name = "" if weight is None else str(weight.name)
        if weight is None or not any(fnmatchcase(name, p) for p in patterns):
            return None
        x, w, *rest = operands
        assert w is not None
        if (name, turned) not in rounded:
            own = w.op.present[0] if turned and w.op is not None else w
            made = FakeQuantize.build(own, bits, output_axis(op, turned), ste)
            rounded[name, turned] = Transpose.build(made, (1, 0)) if turned else made
        return op.with_operands([x, rounded[name, turned], *rest]).results

    out, _ = rewritten(expanded(graph), change)
    if not rounded:
        listed = ", ".join(str(p.name) for p in graph.params) or "none"
        raise GraphError(
            f"graph {graph.name!r} has no product by a weight called {' or '.join(patterns)}; its"
            f" params are {listed}"
        )
    return out
