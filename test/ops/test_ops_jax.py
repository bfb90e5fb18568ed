"""Every differentiable op against JAX: results, vjp, jvp, the jvp of the vjp, and batches of these.

``support.jax_ops`` has what each op is in JAX; the points are those of its samples, in f64 and
c128. That no op is missing is tested without JAX in ``test_derivatives_jax``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pytest

from rlx.ir.graph import Graph
from rlx.ir.op import Op
from rlx.ops.rules import batch
from rlx.tools.derivative_page import CONTROL
from rlx.types import f64
from support.derived import SMOOTH, Derived, directions, draw, has_derivatives
from support.jax_ops import OPS
from support.jax_ops.derivatives import derivatives
from support.jax_ops.peer import jax
from support.samples import Array, cases, run

pytest.importorskip("jax", reason="JAX is not installed: it is a peer of bench/ only")

SIZE = 2
"""Length of the new axis."""

QUICKLY = {"xla_backend_optimization_level": 0}
"""Compiling takes most of the time, and running none."""

CASES = {
    op: list(group)
    for op, group in groupby(
        (c for c in cases(*SMOOTH) if has_derivatives(c) and c.op.name in OPS),
        key=lambda case: case.op,
    )
}


@pytest.mark.parametrize("op", CASES, ids=lambda op: op.name)
def test_an_op_is_what_it_is_in_jax(op: type[Op]) -> None:
    for case in CASES[op]:
        node = case.node()
        derived = Derived(node.present, node.results, case.sample.derivatives)
        check(str(case), derived, [draw(case, derived.leaves, seed) for seed in range(SIZE)])


@pytest.mark.parametrize("name", CONTROL)
def test_an_op_with_a_body_is_what_it_is_in_jax(name: str) -> None:
    x = Graph(name).input("x", (3,), f64)
    # JAX has no reverse derivative of such a loop either.
    reverse = name != "control.while_loop"
    derived = Derived([x], CONTROL[name](x).results, 2, reverse)
    draws = [directions(derived.leaves, seed) for seed in range(SIZE)]
    if not reverse:
        draws = [[1.5 + np.abs(a), *rest] for a, *rest in draws]  # the loop ends
    check(name, derived, draws)


def check(title: str, derived: Derived, draws: Sequence[Sequence[Array]]) -> None:
    """Single, and in a batch."""
    stacked = [np.stack(arrays) for arrays in zip(*draws, strict=True)]
    function = jax.jit(jax.vmap(derivatives(derived))).lower(*stacked)
    expected = [np.asarray(a) for a in function.compile(compiler_options=QUICKLY)(*stacked)]

    graph = Graph(title)
    leaves = [
        graph.input(f"x{i}", a.shape, v.dtype)
        for i, (v, a) in enumerate(zip(derived.leaves, stacked, strict=True))
    ]
    pairs = {v: (leaf, True) for v, leaf in zip(derived.leaves, leaves, strict=True)}
    outputs = [v if has else v.expand((SIZE, *v.shape)) for v, has in batch(derived.outputs, pairs)]
    compare(f"batch of {title}", derived, run(outputs, dict(zip(leaves, stacked, strict=True))),
            expected)  # fmt: skip

    rows = [run(derived.outputs, dict(zip(derived.leaves, d, strict=True))) for d in draws]
    compare(title, derived, [np.stack(a) for a in zip(*rows, strict=True)], expected)


def compare(
    title: str, derived: Derived, found: Sequence[Array], expected: Sequence[Array]
) -> None:
    """What was computed for a stack of draws; derivatives that are None here are zero."""
    ours, theirs = iter(found), iter(expected)
    finite = True
    for part, values in derived.parts.items():
        for i, v in enumerate(values):
            e = next(theirs)
            a = np.zeros_like(e) if v is None else next(ours)
            if part == "value":
                finite = finite and bool(np.isfinite(a).all())
            elif not finite:
                continue  # of the derivative where the value is not finite nothing is said
            assert a.shape == e.shape, f"{title}: {part} {i}: {a.shape}, of JAX {e.shape}"
            scale = np.max(np.abs(e), initial=1.0, where=np.isfinite(e))
            np.testing.assert_allclose(
                a, e, rtol=1e-9, atol=1e-11 * scale, err_msg=f"{title}: {part} {i}"
            )
    assert next(theirs, None) is None, f"{title}: JAX gives more"
