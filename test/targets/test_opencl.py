"""Kernels in OpenCL C, run on this machine's processor by PoCL."""

from __future__ import annotations

import pytest

from rlx.interpreter import interpret
from rlx.ops.base import Op
from support.op_graphs import OpGraph
from support.opencl import compiled
from support.samples import op_classes
from support.tolerances import assert_close


@pytest.mark.parametrize("dispatch", ["native", "common"])
@pytest.mark.parametrize("op", op_classes(), ids=lambda op: op.name)
def test_compiled_op_agrees_with_the_interpreter(op: type[Op], dispatch: str) -> None:
    made = OpGraph.of(op)
    g, feeds, owners = made.graph, made.feeds(), made.owners
    found = compiled(g, dispatch).run(feeds)
    for case, a, b in zip(owners, found, interpret(g, feeds), strict=True):
        try:
            assert_close(a, b)
        except AssertionError as e:
            pytest.fail(f"{case}: {e}")
