"""Forward mode: products of the Jacobian, and of the Hessian, with a tangent."""

from __future__ import annotations

from typing import Any

from rlx.autodiff.derived import Derived, check_reached, chosen, filled, floats_only
from rlx.autodiff.reverse import value_and_grad
from rlx.errors import DTypeError
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.ops import rules

__all__ = ["hvp", "jvp"]


@located
def jvp(graph: Graph, wrt: Any) -> Graph:
    """The graph's outputs, then the tangents of those of them that are floats. Where the outputs
    have names, the tangents are called ``tangent_<output>``.

    ``wrt`` is the name or the Value of an input or param, or a list of them. For each there is an
    input ``tangent_<name>`` of its type: the direction in which it moves. Errors are as in
    ``grad``, but for while_loop, which has a forward derivative.
    """
    d = Derived(graph, "jvp")
    by = d.values(chosen(graph, wrt, "jvp", leaves=True))
    moved = floats_only(d.outputs)
    if not moved:
        raise DTypeError(
            f"jvp: the output is {d.outputs[0].type}, and no output has floats, which alone have a"
            " tangent"
        )
    given = [d.input(f"tangent_{v.name}", v.type) for v in by]
    found = rules.jvp(moved, by, given)
    if all(t is None for t in found):
        check_reached(moved, by, "jvp")
    tangents = [f"tangent_{name}" for name in d.float_names]
    return d.done([*d.outputs, *filled(moved, found)], [*d.names, *tangents])


@located
def hvp(graph: Graph, wrt: Any) -> Graph:
    """The product of the Hessian of the graph's only output, one float, with a tangent.

    There is an input ``tangent_<name>`` for each of ``wrt``, as in ``jvp``. The outputs are the
    value, the gradients by ``wrt``, the derivative of the value in the direction of the tangents,
    and last the products, one for each of ``wrt``.
    """
    return jvp(value_and_grad(graph, wrt), _names(graph, wrt))


def _names(graph: Graph, wrt: Any) -> list[str]:
    return [str(v.name) for v in chosen(graph, wrt, "hvp", leaves=True)]
