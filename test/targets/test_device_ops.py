"""Every op with all its samples and types on the software devices of GPU APIs, against the
interpreter. A device's compiler takes seconds for the kernels of an op: each session has a part of
this in ``test/conformance``.
"""

from __future__ import annotations

import pytest

from rlx.compiler.driver import compile_program
from rlx.errors import UnsupportedError
from rlx.ir.interpreter import interpret
from rlx.ir.op import Op
from rlx.targets import find_target
from support.device import APIS, compiled
from support.op_graphs import OpGraph
from support.samples import Case, op_classes
from support.tolerances import assert_close


def fits(api: str, case: Case) -> bool:
    """Whether the device has every type that the kernels of a case need."""
    lacks = find_target(api).kernels.lacks
    node = case.node()
    values = (*node.present, *node.results)
    if any(v.dtype.part in lacks for v in values):
        return False
    if not lacks:
        return True
    try:
        compile_program(case.graph(), find_target(api))
    except UnsupportedError as e:
        assert "lacks" in e.message
        return False
    return True


def agrees(api: str, op: type[Op], dispatch: str) -> None:
    made = OpGraph.of(op, lambda case: fits(api, case))
    if not made.owners:
        pytest.skip(f"{api} has none of the types of {op.name}")
    g, feeds, owners = made.graph, made.feeds(), made.owners
    found = compiled(api, g, dispatch=dispatch).run(feeds)
    for case, a, b in zip(owners, found, interpret(g, feeds), strict=True):
        try:
            assert_close(a, b)
        except AssertionError as e:
            pytest.fail(f"{case}: {e}")


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("dispatch", ["native", "common"])
@pytest.mark.parametrize("op", op_classes(), ids=lambda op: op.name)
def test_compiled_op_agrees_with_the_interpreter(op: type[Op], dispatch: str, api: str) -> None:
    agrees(api, op, dispatch)
