"""topk: order, ties, nan, any axis, and its gradient."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx.errors import DTypeError, ShapeError
from rlx.ir.graph import Graph
from rlx.ir.op import placeholders
from rlx.kernels.fallback import emit as common
from rlx.ops.reduction.topk import TopK
from rlx.types import TensorType, dtype
from support.evaluate import call
from support.runkernel import run_launch

NAN, INF = np.nan, np.inf
ROWS = [
    [1.0, 3.0, 2.0, 3.0, -1.0],
    [NAN, 1.0, NAN, INF, -INF],
    [0.0, -0.0, 0.0, -0.0, 0.0],
    [-INF, -INF, -INF, -INF, -INF],
    [NAN, NAN, NAN, NAN, NAN],
]


def by_definition(row: list[float], k: int, largest: bool) -> list[int]:
    """Sort by (nan first, greater first), then by index; the other way round for the least."""
    sign = -1 if largest else 1

    def key(i: int) -> tuple[float, float, int]:
        nan = row[i] != row[i]
        return (sign * nan, 0.0 if nan else sign * row[i], i)

    return sorted(range(len(row)), key=key)[:k]


def through_loops(node: Any, x: Any) -> tuple[Any, Any]:
    config = common.CommonConfig.of(node)
    outs = [np.zeros(v.type.static_shape, v.dtype.numpy) for v in node.results]
    rooms = [np.empty(t.static_shape, t.dtype.numpy) for t in common.workspaces(config)]
    run_launch(common, config, common.launch(config), [x, *outs, *rooms])
    return outs[0], outs[1]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dt", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_order_ties_and_nan(dt: Any, largest: bool) -> None:
    x = np.array(ROWS, dt)
    node = TopK(*placeholders([TensorType.of(x.shape, dt)]), k=4, axis=1, largest=largest)
    want = [by_definition(row, 4, largest) for row in ROWS]
    for values, indices in (node.reference(x), through_loops(node, x)):
        assert indices.tolist() == want
        assert values.dtype == x.dtype
        expected = np.take_along_axis(x, np.array(want), 1)
        assert np.array_equal(values.astype(float), expected.astype(float), equal_nan=True)


@pytest.mark.parametrize("dt", ["i8", "u8", "i64", "u64"])
def test_integers_are_ordered_by_their_own_type(dt: str) -> None:
    info = np.iinfo(dtype(dt).numpy)
    x = np.array([1, info.max, info.min, 2, info.max], dtype(dt).numpy)
    node = TopK(*placeholders([TensorType.of([5], dt)]), k=3)
    for values, indices in (node.reference(x), through_loops(node, x)):
        assert indices.tolist() == [1, 4, 3]
        assert values.tolist() == [info.max, info.max, 2]


def test_the_last_axis_is_the_default() -> None:
    x = np.arange(6.0).reshape(2, 3)
    values, indices = call(lambda v: v.topk(2), x)
    assert values.tolist() == [[2, 1], [5, 4]]
    assert indices.tolist() == [[2, 1], [2, 1]]
    values, _ = call(lambda v: v.topk(1, axis=0), x)
    assert values.tolist() == [[3, 4, 5]]


def test_it_refuses() -> None:
    with pytest.raises(ShapeError, match="4 of the 3 elements"):
        call(lambda v: v.topk(4), np.ones((2, 3)))
    with pytest.raises(ShapeError, match="rank 0"):
        call(lambda v: v.topk(1), np.float32(1))
    with pytest.raises(DTypeError, match="found bool"):
        call(lambda v: v.topk(1), np.ones(2, bool))


def test_k_is_checked_when_a_symbolic_axis_is_bound() -> None:
    g = Graph()
    values, indices = g.input("x", ["batch", "experts"]).topk(4)
    g.set_outputs([values, indices])
    assert str(values.type) == "batchx4xf32"
    with pytest.raises(ShapeError, match="4 of the 3"):
        g.bind({"experts": 3})


def test_the_gradient_goes_to_the_elements_taken() -> None:
    x = np.array([[1.0, 5.0], [3.0, 2.0], [2.0, 9.0]])
    cotangent = np.array([[10.0, 20.0], [30.0, 40.0]])
    node = TopK(*placeholders([TensorType.of(x.shape, "f64")]), k=2, axis=0)
    grad = call(lambda v, g: node.with_operands([v]).vjp(g, None)[0], x, cotangent)
    assert grad.tolist() == [[0, 40], [10, 0], [30, 20]]
