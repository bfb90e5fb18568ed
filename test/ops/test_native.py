"""Every op, compiled, on its samples and element types: by kernel families and the common way.

The interpreter is the oracle; its references have oracles of their own in ``test_oracles``. One
graph holds the samples of an op, so that its kernels are compiled together. Operands are inputs, or
views of larger ones: those of the common way always, as it has strides for all. Each way has every
kind of element type; every sample and every type comes up by families (``kernels/test_common``
tries the common way on all). ``RLX_TEST_TYPES`` names the element types, where some will do.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from functools import cache

import numpy as np
import pytest

import rlx
from rlx.ir.interpreter import interpret
from rlx.ir.op import Op
from rlx.types import DType, bf16, dtype, f16, f32, f64
from support.op_graphs import OpGraph
from support.samples import Case, cases_of, kind_of, op_classes
from support.sweeps import covering
from support.tolerances import assert_close, tolerance_of

TYPES = os.environ.get("RLX_TEST_TYPES", "").split()


def takes(case: Case) -> bool:
    return not TYPES or case.dtype is None or case.dtype.name in TYPES


WAYS = ("native", "native-views", "common-views")


def facts(case: Case, way: str) -> Iterable[Hashable]:
    """What a case on a way tries."""
    yield kind_of(case), way
    if way != "common-views":
        yield from (case.number, case.dtype)


@cache
def shared(op: type[Op]) -> list[tuple[Case, str]]:
    """The cases of an op, each with its way."""
    every = [(case, way) for way in WAYS for case in filter(takes, cases_of(op))]
    return covering(every, lambda c: facts(*c))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("op", op_classes(), ids=lambda op: op.name)
def test_compiled_op_agrees_with_the_interpreter(op: type[Op], way: str) -> None:
    chosen = [case for case, own in shared(op) if own == way]
    if not chosen:
        pytest.skip(f"{op.name} takes none of {', '.join(TYPES)}")
    dispatch, _, views = way.partition("-")
    made = OpGraph.of_cases(op.name, chosen, views=bool(views))
    g, feeds, owners = made.graph, made.feeds(), made.owners
    compiled = rlx.Session("cpu").compile(g, dispatch=dispatch)
    found = compiled.run(feeds)
    for case, a, b in zip(owners, found, interpret(g, feeds), strict=True):
        try:
            # Attention in bf16 rounds its weights where the machine multiplies pairs of them.
            assert_close(a, b, tolerance_of(op.name, b) if dtype(a.dtype) is bf16 else None)
        except AssertionError as e:
            pytest.fail(f"{case}: {e}")
    traps = made.feeds(1, special=True)
    with np.errstate(all="ignore"):
        wanted = interpret(g, traps)
    for case, a, b in zip(owners, compiled.run(traps), wanted, strict=True):
        try:
            assert_close(a, b, tolerance_of(op.name, b))
        except AssertionError as e:
            pytest.fail(f"{case}, on traps: {e}")
    again = compiled.run(feeds)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, again, strict=True)), (
        "two runs differ"
    )


@pytest.mark.parametrize("dt", [f16, bf16, f32, f64], ids=str)
def test_of_two_zeros_the_smaller_is_negative(dt: DType) -> None:
    """As IEEE 754's ``minimum`` and ``maximum``, in whatever order the zeros come."""
    g = rlx.Graph("zeros")
    a, b = g.input("a", [21], dt), g.input("b", [21], dt)
    g.set_outputs([a.minimum(b), b.minimum(a), a.maximum(b), b.maximum(a)])
    negative = np.full(21, -0.0).astype(dt.numpy)
    feeds = {"a": negative, "b": -negative}
    native, common = (
        rlx.Session("cpu").compile(g, dispatch=way).run(feeds) for way in ("native", "common")
    )
    for found in (interpret(g, feeds), native, common):
        signs = [np.unique(np.signbit(y)).tolist() for y in found]
        assert signs == [[True], [True], [False], [False]]


def test_a_wrong_kernel_would_be_seen() -> None:
    """The comparison can fail: it refuses an output that is off by some last places."""
    with pytest.raises(AssertionError):
        assert_close(np.float32(1.0), np.float32(1.0001))
