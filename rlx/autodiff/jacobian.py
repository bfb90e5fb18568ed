"""Whole matrices of derivatives: a forward or reverse product with every unit vector at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.autodiff.derived import Derived, check_reached, chosen, filled, floats_only, labels
from rlx.errors import DTypeError
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.ops import rules
from rlx.ops.movement.movement import zeros
from rlx.ops.movement.patterns import eye

__all__ = ["hessian", "jacfwd", "jacrev"]


@located
def jacfwd(graph: Graph, wrt: Any) -> Graph:
    """The Jacobians of the outputs by ``wrt``, in forward mode: best where ``wrt`` is small.

    For every output of floats there is one for each of ``wrt``, in this order: the derivative of
    element i of the output by element j of the value is at ``[*i, *j]``. Where the outputs have
    names, these are called ``<output>_by_<name of wrt>``. Of complex values it is that of a
    holomorphic function. See ``jvp`` for ``wrt`` and errors.
    """
    d, by, outputs = _started(graph, wrt, "jacfwd")
    columns = [_columns(outputs, v) for v in by]
    blocks = [found[i] for i in range(len(outputs)) for found in columns]
    return d.done(blocks, _names(d, by))


@located
def jacrev(graph: Graph, wrt: Any) -> Graph:
    """The Jacobians of the outputs by ``wrt``, in reverse mode: best where the outputs are small.

    The outputs are as in ``jacfwd``. See ``grad`` for ``wrt`` and errors.
    """
    d, by, outputs = _started(graph, wrt, "jacrev")
    return d.done([block for y in outputs for block in _rows(y, by)], _names(d, by))


@located
def hessian(graph: Graph, wrt: Any) -> Graph:
    """The second derivatives of the outputs by ``wrt``, forward over reverse.

    For every output of floats, for each of ``wrt``, there is one for each of ``wrt`` again: the
    derivative of element i of the output by elements j and k is at ``[*i, *j, *k]``.
    """
    names = [str(v.name) for v in chosen(graph, wrt, "hessian", leaves=True)]
    return jacfwd(jacrev(graph, names), names)


def _names(d: Derived, by: Sequence[Value]) -> list[str]:
    return [f"{name}_by_{label}" for name in d.float_names for label in labels(by)]


def _started(graph: Graph, wrt: Any, what: str) -> tuple[Derived, list[Value], list[Value]]:
    d = Derived(graph, what)
    by = d.values(chosen(graph, wrt, what, leaves=True))
    outputs = floats_only(d.outputs)
    if not outputs:
        raise DTypeError(f"{what}: no output has floats, which alone have a derivative")
    check_reached(outputs, by, what)
    return d, by, outputs


def _columns(outputs: Sequence[Value], v: Value) -> list[Value]:
    """The Jacobians of outputs by one value: one batch of tangents, the unit vectors."""
    tangent = Value(v.type)
    found = rules.jvp(outputs, [v], [tangent])
    blocks: list[Value] = []
    for y, (t, has) in zip(outputs, _over_units(filled(outputs, found), tangent), strict=True):
        if not has:
            blocks.append(zeros((*y.shape, *v.shape), y.dtype))
            continue
        last = t.transpose([*range(1, t.rank), 0])
        blocks.append(last.reshape((*y.shape, *v.shape)))
    return blocks


def _rows(y: Value, by: Sequence[Value]) -> list[Value]:
    """The Jacobians of one output: one batch of cotangents, the unit vectors."""
    cotangent = Value(y.type)
    found = filled(by, rules.vjp([y], by, [cotangent]))
    return [
        g.reshape((*y.shape, *v.shape)) if has else zeros((*y.shape, *v.shape), v.dtype)
        for v, (g, has) in zip(by, _over_units(found, cotangent), strict=True)
    ]


def _over_units(values: Sequence[Value], unit: Value) -> list[tuple[Value, bool]]:
    """Values for every unit vector in the place of ``unit``, and whether they depend on it."""
    n = unit.type.size
    basis = eye(n, dtype=unit.dtype).reshape((n, *unit.shape))
    # What does not depend on the unit vector is computed once, as it stands.
    return rules.batch(values, {unit: (basis, True)})
