"""Matrix products against NumPy, and what their gradients may not cost."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from rlx.errors import DTypeError, ShapeError
from rlx.ir.graph import Graph, topological
from rlx.ir.op import placeholders, type_of
from rlx.ops.matmul.contraction import DotGeneral, MatMul
from rlx.types import TensorType
from support.evaluate import call

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((2, 1, 4, 3), (5, 3, 2)),
        ((1, 4, 3), (3, 2)),
        ((0, 3), (3, 2)),
        ((2, 0), (0, 2)),
    ],
)
def test_matmul_is_numpy_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = RNG.standard_normal(a), RNG.standard_normal(b)
    got = call(lambda p, q: p @ q, x, y)
    np.testing.assert_allclose(got, x @ y)
    assert got.shape == (x @ y).shape


@pytest.mark.parametrize("dt", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_floats_are_summed_in_f32_and_rounded_once(dt: type) -> None:
    x = np.ones((1, 4096), dt)
    assert call(lambda a: a @ a.T, x)[0, 0] == 4096  # in 16 bits the sum would stop at 2048 or 256


def test_integers_wrap() -> None:
    x = np.full((1, 3), 100, np.int8)
    assert call(lambda a: a @ a.T, x).dtype == np.int8
    assert call(lambda a: a @ a.T, x)[0, 0] == np.int64(30000).astype(np.int8)


def test_types_are_promoted() -> None:
    assert (
        call(lambda a, b: a @ b, np.ones((2, 2), np.int32), np.ones((2, 2), np.float32)).dtype
        == np.float32
    )
    with pytest.raises(DTypeError, match="found bool"):
        call(lambda a: a @ a, np.ones((2, 2), bool))


def test_an_array_may_stand_on_the_left() -> None:
    x = RNG.standard_normal((3, 2))
    np.testing.assert_allclose(call(lambda a: np.eye(3) @ a, x), x)


def test_a_forgotten_transpose_is_pointed_out() -> None:
    with pytest.raises(ShapeError, match=r"inner dims 4 and 2.*x @ w\.T"):
        call(lambda a, b: a @ b, np.ones((3, 4)), np.ones((2, 4)))
    with pytest.raises(ShapeError, match="no scalars"):
        call(lambda a, b: a @ b, np.ones((3, 4)), np.float64(2))


def test_symbolic_rows() -> None:
    g = Graph()
    x = g.input("x", ["batch", "seq", 8])
    assert str((x @ g.param("w", [8, 3])).type) == "batchxseqx3xf32"


@pytest.mark.parametrize(
    "axes",
    [
        ("abk", "kc", "abc"),
        ("bka", "bck", "bac"),
        ("kba", "cbkd", "bacd"),
        ("akj", "jck", "ac"),
        ("ab", "cd", "abcd"),
        ("abc", "cab", "abc"),
        ("abc", "acb", "a"),
    ],
)
def test_dot_general_is_einsum(axes: tuple[str, str, str]) -> None:
    left, right, out = axes
    sizes = {label: 2 + n for n, label in enumerate(sorted(set(left + right)))}
    x = RNG.standard_normal([sizes[i] for i in left])
    y = RNG.standard_normal([sizes[i] for i in right])
    both = [i for i in left if i in right]
    batch, summed = [i for i in out if i in both], [i for i in both if i not in out]
    node = DotGeneral(
        *placeholders([TensorType.of(x.shape, "f64"), TensorType.of(y.shape, "f64")]),
        [left.index(i) for i in summed],
        [right.index(i) for i in summed],
        [left.index(i) for i in batch],
        [right.index(i) for i in batch],
    )
    want = np.einsum(f"{left},{right}->{out}", x, y)
    np.testing.assert_allclose(node.reference(x, y), want)
    np.testing.assert_allclose(call(lambda a, b: node.with_operands([a, b]).expand(), x, y), want)


def test_dot_general_takes_negative_axes() -> None:
    x, y = RNG.standard_normal((2, 3)), RNG.standard_normal((4, 3))
    np.testing.assert_allclose(call(lambda a, b: a.dot_general(b, -1, -1), x, y), x @ y.T)


@pytest.mark.parametrize(
    ("a", "b"),
    [("6x5x4xf32", "4x3xf32"), ("5x4xf32", "6x4x3xf32"), ("7x1x5x4xf32", "1x6x4x3xf32")],
)
def test_gradients_make_no_temporary_of_batch_size(a: str, b: str) -> None:
    node = MatMul(*placeholders([type_of(a), type_of(b)]))
    grads = node.vjp(*placeholders([node.out.type]))
    limit = max(v.type.nbytes for v in (*node.present, node.out))
    for op in topological(grads):
        made = op.expand() if op.composite() else op.out
        for inner in topological([made]):
            assert all(v.type.nbytes <= limit for v in inner.results), inner


def test_a_shared_weight_meets_one_matmul() -> None:
    node = MatMul(*placeholders([TensorType.of([6, 5, 4]), TensorType.of([4, 3])]))
    _, gw = node.vjp(*placeholders([node.out.type]))
    (product,) = [op for op in topological([gw]) if op.name == "mir.dot_general"]
    (matmul,) = [op for op in topological([product.expand()]) if op.name == "mir.matmul"]
    assert [str(v.type) for v in matmul.present] == ["4x30xf32", "30x3xf32"]


def test_cost_counts_multiply_and_add() -> None:
    node = MatMul(*placeholders([TensorType.of([6, 5, 4]), TensorType.of([4, 3])]))
    assert node.cost().flops == 2 * 6 * 5 * 4 * 3
    assert node.cost().bytes == 4 * (6 * 5 * 4 + 4 * 3 + 6 * 5 * 3)
