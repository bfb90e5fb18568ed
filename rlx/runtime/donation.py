"""Inputs that a compiled graph may write its outputs over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.errors import GraphError
from rlx.ir.graph import Graph
from rlx.ir.location import caller

__all__ = ["check_donations"]


def check_donations(graph: Graph, donate: Sequence[tuple[int, int]]) -> None:
    """GraphError unless each pair names an input and an output of one type, once each."""
    if not isinstance(donate, Sequence) or not all(map(_is_pair, donate)):
        raise GraphError(
            "donate takes pairs of an input and an output, each by its position, such as"
            f" ((0, 1),); found {donate!r}",
            caller(),
        )
    for i, o in donate:
        if not 0 <= i < len(graph.inputs) or not 0 <= o < len(graph.outputs):
            raise GraphError(
                f"donate pairs input {i} with output {o}; there are {len(graph.inputs)} inputs and"
                f" {len(graph.outputs)} outputs",
                caller(),
            )
        given, made = graph.inputs[i], graph.outputs[o]
        if given.type != made.type:
            raise GraphError(
                f"input {given.name!r} is {given.type}, and output {o}, which donate would write"
                f" over it, is {made.type}",
                caller(),
            )
    if any(len(set(side)) < len(donate) for side in zip(*donate, strict=True)):
        raise GraphError(f"donate names an input or an output twice: {donate}", caller())


def _is_pair(x: Any) -> bool:
    return isinstance(x, Sequence) and [type(part) for part in x] == [int, int]
