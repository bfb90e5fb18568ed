"""Collectives and their gradients against JAX, where ``vmap`` with an axis name runs all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from support.collectives import CASES, Build, arrays, graph
from support.jax_ops.peer import jax, jnp, lax

pytest.importorskip("jax", reason="JAX is not installed: it is a peer of bench/ only")

PEERS: dict[str, Callable[[Any, int], Any]] = {
    "sum": lambda x, n: lax.psum(x, "data"),
    "prod": lambda x, n: lax.all_gather(x, "data").prod(0),
    "max": lambda x, n: lax.all_gather(x, "data").max(0),
    "min": lambda x, n: lax.all_gather(x, "data").min(0),
    "gather": lambda x, n: lax.all_gather(x, "data", axis=0, tiled=True),
    "gather along 1": lambda x, n: lax.all_gather(x, "data", axis=1, tiled=True),
    "scatter": lambda x, n: lax.psum_scatter(x, "data", scatter_dimension=0, tiled=True),
    "scatter along 1": lambda x, n: lax.psum_scatter(x, "data", scatter_dimension=1, tiled=True),
    "exchange": lambda x, n: lax.all_to_all(x, "data", 0, 0, tiled=True),
    "exchange 0 to 1": lambda x, n: lax.all_to_all(x, "data", 0, 1, tiled=True),
    "exchange 1 to 0": lambda x, n: lax.all_to_all(x, "data", 1, 0, tiled=True),
    # JAX's vmap takes permutations of all ranks alone.
    "shift": lambda x, n: jnp.concatenate([jnp.zeros_like(x)[None], lax.all_gather(x, "data")])[
        lax.axis_index("data")
    ],
    "broadcast": lambda x, n: lax.all_gather(x, "data")[1],
    "index": lambda x, n: jnp.full_like(x, lax.axis_index("data")),
}


def test_every_collective_has_a_peer() -> None:
    assert PEERS.keys() == CASES.keys()


def of_all(f: Callable[[Any], Any], x: Any) -> Any:
    return np.asarray(jax.vmap(f, axis_name="data")(x))


@pytest.mark.parametrize("case", CASES)
def test_they_are_what_they_are_in_jax(case: str) -> None:
    n, x = 4, arrays(4)
    expected = of_all(lambda v: PEERS[case](v, n), x)
    feeds = [{"x": v} for v in x]
    every = rlx.distributed.interpret(graph(CASES[case][0], n), rlx.Mesh(data=n), feeds)
    np.testing.assert_allclose(np.stack([a for (a,) in every]), expected, rtol=1e-6)


def loss_of(build: Build) -> Build:
    return lambda x, d: (build(x, d) * x.sum()).sin().sum()


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_jax(case: str) -> None:
    n = 4
    x = np.random.default_rng(0).uniform(0.5, 1.5, (n, 24, 24)) / 100

    def loss(v: Any) -> Any:
        return jnp.sin(PEERS[case](v, n) * v.sum()).sum()

    expected = of_all(jax.grad(loss), x)
    g = rlx.grad(graph(loss_of(CASES[case][0]), n, "f64"), "x")
    found = rlx.distributed.interpret(g, rlx.Mesh(data=n), [{"x": v} for v in x])
    np.testing.assert_allclose(np.stack([a for (a,) in found]), expected, rtol=1e-9)
