"""Elements by index."""

from __future__ import annotations

from rlx.frontends.onnx.node import Node, Rows
from rlx.ops.gather import Gather
from rlx.ops.value import Value

__all__ = ["ROWS"]


def gather(n: Node) -> Value:
    return Gather.build(n[0], n[1], n.axis(0))


ROWS: Rows = {"Gather": gather}
