"""What CPU kernels do with operands as they lie: across, beside a number, one column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import rlx
from rlx.inspect import inspect_pipeline
from support.compiled import agrees


def graph(build: Callable[..., rlx.Value], *shapes: tuple[int, ...], dt: str = "f32") -> rlx.Graph:
    g = rlx.Graph("layout")
    g.set_outputs([build(*(g.input(f"x{n}", s, dt) for n, s in enumerate(shapes)))])
    return g


def lir(g: rlx.Graph, target: str = "cpu") -> str:
    return inspect_pipeline(g, target).lir


@pytest.mark.parametrize(
    "build",
    [
        lambda x: x.transpose((1, 0)).sum(1),
        lambda x: x.transpose((1, 0)).mean(1, keepdims=True),
        lambda x: x.transpose((1, 0)).softmax(1),
        lambda x: x.transpose((1, 0)) + x[:1, :1] * 2.0,
    ],
    ids=["sum", "mean", "softmax", "add"],
)
@pytest.mark.parametrize("shape", [(9, 40), (65, 33), (8, 8), (1, 5)])
def test_rows_that_lie_across(
    build: Callable[[rlx.Value], rlx.Value], shape: tuple[int, int]
) -> None:
    agrees(graph(build, shape))


def test_rows_that_lie_across_are_summed_as_columns() -> None:
    text = lir(graph(lambda x: x.transpose((1, 0)).sum(1), (40, 50)))
    assert 'lir.family = "reduce"' in text and "copy" not in text


@pytest.mark.parametrize("dt", ["f32", "f64", "bf16", "i32", "i64", "bool"])
def test_a_number_beside_a_lone_op_is_no_memory(dt: str) -> None:
    number = True if dt == "bool" else 3
    g = graph(lambda x: x.maximum(number), (7, 30), dt=dt)
    assert "lir.constant" not in lir(g)
    agrees(g)


def test_negative_zero_stays_beside_a_lone_op() -> None:
    f = rlx.Session("cpu").compile(graph(lambda x: x.maximum(-0.0) / -0.0, (3,)))
    np.testing.assert_array_equal(f.run_slots(np.ones(3, "f4"))[0], np.full(3, -np.inf, "f4"))


@pytest.mark.parametrize("dt", ["f32", "f64", "bf16"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((5, 40), (40, 1)),
        ((1, 300), (300, 1)),
        ((4, 3, 9), (4, 9, 1)),
        ((4, 3, 9), (9, 1)),
        ((2, 1, 3, 9), (5, 9, 1)),
        ((3, 1), (1, 1)),
    ],
)
def test_products_by_one_column(left: tuple[int, ...], right: tuple[int, ...], dt: str) -> None:
    agrees(graph(lambda x, y: x @ y, left, right, dt=dt))
    agrees(graph(lambda x, y: (x @ y + 1.0).relu(), left, right, dt=dt))
    turned = (*left[:-2], left[-1], left[-2])
    agrees(graph(lambda x, y: x.swapaxes(-1, -2) @ y, turned, right, dt=dt))


@pytest.mark.parametrize("number", [(), (1,), (1, 1)])
def test_a_number_beside_a_product_of_one_element(number: tuple[int, ...]) -> None:
    agrees(graph(lambda x, y, z: x @ y + z, (1, 9), (9, 1), number))
    agrees(graph(lambda x, y, z: (x @ y - z).maximum(z), (1, 1), (1, 1), number))


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("number", [(), (1,)])
def test_a_bias_of_attention_that_is_a_number(queries: int, number: tuple[int, ...]) -> None:
    how = {"num_heads": 2, "kv_heads": 1, "scale": 0.5, "mask_kind": "bias", "layout": "bshd"}
    for keys in (1, 7):
        shapes = (3, queries, 8), (3, keys, 4), (3, keys, 4), number
        agrees(graph(lambda q, k, v, mask: q.attention(k, v, mask, **how).relu(), *shapes))


def test_a_row_by_one_column_is_the_same_in_any_batch() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype("f4") for s in ((37, 211), (211, 1)))
    whole, one = (
        rlx.Session("cpu").compile(graph(lambda a, b: a @ b, (n, 211), (211, 1))) for n in (37, 1)
    )
    found = whole.run_slots(x, y)[0]
    for n in range(37):
        np.testing.assert_array_equal(one.run_slots(x[n : n + 1], y)[0], found[n : n + 1])
