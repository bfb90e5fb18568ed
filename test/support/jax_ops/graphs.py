"""Graphs of ops as computations of JAX; ops with bodies are its control flow.

Ops that the table has not are those of their expansions; another one is refused by ``Unknown``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.ir.graph import Graph, topological
from rlx.ir.op import Op
from rlx.ir.value import Value
from support.jax_ops import OPS
from support.jax_ops.peer import Table, jax, jnp, lax

__all__ = ["CONTROL", "Unknown", "evaluated"]


class Unknown(Exception):
    """An op that the table has not."""


def _body(graph: Graph) -> Callable[..., list[Any]]:
    return lambda *xs: evaluated(graph.outputs, dict(zip(graph.inputs, xs, strict=True)))


def _scan(n: Any, *args: Any) -> tuple[Any, ...]:
    at, end = n.carries, len(args) - n.scanned
    body = _body(n.body)

    def one(carry: Any, given: Any) -> Any:
        i, xs = given
        out = body(i, *carry, *args[at:end], *xs)
        return tuple(out[:at]), tuple(out[at:])

    numbers = jnp.arange(n.rounds, dtype=np.int64)
    ends, ys = lax.scan(one, tuple(args[:at]), (numbers, tuple(args[end:])), n.rounds, n.reverse)
    return (*ends, *ys)


def _while(n: Any, *args: Any) -> tuple[Any, ...]:
    fixed = args[n.carries :]
    return lax.while_loop(
        lambda c: _body(n.test)(*c, *fixed)[0].reshape(()),
        lambda c: tuple(_body(n.body)(*c, *fixed)),
        tuple(args[: n.carries]),
    )


def _custom_fn(n: Any, *args: Any) -> tuple[Any, ...]:
    if n.rules:
        raise Unknown("custom_fn with rules of its own")
    return tuple(_body(n.body)(*args))


CONTROL: Table = {
    "control.barrier": lambda n, *args: lax.optimization_barrier(args),
    "control.cond": lambda n, pred, *args: tuple(
        lax.cond(pred.reshape(()), _body(n.then), _body(n.otherwise), *args)
    ),
    "control.custom_fn": _custom_fn,
    "control.scan": _scan,
    "control.while_loop": _while,
    "control.checkpoint": lambda n, *args: tuple(jax.checkpoint(_body(n.body))(*args)),
}


def evaluated(outputs: Sequence[Value], given: Mapping[Value, Any]) -> list[Any]:
    """Values from those of what they are computed from."""
    env = dict(given)
    for op in topological(outputs, stop=set(env)):
        args = [None if v is None else env[v] for v in op.operands]
        env.update(zip(op.results, _results(op, args), strict=True))
    return [env[v] for v in outputs]


def _results(op: Op, args: list[Any]) -> Sequence[Any]:
    known = OPS.get(op.name) or CONTROL.get(op.name)
    if known is not None:
        out = known(op, *args)
        return out if isinstance(out, tuple) else (out,)
    if not op.composite():
        raise Unknown(op.name)
    made = op.expand()
    outs = list(made) if isinstance(made, tuple) else [made]
    return evaluated(outs, {v: a for v, a in zip(op.operands, args, strict=True) if v is not None})
