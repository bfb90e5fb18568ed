"""Recurrences with a state: against torch and transformers, in pieces, and at sizes that kernels
treat differently.

The fixture is written by tools/make_state_space_fixtures.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import RlxError
from rlx.ir.interpreter import interpret
from rlx.ir.op import op_class
from rlx.ops.movement.constant import Constant
from rlx.types import bf16
from support import ad

Array = np.ndarray[Any, Any]

TORCH = dict(np.load(Path(__file__).parent / "fixtures" / "state_space.npz"))
OPS = ("selective_scan", "gated_delta_net")


def recorded(name: str, kind: str) -> list[Array]:
    many = [n for n in TORCH if n.startswith(f"{name}_{kind}")]
    return [TORCH[f"{name}_{kind}{n}"] for n in range(len(many))]


def inputs(g: rlx.Graph, arrays: list[Array]) -> tuple[list[rlx.Value], dict[str, Array]]:
    leaves = [g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    return leaves, {f"x{i}": a for i, a in enumerate(arrays)}


def compiled(name: str, arrays: list[Array]) -> list[Array]:
    g = rlx.Graph(name)
    leaves, feeds = inputs(g, arrays)
    g.set_outputs(list(getattr(g, name)(*leaves)))
    return rlx.Session("cpu").compile(g).run(feeds)


@pytest.mark.parametrize("name", OPS)
def test_results_are_those_of_torch(name: str) -> None:
    for found, want in zip(compiled(name, recorded(name, "x")), recorded(name, "y"), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk", [2, 64])
@pytest.mark.parametrize("name", OPS)
def test_gradients_are_those_of_torch(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlx.ops.nn.delta_net.CHUNK", chunk)
    g = rlx.Graph(name)
    leaves, feeds = inputs(g, recorded(name, "x"))
    results = getattr(g, name)(*leaves)
    weights = [Constant(w).out for w in recorded(name, "w")]
    grads = ad.vjp(results, leaves, weights)
    g.set_outputs([v for v in grads if v is not None])
    for found, want in zip(interpret(g, feeds), recorded(name, "g"), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-10)


def test_a_value_that_is_several_operands() -> None:
    """Its gradient is the sum of theirs, each counted once."""
    rng = np.random.default_rng(1)
    x, gate = rng.standard_normal((1, 4, 1, 3)), rng.uniform(-1, 0, (1, 4, 1))
    g = rlx.Graph("several")
    leaves, feeds = inputs(g, [x, x, x, gate, gate])
    apart = ad.grad(g.gated_delta_net(*leaves)[0].sum(), leaves)
    one, two = leaves[0], leaves[3]
    together = ad.grad(g.gated_delta_net(one, one, one, two, two)[0].sum(), [one, two])
    g.set_outputs([*apart, *together])
    *parts, dx, dgate = interpret(g, feeds)
    np.testing.assert_allclose(dx, sum(parts[:3]), rtol=1e-12)
    np.testing.assert_allclose(dgate, sum(parts[3:]), rtol=1e-12)


def operands(name: str, sizes: tuple[int, int, int, int, int], dt: Any = np.float32) -> list[Array]:
    rng = np.random.default_rng(0)
    b, s, h, n, m = sizes
    if name == "selective_scan":
        given = [
            rng.standard_normal((b, s, h)), rng.uniform(0.01, 0.5, (b, s, h)),
            -rng.uniform(0.1, 2, (h, n)), rng.standard_normal((b, s, n)),
            rng.standard_normal((b, s, n)), rng.standard_normal(h),
            rng.standard_normal((b, h, n)),
        ]  # fmt: skip
    else:
        q, k = rng.standard_normal((2, b, s, h, n))
        k /= np.linalg.norm(k, axis=-1, keepdims=True)
        given = [
            q, k, rng.standard_normal((b, s, h, m)), -rng.uniform(0, 1, (b, s, h)),
            rng.uniform(0, 1, (b, s, h)), rng.standard_normal((b, h, n, m)),
        ]  # fmt: skip
    return [a.astype(dt) for a in given]


SIZES = [(2, 150, 3, 16, 64), (1, 70, 2, 5, 48), (2, 33, 1, 64, 3), (1, 4, 5, 128, 128)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_vectors_and_elements_give_what_numpy_does(name: str, sizes: Any) -> None:
    given = operands(name, sizes)
    g = rlx.Graph(name)
    leaves, feeds = inputs(g, given)
    g.set_outputs(list(getattr(g, name)(*leaves)))
    expected = interpret(g, feeds)
    for dispatch in ("native", "common"):
        found = rlx.Session("cpu").compile(g, dispatch=dispatch).run(feeds)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dt", [np.float32, bf16.numpy], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", OPS)
def test_a_sequence_in_two_parts(name: str, dt: Any) -> None:
    """The state after the first part, f32 in any case, takes the second where the whole went."""
    *given, state = operands(name, (2, 7, 2, 8, 16), dt)
    steps = [a.ndim > 2 and a.shape[1] == 7 for a in given]
    state = state.astype(np.float32)
    whole, last = compiled(name, [*given, state])
    parts: list[Array] = []
    for part in (slice(0, 3), slice(3, 7)):
        cut = [a[:, part] if s else a for a, s in zip(given, steps, strict=True)]
        y, state = compiled(name, [*cut, state])
        assert state.dtype == np.float32
        parts.append(y)
    np.testing.assert_array_equal(np.concatenate(parts, 1), whole)
    np.testing.assert_array_equal(state, last)


def test_the_derivative_of_an_unknown_length_is_refused() -> None:
    g = rlx.Graph("unknown")
    x, gate = g.input("x", [1, "s", 2, 4]), g.input("gate", [1, "s", 2])
    node = op_class("mir.gated_delta_net")(x, x, x, gate, gate)
    with pytest.raises(RlxError, match="needs a known S and N, found s and 4"):
        node.vjp(node.results[0], None)
