"""Branches, loops and calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.frontends.stablehlo.loops import raised
from rlx.frontends.stablehlo.node import ROWS, Node, Result, row
from rlx.ops.control.builders import cond, while_loop
from rlx.types import bool_

__all__: list[str] = []


@row("call", "func.call")
def _call(n: Node) -> Result:
    return n.importer.call(n.op.attributes["callee"].value, n.edges)


@row("composite")
def _composite(n: Node) -> Result:
    """A composite that has a row of its own, else what it decomposes into."""
    own = ROWS.get(n.text("name"))
    if own is not None and "composite_attributes" not in n.op.attributes:
        return own(n)
    if n.text("name") == "chlo.top_k":
        return ROWS["chlo.top_k"](n.inner("composite_attributes"))
    return n.importer.call(n.op.attributes["decomposition"].value, n.xs)


@row("while")
def _while(n: Node) -> Result:
    found = raised(n)
    if found is not None:
        return found

    def region(i: int) -> Callable[..., Any]:
        return lambda *args: _given(n.body(i, list(args)))

    found = while_loop(region(0), region(1), tuple(n.xs))
    return list(found)


def _given(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


@row("if", "case")
def _case(n: Node) -> Result:
    index, count = n.x, len(n.op.regions)
    if not len(n.op.results):
        return []

    def region(i: int) -> Callable[[], Any]:
        return lambda: tuple(n.body(i, []))

    if index.dtype is bool_:
        return list(cond(index, region(0), region(1)))

    def chosen(i: int) -> Callable[[], Any]:
        # An index out of range takes the last.
        if i == count - 1:
            return region(i)
        return lambda: cond(index.eq(i), region(i), chosen(i + 1))

    return list(chosen(0)())
