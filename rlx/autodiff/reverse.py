"""Reverse mode: gradients of one number, and products of a cotangent with the Jacobian."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.autodiff.derived import Derived, check_reached, chosen, filled, floats_only, labels
from rlx.errors import DTypeError, ShapeError
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.ops import rules
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import Expand
from rlx.ops.rules import carries_derivative

__all__ = ["grad", "grad_with_loss", "gradients", "value_and_grad", "value_and_gradients", "vjp"]


@located
def gradients(y: Value, wrt: Sequence[Value]) -> list[Value]:
    """The gradients of ``y``, one float, by values that it is computed from: more values of the
    same graph, each of the type of what it is by. Zeros where ``y`` does not depend on one."""
    return _gradients(y, wrt, "gradients")[1]


def value_and_gradients(
    y: Value, wrt: Sequence[Value], others: Sequence[Value] = ()
) -> tuple[Value, list[Value], list[Value]]:
    """``y``, its gradients as ``gradients`` gives them, and ``others``, all computed together."""
    one = _seed(y, wrt, "value_and_grad")
    outputs, found = _pulled_back([y, *others], wrt, [one, *[None] * len(others)], "value_and_grad")
    return outputs[0], found, outputs[1:]


@located
def grad(graph: Graph, wrt: Any) -> Graph:
    """The gradients of the graph's only output, which is one float, by ``wrt``.

    ``wrt`` is a name, a Value of the graph, or a list of them, and the new graph has an output for
    each, of its type; the inputs and params are those of ``graph``. Where the output does not
    depend on one, its gradient is zero. If the output has a name, the gradients are called
    ``grad_<name of wrt>``. ShapeError if there are more outputs or elements (``vjp`` takes them);
    DTypeError for what has no derivative; UnsupportedError where all ways go through integers or a
    while_loop, with the line of the op.
    """
    d, by, _, found = _with_gradients(graph, wrt, "grad")
    return d.done(found, by)


@located
def value_and_grad(graph: Graph, wrt: Any) -> Graph:
    """The graph's only output, then its gradients by ``wrt``: see ``grad``."""
    d, by, value, found = _with_gradients(graph, wrt, "value_and_grad")
    return d.done([value, *found], [*d.names, *by])


grad_with_loss = value_and_grad


@located
def vjp(graph: Graph, wrt: Any) -> Graph:
    """The graph's outputs, then the cotangents of ``wrt`` from those of the outputs.

    For each output ``i`` of floats there is an input ``cotangent_i`` of its type: what the Jacobian
    is multiplied by from the left. Where the outputs have names, the cotangents of ``wrt`` are
    called ``cotangent_<name of wrt>``. For complex values it is JAX's convention: nothing is
    conjugated. See ``grad`` for ``wrt`` and errors.
    """
    d = Derived(graph, "vjp")
    by = d.values(chosen(graph, wrt, "vjp"))
    _check_floats(d.outputs, "vjp")
    given = [
        d.input(f"cotangent_{i}", v.type) if carries_derivative(v) else None
        for i, v in enumerate(d.outputs)
    ]
    outputs, found = _pulled_back(d.outputs, by, given, "vjp")
    names = [f"cotangent_{label}" for label in labels(by)]
    return d.done([*outputs, *found], [*d.names, *names])


def _with_gradients(
    graph: Graph, wrt: Any, what: str
) -> tuple[Derived, list[str], Value, list[Value]]:
    """A graph in the making, the names of the gradients, the value and the gradients."""
    d = Derived(graph, what)
    by = d.values(chosen(graph, wrt, what))
    if len(d.outputs) != 1:
        raise ShapeError(
            f"{what}: the graph has {len(d.outputs)} outputs, expected one number; vjp takes any"
            " number of outputs"
        )
    names = [f"grad_{label}" for label in labels(by)]
    return d, names, *_gradients(d.outputs[0], by, what)


def _gradients(y: Value, wrt: Sequence[Value], what: str) -> tuple[Value, list[Value]]:
    """The value, as it is computed for the gradients, and these."""
    (value,), found = _pulled_back([y], wrt, [_seed(y, wrt, what)], what)
    return value, found


def _seed(y: Value, wrt: Sequence[Value], what: str) -> Value:
    """The cotangent of a value that has gradients; an error for one that can have none."""
    where = y.op.location if y.op is not None else None
    if y.type.size != 1:
        raise ShapeError(
            f"{what}: the output is {y.type}, expected one number; reduce it, or take vjp, which"
            " has a cotangent for every element",
            where,
        )
    _check_floats([y], what)
    if y.dtype.is_complex:
        raise DTypeError(f"{what}: the output is {y.type}, expected a float; vjp takes it", where)
    for w in wrt:
        if w.dtype.is_complex:
            raise DTypeError(
                f"{what}: {w!r} is complex, so that the gradient is a matter of convention; vjp"
                " has JAX's"
            )
    return Expand.build(Constant(np.ones((), y.dtype.numpy)).out, y.shape)


def _pulled_back(
    outputs: Sequence[Value], wrt: Sequence[Value], cotangents: Sequence[Value | None], what: str
) -> tuple[list[Value], list[Value]]:
    """The outputs, as they are computed for the cotangents of ``wrt``, and these."""
    env, records = rules.recorded(outputs, wrt)
    outs, by = ([env.get(v, v) for v in values] for values in (outputs, wrt))
    found = rules.pull_back(outs, by, cotangents, records)
    check_reached(outputs, [w for w, g in zip(wrt, found, strict=True) if g is None], what)
    return outs, filled(wrt, found)


def _check_floats(outputs: Sequence[Value], what: str) -> None:
    if not floats_only(outputs):
        y = outputs[0]
        raise DTypeError(
            f"{what}: the output is {y.type}, which has no derivative; cast what it is computed"
            " from to a float type",
            y.op.location if y.op is not None else None,
        )
