"""The rows that every system shares: of an op that is not pointwise, how it is said with ``k``.

A row is a function of ``k``, the node and its operands as tensors (None for one that is absent),
and gives a tensor for each result. Rows are found by the op's full name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from rlx.targets.graph.rows import (
    functions,
    indexing,
    linear,
    movement,
    order,
    products,
    reduction,
    states,
    window,
)
from rlx.targets.graph.rows.common import Row

__all__ = ["ROWS", "Row", "Rows"]

Rows: TypeAlias = Mapping[str, Row]

_MODULES: tuple[Any, ...] = (
    functions, indexing, linear, movement, order, products, reduction, states, window,
)  # fmt: skip

ROWS: dict[str, Callable[..., Any]] = {
    name: row for module in _MODULES for name, row in module.ROWS.items()
}
"""Of all systems, by the name of the op."""
