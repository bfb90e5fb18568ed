"""Ops by index against NumPy: along an axis, by coordinates, boxes, in order, by pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx.errors import DTypeError, FaultError, GraphError, RlxError, ShapeError
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from support import ad
from support.evaluate import call
from support.tolerances import EXACT, assert_close

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(7)
X = RNG.standard_normal((3, 4, 5))
NAN, INF = np.nan, np.inf


def compiled(f: Callable[..., Any], *arrays: Any) -> Any:
    """``f`` on Values that stand for the arrays, compiled for the CPU."""
    g = Graph("call")
    given = {f"x{n}": np.asarray(a) for n, a in enumerate(arrays)}
    out = f(*(g.input(n, a.shape, a.dtype) for n, a in given.items()))
    many = isinstance(out, list | tuple)
    g.set_outputs(list(out) if many else [out])
    found = rlx.Session("cpu").compile(g).run(given)
    return list(found) if many else found[0]


def both(f: Callable[..., Any], *arrays: Any) -> Any:
    """The result of the interpreter, which the compiled one equals bit for bit."""
    expected, found = call(f, *arrays), compiled(f, *arrays)
    pairs = zip(expected, found, strict=True) if isinstance(expected, list) else [(expected, found)]
    for a, b in pairs:
        assert_close(b, a, EXACT)
    return expected


# -- along an axis -------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_take_along_axis(axis: int) -> None:
    n = X.shape[axis]
    shape = list(X.shape)
    shape[axis] = 6
    index = RNG.integers(-n, n, shape)
    got = both(lambda x, i: x.take_along_axis(i, axis), X, index)
    np.testing.assert_array_equal(got, np.take_along_axis(X, index, axis))


def test_take_along_axis_broadcasts() -> None:
    index = RNG.integers(0, 4, (1, 2, 5))
    got = both(lambda x, i: x.take_along_axis(i, 1), X, index)
    np.testing.assert_array_equal(got, np.take_along_axis(X, index, 1))
    wide = RNG.integers(0, 4, (3, 2, 5))
    got = both(lambda x, i: x.take_along_axis(i, 1), X[:1], wide)
    np.testing.assert_array_equal(got, np.take_along_axis(X[:1], wide, 1))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_put_along_axis_sets_the_last(axis: int) -> None:
    """NumPy leaves open which of equal indices wins; in practice the last one."""
    shape = list(X.shape)
    shape[axis] = 6
    index = RNG.integers(0, X.shape[axis], shape)
    updates = RNG.standard_normal(shape)
    want = X.copy()
    np.put_along_axis(want, index, updates, axis)
    got = both(lambda x, i, u: x.put_along_axis(i, u, axis), X, index, updates)
    np.testing.assert_array_equal(got, want)


UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


@pytest.mark.parametrize("reduction", UFUNCS)
@pytest.mark.parametrize("dt", ["i4", "f8", "u1"])
def test_put_along_axis_reduces(reduction: str, dt: str) -> None:
    x = RNG.integers(0, 50, (3, 4)).astype(dt)
    index, updates = RNG.integers(-3, 3, (7, 4)), RNG.integers(0, 50, (7, 4)).astype(dt)
    want = x.copy()
    UFUNCS[reduction].at(want, (index, np.arange(4)[None]), updates)
    got = both(lambda x, i, u: x.put_along_axis(i, u, 0, reduction), x, index, updates)
    np.testing.assert_array_equal(got, want)


def test_extrema_propagate_nan_and_numbers_broadcast() -> None:
    x, i = np.array([NAN, 1.0, 2.0]), np.array([0, 1, 2])
    got = both(lambda x, i: x.scatter(i, [5.0, NAN, 1.0], reduction="max"), x, i)
    np.testing.assert_array_equal(got, [NAN, NAN, 2])
    got = both(lambda x, i: x.scatter(i, 7), np.zeros((4, 2)), np.array([1, 3]))
    np.testing.assert_array_equal(got, [[0, 0], [7, 7], [0, 0], [7, 7]])


def test_modes() -> None:
    x, i = np.arange(4.0), np.array([-5, -1, 0, 4, 9])
    take = {m: both(lambda x, i, m=m: x.gather(i, mode=m), x, i) for m in ("clip", "wrap", "fill")}
    for mode in ("clip", "wrap"):
        np.testing.assert_array_equal(take[mode], np.take(x, i, mode=mode))
    np.testing.assert_array_equal(take["fill"], [0, 3, 0, 0, 0])
    each = both(lambda x, i: x.gather(i, 1, "fill", 1), X[:, :, 0].copy(), np.array([1, 9, -1]))
    np.testing.assert_array_equal(each, [X[0, 1, 0], 0, X[2, 3, 0]])
    u = np.arange(1.0, 6)
    put = {m: both(lambda x, i, u, m=m: x.scatter(i, u, mode=m), x, i, u) for m in take}
    for mode in ("clip", "wrap"):
        want = x.copy()
        np.put(want, i, u, mode=mode)
        np.testing.assert_array_equal(put[mode], want)
    np.testing.assert_array_equal(put["fill"], [3, 1, 2, 2])


@pytest.mark.parametrize("dt", ["i1", "i8", "u1", "u8"])
def test_wrap_of_every_integer(dt: str) -> None:
    info = np.iinfo(dt)
    i = np.array([info.min, info.max, 3, 100], dt)
    want = [int(v) % 7 for v in i]
    assert both(lambda x, i: x.gather(i, mode="wrap"), np.arange(7), i).tolist() == want
    assert both(lambda i: i.position(7, "wrap"), i).tolist() == want


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda x, i: x.take_along_axis(i, 1), "gather: index out of range for axis 2 of 4"),
        (lambda x, i: x.put_along_axis(i, 0.0, 1), "scatter: index out of range for axis 2 of 4"),
        (lambda x, i: x.scatter(i[0, :, 0], 0.0, 1), "scatter: index out of range for axis 1 of 4"),
        (lambda x, i: x.gather_nd(i[0]), "gather_nd: index out of range for axis 0 of 3"),
        (lambda x, i: x[:, i[0, 0], i[0]], "index: index out of range for axis 1 of 4"),
        (lambda x, i: x.scatter_nd(i[0], 0.0), "scatter_nd: index out of range for axis 0 of 3"),
    ],
)
def test_an_index_out_of_range_is_a_fault(f: Any, what: str) -> None:
    index = np.full((3, 1, 1), 4)
    for run in (call, compiled):
        with pytest.raises(FaultError, match=what) as e:
            run(f, X, index)
        assert e.value.location is not None
        assert e.value.location[0] == __file__


@settings(max_examples=25)
@given(st.data())
def test_scatter_is_a_loop(data: st.DataObject) -> None:
    """Any axis and batch dims, against the definition."""
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4), "shape")
    axis = data.draw(st.integers(0, len(shape) - 1), "axis")
    lead = data.draw(st.integers(0, axis), "batch_dims")
    middle = data.draw(st.lists(st.integers(0, 5), max_size=2), "indices")
    reduction = data.draw(st.sampled_from(["set", *UFUNCS]), "reduction")
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    x = rng.integers(-9, 9, shape)
    index = rng.integers(-shape[axis], shape[axis], [*shape[:lead], *middle])
    updates = rng.integers(-9, 9, [*shape[:axis], *middle, *shape[axis + 1 :]])
    want = x.copy()
    for at in np.ndindex(*shape[:axis]):
        for which in np.ndindex(*middle):
            i, u = index[at[:lead] + which], updates[at + which]
            want[(*at, i)] = u if reduction == "set" else UFUNCS[reduction](want[(*at, i)], u)
    how = (axis, reduction, "fault", lead)
    got = compiled(lambda x, i, u: x.scatter(i, u, *how), x, index, updates)
    np.testing.assert_array_equal(got, want)


# -- coordinates ---------------------------------------------------------------------------


def test_gather_nd() -> None:
    index = np.stack([RNG.integers(-3, 3, (2, 6)), RNG.integers(-4, 4, (2, 6))], -1)
    got = both(lambda x, i: x.gather_nd(i), X, index)
    np.testing.assert_array_equal(got, X[index[..., 0], index[..., 1]])
    rows = RNG.integers(0, 4, (3, 2, 1))
    got = both(lambda x, i: x.gather_nd(i, batch_dims=1), X, rows)
    np.testing.assert_array_equal(got, np.stack([X[b][rows[b, :, 0]] for b in range(3)]))
    whole = both(lambda x, i: x.gather_nd(i), X, np.zeros((2, 0), np.int32))
    np.testing.assert_array_equal(whole, np.stack([X, X]))


def test_gather_nd_fills_for_any_coordinate_out_of_range() -> None:
    index = np.array([[0, 4], [3, 0], [-1, -4], [-4, 1]])
    got = both(lambda x, i: x.gather_nd(i, mode="fill"), X, index)
    np.testing.assert_array_equal(got, [np.zeros(5), np.zeros(5), X[2, 0], np.zeros(5)])


@pytest.mark.parametrize("reduction", ["set", "add", "max"])
def test_scatter_nd(reduction: str) -> None:
    index = np.stack([RNG.integers(0, 3, 9), RNG.integers(-4, 0, 9)], -1)
    updates, want = RNG.standard_normal((9, 5)), X.copy()
    for (a, b), u in zip(index, updates, strict=True):
        want[a, b] = u if reduction == "set" else UFUNCS[reduction](want[a, b], u)
    got = both(lambda x, i, u: x.scatter_nd(i, u, reduction), X, index, updates)
    np.testing.assert_array_equal(got, want)


def test_scatter_nd_with_batch_dims() -> None:
    index, want = RNG.integers(0, 5, (3, 4, 2, 1)), X.copy()
    for a, b in np.ndindex(3, 4):
        want[a, b, index[a, b, :, 0]] = 9
    got = both(lambda x, i: x.scatter_nd(i, 9.0, batch_dims=2), X, index)
    np.testing.assert_array_equal(got, want)


# -- boxes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("starts", [(0, 0, 0), (1, 2, 3), (-1, -3, -9), (2, 9, 100)])
@pytest.mark.parametrize("dt", ["i1", "i8", "u8"])
def test_boxes_are_moved_into_the_tensor(starts: tuple[int, ...], dt: str) -> None:
    if dt == "u8" and min(starts) < 0:
        starts = (2**64 - 1, 2**63, 1)
    at = np.array(starts, dt)
    dims = zip((int(s) for s in at), X.shape, (2, 3, 2), strict=True)
    box = tuple(
        slice(b, b + n)
        for b, n in ((min(max(s + d if s < 0 else s, 0), d - n), n) for s, d, n in dims)
    )
    got = both(lambda x, s: x.dynamic_slice(s, (2, 3, 2)), X, at)
    np.testing.assert_array_equal(got, X[box])
    update, want = RNG.standard_normal((2, 3, 2)), X.copy()
    want[box] = update
    got = both(lambda x, u, s: x.dynamic_update_slice(u, s), X, update, at)
    np.testing.assert_array_equal(got, want)


def test_starts_are_scalars_and_numbers() -> None:
    def f(x: Value, a: Value, b: Value) -> Value:
        return x.dynamic_slice([a, 1, b], (2, 2, 2))

    got = both(f, X, np.int32(1), np.uint64(2**64 - 1))
    np.testing.assert_array_equal(got, X[1:3, 1:3, 3:5])
    got = both(lambda x: x.dynamic_slice([0, -1, 0], (1, 1, 5)), X)
    np.testing.assert_array_equal(got, X[:1, 3:])


# -- order ---------------------------------------------------------------------------------


LINES = np.array(
    [
        [1.0, 3.0, 2.0, 3.0, -1.0, 2.0, 3.0],
        [NAN, 1.0, NAN, INF, -INF, 1.0, INF],
        [0.0, -0.0, 0.0, -0.0, 0.0, -0.0, 0.0],
    ]
)


@pytest.mark.parametrize("dt", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_sort_is_stable_with_nan_last(dt: Any) -> None:
    x = LINES.astype(dt)
    values, order = both(lambda v: [v.sort(), v.argsort(dtype="i32")], x)
    want = np.argsort(LINES, kind="stable")
    assert order.dtype == np.int32
    np.testing.assert_array_equal(order, want)
    np.testing.assert_array_equal(values.astype(float), np.take_along_axis(LINES, want, 1))
    down = both(lambda v: v.argsort(descending=True), x)
    first = np.argsort(-LINES, kind="stable")
    assert down[0].tolist() == first[0].tolist()
    assert down[1].tolist() == [0, 2, 3, 6, 1, 5, 4]  # nan first
    assert down[2].tolist() == list(range(7))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 8, 9, 16, 17, 100, 1000, 4097])
def test_sort_of_every_length(n: int) -> None:
    x = RNG.integers(0, max(n // 2, 1), (2, n)).astype(np.int32)
    got = compiled(lambda v: v.argsort(0), x.T.copy())
    np.testing.assert_array_equal(got, np.argsort(x.T, 0, kind="stable"))
    if n:
        down, order = compiled(lambda v: v.topk(n - n // 4, largest=False), x)
        want = np.argsort(x, kind="stable")[:, : n - n // 4]
        np.testing.assert_array_equal(order, want)
        np.testing.assert_array_equal(down, np.take_along_axis(x, want, 1))


def test_sort_refuses() -> None:
    with pytest.raises(DTypeError, match="argsort gives integers, found dtype f32"):
        call(lambda x: x.argsort(dtype="f32"), X)
    with pytest.raises(ShapeError, match="axis 3"):
        call(lambda x: x.sort(3), X)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_argmax_and_argmin(axis: int | None, keepdims: bool) -> None:
    for x in (LINES, X, RNG.integers(0, 3, (4, 9)), RNG.integers(0, 2, (4, 9)) > 0):
        lo, hi = both(lambda v: [v.argmin(axis, keepdims), v.argmax(axis, keepdims)], x)
        np.testing.assert_array_equal(lo, np.argmin(x, axis, keepdims=keepdims))
        np.testing.assert_array_equal(hi, np.argmax(x, axis, keepdims=keepdims))


def test_the_last_index() -> None:
    last = both(lambda v: v.argmax(1, select_last_index=True), LINES)
    assert last.tolist() == [6, 2, 6]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dt", ["f4", "i8", "u1"])
def test_searchsorted(side: str, dt: str) -> None:
    for n in (0, 1, 2, 5, 33):
        line = np.sort(RNG.integers(0, 20, n).astype(dt))
        values = RNG.integers(0, 22, (3, 7)).astype(dt)
        if dt == "f4":
            values[0, :3] = NAN, INF, -INF
            line[n - n // 4 :] = NAN
        got = both(lambda a, v: a.searchsorted(v, side), line, values)
        np.testing.assert_array_equal(got, np.searchsorted(line, values, side))


def test_searchsorted_of_batches() -> None:
    lines, values = np.sort(X, -1), RNG.standard_normal((3, 4, 2))
    got = both(lambda a, v: a.searchsorted(v), lines, values)
    for at in np.ndindex(3, 4):
        np.testing.assert_array_equal(got[at], np.searchsorted(lines[at], values[at]))


# -- counts --------------------------------------------------------------------------------


def test_bincount() -> None:
    x, w = np.array([0, 2, 2, 7, -3, 4]), np.arange(6.0)
    got = both(lambda x, w: [x.bincount(5), x.bincount(5, w)], x, w)
    assert got[0].tolist() == [2, 0, 2, 0, 1]
    assert got[1].tolist() == [4, 0, 3, 0, 5]
    with pytest.raises(DTypeError, match="vector of integers"):
        call(lambda x: x.bincount(5), w)
    with pytest.raises(ShapeError, match="differ in shape"):
        call(lambda x, w: x.bincount(5, w), x, w[:2])


def test_histogram() -> None:
    edges = np.array([-1.0, -0.5, 0.5, 1.0])
    x = np.concatenate([X.ravel(), edges, [NAN, INF, -INF]]).reshape(-1, 1)
    got = both(lambda x: x.histogram(edges), x)
    np.testing.assert_array_equal(got, np.histogram(x[np.isfinite(x)], edges)[0])
    weights = RNG.integers(0, 9, x.shape)
    got = both(lambda x, w: x.histogram(edges, w), x, weights)
    keep = np.isfinite(x)
    np.testing.assert_array_equal(got, np.histogram(x[keep], edges, weights=weights[keep])[0])
    for bad in ([1.0], [[0.0, 1.0]]):
        with pytest.raises(ShapeError, match="vector of two or more"):
            call(lambda x, bad=bad: x.histogram(np.array(bad)), x)
    with pytest.raises(ShapeError, match="differ in shape"):
        call(lambda x, w: x.histogram(edges, w), x, weights[:2])


def test_nonzero() -> None:
    x = RNG.integers(0, 2, (4, 3, 5))
    want = np.nonzero(x)
    count = len(want[0])
    for size in (0, 3, count, count + 4):
        got = both(lambda v, size=size: v.nonzero(size, fill_value=-1), x)
        for a, b in zip(got, want, strict=True):
            assert a.tolist() == [*b[:size], *[-1] * (size - count)]
    assert [a.tolist() for a in both(lambda v: v.nonzero(2), np.array([[NAN, 0], [0, 1]]))] == [
        [0, 1],
        [0, 1],
    ]
    with pytest.raises(ShapeError, match="found a scalar"):
        call(lambda v: v.nonzero(2), np.float32(1))


# -- patterns ------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [-6, -2, -1, 0, 1, 2, 6])
def test_patterns(k: int) -> None:
    m = X[0]
    for x in (m, m.T.copy(), np.where(m > 1, NAN, m), m > 0):
        got = both(lambda v: [v.tril(k), v.triu(k), v.diag(k), v[0].diag(k), v.diagonal(k)], x)
        want = np.tril(x, k), np.triu(x, k), np.diag(x, k), np.diag(x[0], k), np.diagonal(x, k)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(both(lambda v: v.trace(k), m), np.trace(m, k))
    g = Graph()
    g.set_outputs([g.tri(3, 5, k), g.eye(4, 3, k, dtype="i8"), g.tri(3), g.eye(2)])
    tri, eye, plain, unit = rlx.interpret(g, {})
    np.testing.assert_array_equal(tri, np.tri(3, 5, k))
    np.testing.assert_array_equal(eye, np.eye(4, 3, k))
    np.testing.assert_array_equal(plain, np.tri(3))
    np.testing.assert_array_equal(unit, np.eye(2))
    assert (tri.dtype, eye.dtype) == (np.float32, np.int8)


def test_diagonals_of_any_axes() -> None:
    for a, b in ((0, 1), (1, 0), (2, 0), (-1, -2)):
        got = both(lambda v, a=a, b=b: v.diagonal(1, a, b), X)
        np.testing.assert_array_equal(got, np.diagonal(X, 1, a, b))


def test_one_hot() -> None:
    x = np.array([[0, 2], [-1, 3]], np.int8)
    got = both(lambda v: v.one_hot(3), x)
    want = np.zeros((2, 2, 3), np.float32)
    want[0, 0, 0] = want[0, 1, 2] = 1
    np.testing.assert_array_equal(got, want)
    got = both(lambda v: v.one_hot(3, axis=0, dtype="bool"), x)
    np.testing.assert_array_equal(got, np.moveaxis(want, -1, 0) > 0)


REFUSED: list[tuple[Callable[[Value], Any], type[RlxError], str]] = [
    (lambda x: x.take_along_axis(np.zeros((2, 2), int)), ShapeError, "need one rank"),
    (lambda x: x.gather_nd(np.zeros((2, 4), int)), ShapeError, "4 coordinates"),
    (lambda x: x.gather_nd(np.int64(1)), ShapeError, "last axis of the indices"),
    (lambda x: x.scatter_nd(np.zeros((2, 1), int), 0.0, batch_dims=2), ShapeError, "batch dims"),
    (lambda x: x.gather_nd(np.zeros((2, 1), int), "drop"), GraphError, '"fill"'),
    (lambda x: x.dynamic_slice([0, 0, x], (1, 1, 1)), GraphError, "a start is an integer scalar"),
    (lambda x: x.one_hot(3), DTypeError, "takes integers"),
    (lambda x: x[0, 0].tril(), ShapeError, "rank of 2"),
    (lambda x: x.triu().diag(), ShapeError, "vector or a matrix"),
    (lambda x: x.diagonal(0, 1, 1), ShapeError, "twice"),
]


@pytest.mark.parametrize(("f", "error", "match"), REFUSED, ids=[r[2] for r in REFUSED])
def test_it_refuses(f: Any, error: type[RlxError], match: str) -> None:
    with pytest.raises(error, match=match):
        call(f, X)


def test_symbolic_dims() -> None:
    g = Graph()
    x = g.input("x", ["batch", "seq", 4])
    i = g.input("i", ["batch", "seq", 1], "i64")
    assert str(x.take_along_axis(i).type) == "batchxseqx1xf32"
    assert str(x.sort(1).type) == "batchxseqx4xf32"
    assert str(x.tril().type) == "batchxseqx4xf32"
    assert str(i[..., 0].one_hot("vocab").type) == "batchxseqxvocabxf32"
    assert str(x.gather_nd(i, batch_dims=1).type) == "batchxseqx4xf32"
    assert str(x.gather_nd(np.zeros((3, 2), int)).type) == "3x4xf32"
    assert str(x.diagonal().type) == "4xmin(batch,seq)xf32"


# -- derivatives that samples do not reach ---------------------------------------------------


def test_gradients_of_a_product_hold_at_zeros() -> None:
    """Of cumprod and of scatter's products, and the gradients' own derivatives."""

    def line(v: Value) -> Value:
        return v.cumprod(0).sum()

    def scattered(v: Value) -> Value:
        ones = v.narrow(0, 0, 1) * 0 + 1
        return ones.scatter(np.zeros(4, int), v, reduction="mul").sum()

    x = np.array([2.0, 0.0, 3.0, 0.0])
    for f in (line, scattered):
        first = call(lambda v, f=f: ad.grad(f(v), [v])[0], x)
        eps, unit = 1e-3, np.eye(4)
        at = lambda y, f=f: call(f, y)
        want = [(at(x + eps * e) - at(x - eps * e)) / (2 * eps) for e in unit]
        np.testing.assert_allclose(first, want, atol=1e-5)
        second = call(lambda v, f=f: ad.grad(ad.grad(f(v), [v])[0][1], [v])[0], x)
        one = lambda y, f=f: call(lambda v: ad.grad(f(v), [v])[0], y)[1]
        want = [(one(x + eps * e) - one(x - eps * e)) / (2 * eps) for e in unit]
        np.testing.assert_allclose(second, want, atol=1e-5)


def test_the_last_set_has_the_gradient() -> None:
    def f(x: Value, u: Value) -> Value:
        return (x.scatter(np.array([1, 0, 1, 9]), u, mode="fill") * np.array([1.0, 2, 3])).sum()

    gx, gu = call(lambda x, u: ad.grad(f(x, u), [x, u]), np.zeros(3), np.zeros(4))
    assert gx.tolist() == [0, 0, 3]
    assert gu.tolist() == [0, 1, 2, 0]


def test_ties_share() -> None:
    def f(x: Value, u: Value) -> Value:
        return x.scatter(np.array([0, 0, 1]), u, reduction="max").sum()

    x, u = np.array([2.0, 5.0, 1.0]), np.array([2.0, 1.0, 4.0])
    gx, gu = call(lambda x, u: ad.grad(f(x, u), [x, u]), x, u)
    assert gx.tolist() == [0.5, 1, 1]
    assert gu.tolist() == [0.5, 0, 0]
    assert call(lambda v: ad.grad(v.cummax(0).sum(), [v])[0], x).tolist() == [1, 2, 0]
    assert call(lambda v: ad.grad(v.cummin(0, True).sum(), [v])[0], x).tolist() == [0, 0, 3]
    assert call(lambda v: ad.grad(v.cummin(0, True).sum(), [v])[0], x[:0]).shape == (0,)


# -- running folds -------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
def test_running_folds(reverse: bool) -> None:
    turn = (lambda a: np.flip(a, 1)) if reverse else (lambda a: a)
    x = turn(LINES)
    for name, ufunc in (("cummax", np.maximum), ("cummin", np.minimum)):
        got = both(lambda v, name=name: getattr(v, name)(1, reverse=reverse), LINES)
        np.testing.assert_array_equal(got, turn(ufunc.accumulate(x, 1)))
    big = np.array([[-INF, -INF, 800.0, 801.0, -900.0], [3.0, INF, 1.0, NAN, 2.0]])
    with np.errstate(invalid="ignore"):
        want = turn(np.logaddexp.accumulate(turn(big), 1))
    for run in (call, compiled):
        got = run(lambda v: v.logcumsumexp(1, reverse), big)
        np.testing.assert_allclose(got, want, rtol=1e-14)
    exclusive = call(lambda v: v.cumprod(1, True, reverse), X)
    whole = np.cumprod(np.flip(X, 1) if reverse else X, 1)
    whole = np.concatenate([np.ones((3, 1, 5)), whole[:, :-1]], 1)
    np.testing.assert_allclose(exclusive, np.flip(whole, 1) if reverse else whole)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_derivative_of_logcumsumexp_after_what_is_very_small(reverse: bool) -> None:
    turn = (lambda a: np.flip(a, 1)) if reverse else np.asarray
    for first in (-1e4, -INF):
        x = turn([[first, 0.0, np.log(3.0)], [0.0, first, np.log(3.0)]])
        g = Graph()
        g.set_outputs(g.input("x", x.shape, "f64").logcumsumexp(1, reverse))
        along = rlx.jvp(g, ["x"]), [[1, 1, 1], [1, 1, 1]]
        against = rlx.vjp(g, ["x"]), [[1, 1.25, 0.75], [2.25, 0, 0.75]]
        for made, want in (along, against):
            feeds = {str(v.name): np.ones(x.shape) for v in made.inputs} | {"x": x}
            for found in (rlx.interpret(made, feeds), rlx.Session("cpu").compile(made).run(feeds)):
                np.testing.assert_allclose(found[-1], turn(want), rtol=1e-14)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_derivative_of_cumprod_after_an_infinity(reverse: bool) -> None:
    """JAX gives the same; inf meets no 0 here."""
    turn = np.flip if reverse else np.asarray
    g = Graph()
    g.set_outputs(g.input("x", (3,), "f64").cumprod(0, False, reverse))
    x, t = turn([INF, 2.0, -3.0]), turn([1.0, 2.0, -0.5])
    for made, want in ((rlx.jvp(g, ["x"]), [1, INF, -INF]), (rlx.vjp(g, ["x"]), [8, INF, -INF])):
        feeds = {str(v.name): t for v in made.inputs} | {"x": x}
        for found in (rlx.interpret(made, feeds), rlx.Session("cpu").compile(made).run(feeds)):
            np.testing.assert_array_equal(found[-1], turn(want))


def test_linear_recurrence() -> None:
    a, x = RNG.standard_normal((2, 6)), RNG.standard_normal((2, 6))
    got, y = call(lambda a, x: a.linear_recurrence(x, 1), a, x), np.zeros(2)
    for i in range(6):
        y = a[:, i] * y + x[:, i]
        np.testing.assert_allclose(got[:, i], y)
