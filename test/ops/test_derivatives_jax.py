"""Derivatives against JAX's at ties, bends, poles and ends of domains, as a fixture keeps them.

``test_ops_jax`` compares every op with JAX itself; that none is missing there is tested here. Where
derivatives differ on purpose is a table of ``docs/derivatives.md``, which is tested here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx.ir.op import op_class
from rlx.ir.value import Value
from rlx.ops import OP_MODULES
from rlx.ops.control.control import Control
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import zeros
from rlx.ops.nn.inference import ForInference
from rlx.ops.rules import jvp, vjp
from rlx.tools.derivative_page import CONTROL as EXAMPLES
from rlx.tools.derivative_page import DIFFERENCES, Difference
from support import ad
from support.derivative_points import ROWS, Row, direction
from support.derived import SMOOTH, has_derivatives
from support.evaluate import call
from support.jax_ops import OPS, WITHOUT
from support.jax_ops.graphs import CONTROL
from support.samples import cases, op_classes

Array = np.ndarray[Any, Any]

EXPECTED = np.load(Path(__file__).parent / "fixtures" / "derivatives.npz")


def derivatives(row: Row) -> dict[str, Array]:
    """The value of a row, and its derivatives along the directions of the fixture, in its order."""
    count = len(row.operands)
    names = ["value", *(f"{what}{i}" for what in ("jvp", "vjp", "second") for i in range(count))]

    def build(*leaves: Value) -> list[Value]:
        xs, tangents = leaves[:count], leaves[count:]
        out = row.ours(*xs)
        along = Constant(direction(np.zeros(out.type.static_shape, out.dtype.numpy))).out
        firsts = [_whole(jvp([out], [x], [t]), [out])[0] for x, t in zip(xs, tangents, strict=True)]
        back = _whole(vjp([out], xs, [along]), xs)
        return [out, *firsts, *back, *_whole(jvp(back, xs, tangents), xs)]

    arrays = call(build, *row.operands, *(direction(a) for a in row.operands))
    return dict(zip(names, arrays, strict=True))


def _whole(found: Sequence[Value | None], like: Sequence[Value]) -> list[Value]:
    """Derivatives with zeros for None."""
    pairs = zip(found, like, strict=True)
    return [zeros(x.shape, x.dtype) if v is None else v for v, x in pairs]


def test_every_differentiable_op_has_a_counterpart_in_jax() -> None:
    """Or a reason why not; where JAX is installed ``test_ops_jax`` compares them."""
    differentiable = {
        op.name for op in op_classes() if op.differentiable and not issubclass(op, ForInference)
    }
    compared = {c.op.name for c in cases(*SMOOTH) if has_derivatives(c)}
    assert compared == differentiable, "an op has no sample on which derivatives can be compared"
    missing = differentiable - OPS.keys()
    assert missing == WITHOUT.keys(), "say in test/support/jax_ops what they are in JAX"
    with_bodies = {name for name in OP_MODULES if issubclass(op_class(name), Control)}
    assert with_bodies == EXAMPLES.keys() == CONTROL.keys()


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
def test_derivatives_are_those_of_jax(row: Row) -> None:
    expected = EXPECTED[row.name]
    at = 0
    for what, found in derivatives(row).items():
        part, at = expected[at : at + found.size].reshape(found.shape), at + found.size
        scale = np.max(np.abs(part), initial=1.0, where=np.isfinite(part))
        np.testing.assert_allclose(found, part, rtol=1e-9, atol=1e-12 * scale, err_msg=what)
    assert at == expected.size


@pytest.mark.parametrize("d", DIFFERENCES, ids=lambda d: d.title)
def test_a_difference_is_as_documented(d: Difference) -> None:
    def gradient(*xs: Value) -> Value:
        (g,) = ad.grad(d.ours(*xs).sum(), xs[:1])
        return g if d.order == 1 else ad.grad(g.real().sum(), xs[:1])[0]

    found = call(gradient, *d.operands)
    np.testing.assert_array_equal(found.ravel(), d.here)
    np.testing.assert_array_equal(EXPECTED[d.title].ravel(), d.there)
    assert not np.array_equal(d.here, d.there), "it is no difference"
