"""Making control ops and their bodies, for rules in which some values are missing (None)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rlx.errors import GraphError
from rlx.ir.graph import Graph
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.control.control import Scan
from rlx.ops.movement.movement import zeros
from rlx.types import TensorType

__all__ = [
    "MAX_DEPTH", "Maybe", "either", "graph_of", "make", "marks_of", "nested", "run_scan",
    "settled", "split", "spread", "there", "types_of", "zero",
]  # fmt: skip

Maybe = Sequence[Value | None]

MAX_DEPTH = 64
"""How deep bodies may lie in one another; the native runtime has the same (``kMaxDepth``)."""


class _Depth(threading.local):
    bodies = 0


_depth = _Depth()


@contextmanager
def nested(name: str) -> Generator[None]:
    """A body is traced in the block; GraphError if it lies in too many others."""
    if _depth.bodies == MAX_DEPTH:
        raise GraphError(
            f"{name}: it lies in {MAX_DEPTH} bodies of others, the most there can be; carry what"
            " decides through one loop, or choose by where"
        )
    _depth.bodies += 1
    try:
        yield
    finally:
        _depth.bodies -= 1


def make(cls: type[Op], operands: Sequence[Value], **attrs: Any) -> Op:
    """The node of an op with any number of operands."""
    return cls(*operands, **attrs)


def graph_of(
    name: str, types: Sequence[TensorType], function: Callable[..., Sequence[Value]]
) -> Graph:
    """A body: the graph of a function of Values of these types, which uses nothing else."""
    graph = Graph(name)
    inputs = [graph.input(f"x{i}", t.shape, t.dtype) for i, t in enumerate(types)]
    graph.set_outputs(function(*inputs))
    return graph


def types_of(values: Sequence[Value]) -> list[TensorType]:
    """The types of values."""
    return [v.type for v in values]


def run_scan(
    op: Scan, carry: Sequence[Value], fixed: Sequence[Value], scanned: Sequence[Value],
    function: Callable[..., Sequence[Value]], reverse: bool | None = None,
    rounds: int | None = None,
) -> Op:  # fmt: skip
    """A scan over the rounds of another, or over so many ``rounds``."""
    elements = [v.type.with_shape(v.shape[1:]) for v in scanned]
    types = [op.body.inputs[0].type, *types_of([*carry, *fixed]), *elements]
    return make(
        Scan, [*carry, *fixed, *scanned],
        body=graph_of("body", types, function),
        length=op.length if rounds is None else (rounds,),
        carries=len(carry), scanned=len(scanned),
        reverse=op.reverse if reverse is None else reverse,
    )  # fmt: skip


# -- values of which some are missing ---------------------------------------------------------


def zero(like: Value) -> Value:
    """Zeros of a value's type."""
    return zeros(like.shape, like.dtype)


def there(values: Maybe) -> list[Value]:
    """Those that are not missing."""
    return [v for v in values if v is not None]


def marks_of(values: Maybe) -> list[bool]:
    """Which are not missing."""
    return [v is not None for v in values]


def spread(values: Maybe, where: Sequence[bool]) -> list[Value | None]:
    """The values at the places that are marked, None at the others."""
    rest = iter(values)
    return [next(rest) if has else None for has in where]


def either(a: Sequence[bool], b: Sequence[bool]) -> list[bool]:
    """Which places are marked in one or the other."""
    return [x or y for x, y in zip(a, b, strict=True)]


def split(values: Sequence[Value], *sizes: int) -> list[list[Value]]:
    """Neighbouring parts of these sizes."""
    parts: list[list[Value]] = []
    at = 0
    for n in sizes:
        parts.append(list(values[at : at + n]))
        at += n
    assert at == len(values), (sizes, len(values))
    return parts


def settled(
    carried: list[bool], traced: Callable[[Sequence[bool]], list[bool]]
) -> tuple[list[bool], list[bool]]:
    """Which carried values have a derivative in some round, and which of all values a round gives
    one then. ``traced`` says which it gives if the carried ones have it that are marked."""
    while True:
        marks = traced(carried)
        more = either(carried, marks[: len(carried)])
        if more == carried:
            return carried, marks
        carried = more
