"""share-inputs: products of one tensor become one, with equal values, and outputs as they were."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.inspect import inspect_pipeline
from support.compiled import agrees, arrays


def products(g: rlx.Graph) -> int:
    """Matmuls that are left."""
    return inspect_pipeline(g).fused.count('"mir.matmul"')


def projections(
    widths: tuple[int, ...], biased: tuple[bool, ...]
) -> tuple[rlx.Graph, list[rlx.Value]]:
    g = rlx.Graph("projections")
    x = g.input("x", [2, 5, 7])
    out = []
    for i, (n, b) in enumerate(zip(widths, biased, strict=True)):
        y = x @ g.param(f"w{i}", [7, n])
        out.append(y + g.param(f"b{i}", [n]) if b else y)
    return g, out


@pytest.mark.parametrize("biased", [(True, True, True), (False, False, False), (True, False, True)])
@pytest.mark.parametrize("widths", [(4, 4, 4), (3, 17, 1)])
def test_projections_become_one_product(widths: tuple[int, ...], biased: tuple[bool, ...]) -> None:
    g, out = projections(widths, biased)
    g.set_outputs([y.tanh() for y in out])
    assert products(g) == 1
    agrees(g)


def test_a_product_that_is_an_output_stays_dense_and_apart() -> None:
    g, (q, k, v) = projections((4, 4, 4), (False,) * 3)
    g.set_outputs([q.tanh(), k.tanh(), v])
    assert products(g) == 2
    assert "must be dense" in inspect_pipeline(g).fusion
    agrees(g)


def test_all_outputs_stay_apart() -> None:
    g, out = projections((4, 3, 4), (True,) * 3)
    g.set_outputs(out)
    assert products(g) == 3
    agrees(g)


def test_a_product_and_its_sum_with_the_bias_are_both_there() -> None:
    g, (q, k) = projections((4, 4), (False, False))
    biased = q + g.param("b", [4])
    g.set_outputs([biased.exp(), q.sum(), k.exp()])
    agrees(g)


def test_weights_defined_after_the_first_product_are_moved_before_it() -> None:
    g = rlx.Graph("late")
    x = g.input("x", [3, 4])
    first = (x @ g.param("a", [4, 5])).tanh()
    late = (g.param("b", [5, 4]).transpose((1, 0)) * 2.0) + g.param("c", [4, 1])
    g.set_outputs([first, (x @ late).tanh()])
    agrees(g)


def test_a_weight_that_depends_on_an_input_is_left() -> None:
    g = rlx.Graph("mixed")
    x = g.input("x", [4, 4])
    g.set_outputs([(x @ x).tanh(), (x @ g.param("w", [4, 3])).tanh()])
    assert products(g) == 2
    agrees(g)


def test_one_weight_used_twice() -> None:
    g = rlx.Graph("twice")
    x, w = g.input("x", [3, 4]), g.param("w", [4, 4])
    b, c = g.param("b", [4]), g.param("c", [4])
    g.set_outputs([(x @ w + b).tanh(), (x @ w + c).tanh()])
    agrees(g)


@pytest.mark.parametrize("axis", [0, 1])
def test_weights_that_are_joined_with_literals_are_packed(axis: int) -> None:
    """Every part of a joined weight goes to its columns, also one that follows no param."""
    g = rlx.Graph("joined")
    x = g.input("x", [3, 4])
    literal = [[1.0], [2.0], [3.0], [4.0]] if axis else [[5.0, 6.0, 7.0]]
    shape = [4, 2] if axis else [3, 3]
    w = g.concat([g.param("w", shape), g.constant(literal, "f32")], axis=axis)
    g.set_outputs([x @ w])
    agrees(g)


@pytest.mark.parametrize("shape", [(1, 5), (4, 1), (1, 1), (5,), ()])
def test_a_broadcast_weight_is_packed_in_full(shape: tuple[int, ...]) -> None:
    g = rlx.Graph("broadcast")
    x, w = g.input("x", [3, 4]), g.param("w", shape)
    wide = w.expand((4, 5))
    g.set_outputs([x @ wide, (x @ wide).tanh()])
    agrees(g)


def test_one_row_broadcast_to_two_heights() -> None:
    g = rlx.Graph("heights")
    x, y, w = g.input("x", [3, 4]), g.input("y", [2, 6]), g.param("w", [1, 5])
    g.set_outputs([(x @ w.expand((4, 5))).tanh(), (y @ w.expand((6, 5))).tanh()])
    agrees(g)


@pytest.mark.parametrize("shape", [(1, 3, 5), (2, 1, 1, 5), (1, 1, 3, 1), (2, 1, 3, 5)])
@pytest.mark.parametrize("kind", ["input", "param"])
def test_a_broadcast_batch_of_weights(shape: tuple[int, ...], kind: str) -> None:
    g = rlx.Graph("batch")
    x = g.input("x", [2, 4, 2, 3])
    w = getattr(g, kind)("w", shape)
    g.set_outputs([x @ w.expand((2, 4, 3, 5)), (x @ w.expand((2, 4, 3, 5))).tanh()])
    agrees(g)


def test_hundreds_of_products_share_an_input() -> None:
    g = rlx.Graph("many")
    x = g.input("x", [2, 3])
    parts = [x @ g.param(f"w{i}", [3, 2]) + g.param(f"b{i}", [2]) for i in range(250)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    g.set_outputs(total)
    assert "shared-input matmuls" in inspect_pipeline(g).fusion
    session = rlx.Session("cpu").compile(g)
    given = arrays(g)
    for v in g.params:
        session.set_param(str(v.name), given[str(v.name)])
    expected = sum(given["x"] @ given[f"w{i}"] + given[f"b{i}"] for i in range(250))
    np.testing.assert_allclose(session.run({"x": given["x"]})[0], expected, rtol=1e-4, atol=1e-4)
