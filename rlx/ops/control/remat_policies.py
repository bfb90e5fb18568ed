"""Policies of ``rlx.checkpoint``: the values kept for a derivative besides a region's operands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from rlx.errors import GraphError, did_you_mean
from rlx.ir.builders import located
from rlx.ir.graph import topological
from rlx.ir.op import Op
from rlx.ir.value import Keys, Value
from rlx.ops.rules import inline_blocks

__all__ = ["PRODUCTS", "Policy", "checkpoint_name", "kept_by", "marking"]

Policy: TypeAlias = str | Collection[str] | Callable[[Op], bool] | None

PRODUCTS = frozenset(
    f"mir.{name}"
    for name in ("matmul", "dot_general", "grouped_matmul", "attention", "conv", "conv_transpose")
)
"""Ops whose results take many operations an element: those that "products" keeps."""

_Marks: TypeAlias = dict[Value, str]
_marks: ContextVar[_Marks | None] = ContextVar("marks", default=None)


@located
def checkpoint_name(x: Value, name: str) -> Value:
    """``x``, which the policies of the ``rlx.checkpoint`` around it know by a name. Outside of one
    the name means nothing."""
    found = _marks.get()
    if found is not None:
        found[x] = name
    return x


@contextmanager
def marking() -> Generator[_Marks]:
    """Collect the names that values are given."""
    found: _Marks = {}
    token = _marks.set(found)
    try:
        yield found
    finally:
        _marks.reset(token)


def kept_by(
    policy: Policy, outputs: Sequence[Value], stop: Keys, marks: _Marks
) -> tuple[list[Value], list[Value]]:
    """The outputs of a region, and the values that a derivative keeps. ``stop`` are the arguments
    of the region and what it uses from around it.

    A block is taken apart, so that a policy sees its products.
    """
    if policy is None:
        return list(outputs), []
    outs, env = inline_blocks(outputs, stop)
    nodes = topological(outs, stop=stop)
    if callable(policy):
        return outs, [r for op in nodes if policy(op) for r in op.results]
    if isinstance(policy, str):
        if policy != "products":
            raise GraphError(
                f"checkpoint: the policy {policy!r} is none{did_you_mean(policy, ['products'])};"
                " it is 'products', a list of names that checkpoint_name gave, or a function of an"
                " op"
            )
        return outs, [r for op in nodes if op.name in PRODUCTS for r in op.results]
    inside = {r for op in nodes for r in op.results}
    named = {name: env.get(v, v) for v, name in marks.items()}
    for name in policy:
        if named.get(name) not in inside:
            near = did_you_mean(name, [n for n, v in named.items() if v in inside])
            raise GraphError(
                f"checkpoint: the region computes no value called {name!r}{near}; name one with"
                " rlx.checkpoint_name(x, name)"
            )
    return outs, [named[name] for name in policy]
