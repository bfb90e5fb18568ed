"""Reshape, transpose, expand, slice, concat and pad: builder forms, symbolic dims, indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from support.evaluate import call

X = np.arange(24.0).reshape(2, 3, 4)


@pytest.fixture
def symbolic() -> Value:
    """A value of type [batch, seq, 6]."""
    return Graph().input("x", ["batch", "seq", 6])


def test_reshape_forms() -> None:
    for f in (lambda x: x.reshape(6, 4), lambda x: x.reshape([6, 4]), lambda x: x.reshape(6, -1)):
        assert (call(f, X) == X.reshape(6, 4)).all()
    assert call(lambda x: x.reshape(()), np.ones((1, 1))).shape == ()
    assert call(lambda x: x.reshape(-1), np.ones((0, 3))).shape == (0,)


@pytest.mark.parametrize(
    ("shape", "match"),
    [((5, -1), "no multiple"), ((-1, -1), "only one"), ((0, -1), "hold no element"), ((5,), "24")],
)
def test_reshape_refuses(shape: tuple[int, ...], match: str) -> None:
    with pytest.raises(ShapeError, match=match):
        call(lambda x: x.reshape(shape), X)


def test_reshape_of_symbolic_dims(symbolic: Value) -> None:
    assert str(symbolic.reshape(["batch", "seq", 2, 3]).type) == "batchxseqx2x3xf32"
    assert str(symbolic.reshape([-1, 6]).type) == "batch*seqx6xf32"
    assert symbolic.reshape([-1, 6]).reshape(["batch", -1, 6]).shape == symbolic.shape
    with pytest.raises(ShapeError, match="divides evenly"):
        symbolic.reshape([5, -1])
    with pytest.raises(ShapeError, match="cannot become"):
        symbolic.reshape([4, 6])


def test_what_changes_nothing_makes_no_node(symbolic: Value) -> None:
    assert symbolic.reshape(symbolic.shape) is symbolic
    assert symbolic.transpose(0, 1, 2) is symbolic
    assert symbolic.expand(symbolic.shape) is symbolic


def test_transpose_forms() -> None:
    assert (call(lambda x: x.transpose(), X) == X.T).all()
    assert (call(lambda x: x.transpose(0, -1, 1), X) == X.transpose(0, 2, 1)).all()
    assert (call(lambda x: x.mT, X) == X.swapaxes(1, 2)).all()
    assert (call(lambda x: x[0].T, X) == X[0].T).all()
    assert (call(lambda x: x[0, 0].T, X) == X[0, 0].T).all()
    with pytest.raises(ShapeError, match=r"x\.T is for matrices.*x\.mT.*x\.transpose\(\)"):
        call(lambda x: x.T, X)  # NumPy reverses all axes


def test_expand_keeps_a_dim_of_minus_one(symbolic: Value) -> None:
    assert (
        call(lambda x: x.expand(5, -1), np.arange(3.0)) == np.arange(3.0) + np.zeros((5, 1))
    ).all()
    assert str(symbolic.expand([2, -1, -1, 6]).type) == "2xbatchxseqx6xf32"


KEYS: list[Any] = [
    1, -1, slice(1, None), slice(None, -1), slice(0, 9), slice(2, 1), slice(None, None, 2),
    (0, 1, 2), (slice(None), -1), (..., 0), (0, ...), (Ellipsis, slice(1, 4, 2)), None,
    (None, 0, None, slice(1, 3)), (slice(None), None), np.int64(1), (..., None), (),
    np.array([0, 1, 1]), (slice(None), [2, 0]), (0, [[0, 2], [1, -1]]), (slice(None), [0], 1),
    (..., np.array([3, 0], np.uint8)), (None, [0, 1]), [],
    ([0, 1], [2, -1]), ([[0], [1]], [0, 2]), (slice(None), [0, 2], [1, -4]), ([1, 0], 2, [3, 0]),
    (..., [[0, 1]], np.array([[3], [2]], np.int8)), ([0], [1], [2]), (None, [1], [0], slice(1, 3)),
    slice(None, None, -1), (slice(None, None, -1), slice(1, None), slice(None, None, -2)),
    (..., slice(-2, 0, -2)), (..., slice(9, None, -3)), (..., slice(1, 3, -1)),
    (slice(None, None, -1), [2, 0]), (None, slice(0, None, -1), 1),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_indexing_is_numpys(key: Any) -> None:
    want = X[key if key != [] else np.zeros(0, int)] if isinstance(key, list) else X[key]
    got = call(lambda x: x[key], X)
    assert got.shape == want.shape
    assert (got == want).all()


def test_a_symbolic_axis_is_reversed_whole(symbolic: Value) -> None:
    assert symbolic[:, ::-1].type == symbolic.type
    assert symbolic[:-1, 1::-1].shape[1] == 2


@pytest.mark.parametrize(
    ("key", "error", "match"),
    [
        (2, ShapeError, "index 2 is out of range for axis 0"),
        ((0, 0, 0, 0), ShapeError, "4 indices for a tensor of rank 3"),
        (slice(None, None, 0), ShapeError, "axis 0: the step of a slice must not be 0"),
        ((..., 0, ...), GraphError, "one Ellipsis"),
        (np.ones((2, 3, 4), bool), GraphError, "where"),
        (True, GraphError, "where"),
        ("a", GraphError, "found 'a'"),
        (1.5, GraphError, "found 1.5"),
        (np.array([0.0]), DTypeError, "cast them to i64"),
        (([0], slice(None), [1]), GraphError, "two steps"),
        (([0, 1], [0, 1, 2]), ShapeError, "do not broadcast"),
        (([0], [1.5]), DTypeError, "index takes integer indices"),
        ((0, slice(None), [1]), GraphError, "two steps"),
        (slice(0.5, 2), GraphError, "bounds of a slice"),
    ],
    ids=repr,
)
def test_indexing_refuses(key: Any, error: type[GraphError], match: str) -> None:
    with pytest.raises(error, match=match) as e:
        call(lambda x: x[key], X)
    assert e.value.location is not None
    assert e.value.location[0] == __file__


def test_indexing_of_symbolic_dims(symbolic: Value) -> None:
    assert str(symbolic[:, 0].type) == "batchx6xf32"
    assert str(symbolic[:, -1].type) == "batchx6xf32"
    assert symbolic[:, 1:].shape[1] + 1 == symbolic.shape[1]
    assert symbolic[:, 2:5].shape[1] == 3
    assert symbolic[:, -3:].shape[1] == 3
    assert str(symbolic[:, 1::2].shape[1]) == "seq//2"


def test_a_symbolic_slice_is_checked_when_it_is_bound() -> None:
    g = Graph()
    x = g.input("x", ["seq"])
    g.set_outputs([x[2:5], x[-1]])
    assert g.bind({"seq": 5}).outputs[0].shape == (3,)
    with pytest.raises(ShapeError, match="up to index 4"):
        g.bind({"seq": 4})


def test_pad_forms() -> None:
    got = call(lambda x: x.pad((1, 0), (0, 2), 7), np.ones((2, 2), np.int8))
    assert got.tolist() == [[7, 7, 7, 7], [1, 1, 7, 7], [1, 1, 7, 7]]
    got = call(lambda x: x.pad(1, 0, interior=1), np.array([1.0, 2.0]))
    assert got.tolist() == [0, 1, 0, 2]
    got = call(lambda x: x.pad([1], [1], True), np.zeros(1, bool))
    assert got.tolist() == [True, False, True]
    exact = 2**63 - 1  # no float holds it
    assert call(lambda x: x.pad(1, 0, exact), np.zeros(1, np.int64)).tolist() == [exact, 0]


def test_pad_refuses() -> None:
    with pytest.raises(ShapeError, match="negative padding"):
        call(lambda x: x.pad(-2, 0), np.ones(3))
    with pytest.raises(DTypeError, match="does not fit"):
        call(lambda x: x.pad(1, 0, 0.5), np.ones(3, np.int32))


def test_pad_by_symbolic_dims(symbolic: Value) -> None:
    padded = symbolic.pad([0, 0, 0], [0, "extra", 0])
    assert {"seq", "extra"} == set(padded.shape[1].symbols)  # type: ignore[union-attr]
