"""Gradients of what is made of linear algebra's ops against JAX, where that is installed.

The ops themselves are in ``test_ops_jax``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.interpreter import interpret
from support import ad

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy
la, ja = rlx.linalg, jnp.linalg

RNG = np.random.default_rng(3)
A = RNG.standard_normal((2, 4, 4)) + 5 * np.eye(4)
TALL, B = RNG.standard_normal((2, 5, 3)), RNG.standard_normal((2, 4, 3))


def triangular(a: Any, b: Any) -> Any:
    return jax.lax.linalg.triangular_solve(a, b, left_side=True, lower=False, transpose_a=True)


# The functions of RLX, of JAX, the operands.
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "triangular_solve": (
        lambda a, b: la.triangular_solve(a, b, lower=False, transpose=True), triangular, (A, B),
    ),
    "matrix_power": (lambda a: la.matrix_power(a, -3), lambda a: ja.matrix_power(a, -3), (A,)),
    "nuclear norm": (
        lambda a: la.norm(a, "nuc", (1, 2)), lambda a: ja.norm(a, "nuc", (1, 2)), (TALL,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients_agree(name: str) -> None:
    ours, theirs, arrays = CASES[name]
    weight = np.random.default_rng(0).standard_normal(np.shape(theirs(*arrays)))
    g = rlx.Graph(name)
    values = [g.input(f"x{i}", a.shape, "f64") for i, a in enumerate(arrays)]
    g.set_outputs(ad.grad((ours(*values) * weight).sum(), values))
    found = interpret(g, {f"x{i}": a for i, a in enumerate(arrays)})

    def loss(*xs: Any) -> Any:
        return (theirs(*xs) * weight).sum()

    for a, b in zip(found, jax.grad(loss, tuple(range(len(arrays))))(*arrays), strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=1e-8, atol=1e-9)
