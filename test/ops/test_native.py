"""Every op, compiled, on its samples and element types: by kernel families and the common way.

The interpreter is the oracle; its references have oracles of their own in ``test_oracles``. One
graph holds all samples of an op, so that its kernels are compiled together.
"""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.interpreter import interpret
from rlx.ops.base import Op
from rlx.types import bf16, dtype
from support.op_graphs import OpGraph
from support.samples import op_classes
from support.tolerances import assert_close, tolerance_of


@pytest.mark.parametrize("dispatch", ["native", "common"])
@pytest.mark.parametrize("op", op_classes(), ids=lambda op: op.name)
def test_compiled_op_agrees_with_the_interpreter(op: type[Op], dispatch: str) -> None:
    made = OpGraph.of(op)
    g, feeds, owners = made.graph, made.feeds(), made.owners
    compiled = rlx.Session("cpu").compile(g, dispatch=dispatch)
    found = compiled.run(feeds)
    for case, a, b in zip(owners, found, interpret(g, feeds), strict=True):
        try:
            # Attention in bf16 rounds its weights where the machine multiplies pairs of them.
            assert_close(a, b, tolerance_of(op.name, b) if dtype(a.dtype) is bf16 else None)
        except AssertionError as e:
            pytest.fail(f"{case}: {e}")
    again = compiled.run(feeds)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, again, strict=True)), (
        "two runs differ"
    )


def test_a_wrong_kernel_would_be_seen() -> None:
    """The comparison can fail: it refuses an output that is off by some last places."""
    with pytest.raises(AssertionError):
        assert_close(np.float32(1.0), np.float32(1.0001))
