"""Rows of ATen ops against NumPy, without PyTorch: what a row makes of given arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import scipy.stats

import rlx
from rlx.errors import DTypeError, FaultError, ShapeError, UnsupportedError
from rlx.frontends.torch.memory import Memory
from rlx.frontends.torch.node import Keys, Node
from rlx.frontends.torch.rows import FAMILIES, ROWS
from rlx.ops.indexing.along import Position
from rlx.types import TensorType, dtype

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(np.float32)
Y = RNG.standard_normal((3, 4)).astype(np.float32)
AT = np.array([[2, 0, 1, 2]])
GAMMA = np.array([
    [0.01, 0.5, 3, 40, 900, 900, 15.7, 0.2, 0, 0, 1, np.inf, 1, -1, 1, np.nan],
    [0.5, 4, 1.5, 90, 850, 1000, 3, 0.1, 0, 1, 0, 1, np.inf, 1, -1, 1],
])  # fmt: skip
WHOLE = np.array([[12, -18, 0, 7, 35], [18, 12, 5, 0, -14]])

_LOW = np.tril(X[:, :3]) + 3 * np.eye(3, dtype=np.float32)
SPD = (_LOW @ _LOW.T, _LOW)

Case = tuple[str, tuple[Any, ...], Callable[..., Any]]

CASES: list[Case] = [
    ("add.Tensor", (X, Y, 2), lambda x, y, a: x + a * y),
    ("add.Tensor", (X > 0, Y > 0), lambda x, y: x | y),
    ("rsub.Scalar", (X, 2.0), lambda x, s: s - x),
    ("div.Tensor_mode", (X, Y, "floor"), lambda x, y, _: np.floor(x / y)),
    ("div.Tensor_mode", (X, Y, "trunc"), lambda x, y, _: np.trunc(x / y)),
    ("pow.Tensor_Scalar", (AT, 3), lambda x, p: x**p),
    ("clamp", (X, -0.5, None), lambda x, low, _: np.maximum(x, low)),
    ("softplus", (X * 20, 1, 5), lambda x, b, t: np.where(x > t, x, np.log1p(np.exp(x)))),
    ("fmax", (np.array([np.nan, 1], np.float32), np.array([2, np.nan], np.float32)), np.fmax),
    ("sum.dim_IntList", (X, [-1], True), lambda x, d, k: x.sum(-1, keepdims=True)),
    ("var.correction", (X, [0], 2), lambda x, d, c: x.var(0, ddof=2)),
    ("argmax", (X,), lambda x: np.asarray(x.argmax())),
    ("cumsum", (X, -1), lambda x, d: x.cumsum(-1)),
    ("repeat", (X, [2, 1, 3]), np.tile),
    ("slice.Tensor", (X, 1, -3, 1 << 62, 2), lambda x, *_: x[:, -3::2]),
    ("select.int", (X, 0, -1), lambda x, *_: x[-1]),
    ("tril", (X, -1), lambda x, k: np.tril(x, -1)),
    ("unfold", (X, 1, 2, 2), lambda x, *_: np.stack([x[:, :2], x[:, 2:]], 1)),
    ("constant_pad_nd", (X, [1, -2], 7.0), lambda x, *_: np.pad(
        x[:, :2], [(0, 0), (1, 0)], constant_values=7)),
    ("gather", (X, 0, AT), lambda x, d, i: np.take_along_axis(x, i, 0)),
    ("index.Tensor", (X, [AT[0, :3], AT[0, 1:]]), lambda x, i: x[i[0], i[1]]),
    ("index.Tensor", (X, [None, AT]), lambda x, i: x[:, i[1]]),
    ("repeat_interleave.Tensor", (AT[0], 5), lambda r, _: np.repeat(np.arange(4), r)),
    ("index_select", (X, 1, AT[0]), lambda x, d, i: x[:, i]),
    ("slice_scatter", (X, Y[:, :2], 1, 1, 3), lambda x, y, *_: np.hstack([x[:, :1], y, x[:, 3:]])),
    ("select_scatter", (X, Y[0], 0, -1), lambda x, y, *_: np.vstack([x[:-1], y[None]])),
    ("linear", (X, Y), lambda x, w: x @ w.T),
    ("addmm", (X[:, :3], X, Y.T, 0.5, 2), lambda b, x, y, beta, a: beta * b + a * (x @ y)),
    ("native_layer_norm", (X, [4], None, None, 1e-5), lambda x, *_: (
        x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)),
    ("_safe_softmax", (np.full((1, 3), -np.inf, np.float32), -1), lambda x, d: np.zeros_like(x)),
    ("signbit", (np.array([-0.0, 0.0, -2.0, 3.0], np.float32),), np.signbit),
    ("angle", (X,), np.angle),
    ("hypot", (X * 1e30, Y), np.hypot),
    ("heaviside", (np.array([-1, 0, 2], np.float32), X[0, :3]), np.heaviside),
    ("polygamma", (0, np.abs(X) + 1), lambda n, x: scipy.special.digamma(x)),
    ("polygamma", (2, np.abs(X) + 1), scipy.special.polygamma),
    ("i0", (X * 3,), scipy.special.i0),
    ("special_i1", (X * 3,), scipy.special.i1),
    ("special_ndtri", (np.abs(X) / 4,), scipy.special.ndtri),
    ("dist", (X, Y, 3), lambda x, y, p: np.sum(np.abs(x - y) ** p) ** (1 / p)),
    ("median.dim", (np.array([[3, 1, np.nan, 2], [3, 1, 4, 2]], np.float32), 1), lambda x, _: (
        np.array([np.nan, 2], np.float32))),
    ("median", (np.array([[3, 1], [4, 2]]),), lambda x: np.array(2)),
    ("trace", (X[:, :3],), np.trace),
    ("linalg_matrix_exp", (X[:, :3],), scipy.linalg.expm),
    ("igamma", (GAMMA[0], GAMMA[1]), scipy.special.gammainc),
    ("igammac", (GAMMA[0], GAMMA[1]), scipy.special.gammaincc),
    ("gcd", (WHOLE[0], WHOLE[1]), np.gcd),
    ("lcm", (WHOLE[0], WHOLE[1]), np.lcm),
    ("tril_indices", (3, 4, -1), lambda r, c, k: np.stack(np.tril_indices(r, k, c))),
    ("_cdist_forward", (X, Y, 1.0, None), lambda x, y, *_: np.abs(x[:, None] - y).sum(-1)),
    ("_pdist_forward", (X, 2.0), lambda x, _: np.linalg.norm(x[[0, 0, 1]] - x[[1, 2, 2]], axis=1)),
    ("cholesky_solve", (X, SPD[1]), lambda b, _: np.linalg.solve(SPD[0], b)),
    ("cholesky_inverse", (SPD[1].T, True), lambda *_: np.linalg.inv(SPD[0])),
    ("triangular_solve", (X, SPD[1], False, True), lambda b, a, *_: (
        np.linalg.solve(a.T, b))),
    ("linalg_pinv.atol_rtol_tensor", (X,), np.linalg.pinv),
    ("index_reduce", (X, 1, AT[0, :2], Y[:, :2], "amax"), lambda x, d, i, y, _: np.stack(
        [np.maximum(x[:, 0], y[:, 1]), x[:, 1], np.maximum(x[:, 2], y[:, 0]), x[:, 3]], 1)),
    ("scatter_reduce.two", (X, 0, np.zeros((3, 4), np.int64), Y, "mean"), lambda x, d, i, y, _: (
        np.vstack([(x[0] + y.sum(0)) / 4, x[1:]]))),
    ("view.dtype", (X, "i32"), lambda x, _: x.view(np.int32)),
    ("fractional_max_pool2d", (X[None, None], [2, 2], [2, 2], np.full((1, 1, 2), 0.7, np.float32)),
        lambda x, *_: np.stack([[x[..., i : i + 2, j : j + 2].max() for j in (0, 2)]
                                for i in (0, 1)])[None, None]),
    ("adaptive_avg_pool1d", (X, [3]), lambda x, s: np.stack(
        [x[:, :2].mean(1), x[:, 1:3].mean(1), x[:, 2:].mean(1)], 1)),
]  # fmt: skip


def given(a: Any, g: rlx.Graph, feeds: dict[str, Any]) -> Any:
    """An argument whose arrays are inputs of a graph, and in ``feeds`` by their names."""
    if isinstance(a, list):
        return [given(v, g, feeds) for v in a]
    if not isinstance(a, np.ndarray):
        return a
    feeds[f"x{len(feeds)}"] = a
    return g.input(f"x{len(feeds) - 1}", a.shape, dtype(a.dtype))


@pytest.mark.parametrize(
    ("name", "args", "theirs"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)]
)
def test_a_row_is_what_numpy_says(
    name: str, args: tuple[Any, ...], theirs: Callable[..., Any]
) -> None:
    expected = np.asarray(theirs(*args))
    g = rlx.Graph()
    feeds: dict[str, Any] = {}
    row = ROWS.get(name) or ROWS[name.split(".", maxsplit=1)[0]]
    n = Node(name, [TensorType(expected.shape, dtype(expected.dtype))], lambda: dtype("f32"))
    found = row(n, *[given(a, g, feeds) for a in args])
    g.set_outputs([found[0] if isinstance(found, tuple) else found])
    np.testing.assert_allclose(rlx.interpret(g, feeds)[0], expected, rtol=1e-5, atol=1e-6)


def _mask(*places: int) -> Any:
    return np.isin(np.arange(4), places)


def _put(x: Any, mask: Any, rows: Any) -> Any:
    out = x.copy()
    out[mask] = rows
    return out


LINES, CUT = Y.T, np.sort(X, axis=None)
COUNTED: list[tuple[str, Callable[[Any], Any], Callable[..., Any], list[Any], list[Any], str]] = [
    ("index_put", lambda m: (LINES, [m], LINES[:2]), lambda x, m, rows: _put(x, m[0], rows),
     [_mask(0, 2), _mask(1, 3)], [_mask(), _mask(3), _mask(0, 1, 2), _mask(0, 1, 2, 3)],
     "2 rows where a mask is true in more or fewer places"),
    ("index_put", lambda m: (LINES, [m], LINES[:1]), lambda x, m, rows: _put(x, m[0], rows),
     [_mask(), _mask(2), _mask(0, 1, 3)], [], ""),
    ("index_put", lambda m: (LINES, [m], LINES[:0]), lambda x, m, rows: _put(x, m[0], rows),
     [_mask()], [_mask(1)], "0 rows where a mask is true in more or fewer places"),
    ("index_put", lambda m: (X, [m], Y[0, :3]), lambda x, m, rows: _put(x, m[0], rows),
     [CUT[-4] < X], [CUT[-3] < X, X < 9],
     "3 rows where a mask is true in more or fewer places"),
    ("masked_scatter", lambda m: (X[:2], m, Y[:1, :2]), lambda x, m, s: _put(x, x * m != 0, s[0]),
     [_mask(1), _mask(3)], [_mask(0, 1)], "from 2 elements where a mask is true in more places"),
    ("masked_scatter", lambda m: (X[0], m, Y), lambda x, m, s: _put(x, m, s.flat[: m.sum()]),
     [_mask(), _mask(2), _mask(0, 1, 2, 3)], [], ""),
    ("masked_scatter", lambda m: (X[0], m, Y[0, :1]), lambda x, m, s: _put(x, m, s[: m.sum()]),
     [_mask(), _mask(2)], [_mask(0, 1)], "from 1 elements where a mask is true in more places"),
    ("masked_scatter", lambda m: (X[0], m, Y[0, :0]), lambda x, m, s: x,
     [_mask()], [_mask(1)], "from 0 elements where a mask is true in more places"),
    ("repeat_interleave.Tensor", lambda r: (r, 5), lambda r, _: np.repeat(np.arange(3), r),
     [np.array([2, 0, 3]), np.array([5, 0, 0])], [np.array([2, 0, 2]), np.array([0, 9, 1])],
     "output_size=5 and repeats with another sum"),
    ("repeat_interleave.Tensor", lambda r: (r, 5), lambda r, _: np.repeat(np.arange(3), r),
     [np.array([0, 0, 5])], [np.array([6, -1, 0])], "negative repeats"),
    ("one_hot", lambda i: (i, 3), lambda i, n: np.eye(n, dtype=np.int64)[i],
     [np.array([[0, 2], [1, 1]])], [np.array([[0, 3], [1, 1]]), np.array([[0, -1], [1, 1]])],
     "classes outside of 0 to 2"),
]  # fmt: skip


@pytest.mark.parametrize("row", COUNTED, ids=[f"{i}-{c[0]}" for i, c in enumerate(COUNTED)])
def test_a_count_that_is_not_as_torch_wants_it_is_a_fault(row: Any) -> None:
    name, args, theirs, right, wrong, told = row
    g = rlx.Graph()
    feeds: dict[str, Any] = {}
    expected = theirs(*args(right[0]))
    of = TensorType(expected.shape, dtype(expected.dtype))
    mine = given(list(args(right[0])), g, feeds)
    counts = next(n for n, a in feeds.items() if a is right[0])
    g.set_outputs([ROWS[name](Node(name, [of], lambda: dtype("f32")), *mine)])
    compiled = rlx.Session("cpu").compile(g)
    for each in right:
        for run in (compiled.run, lambda f: rlx.interpret(g, f)):
            found = run(feeds | {counts: each})[0]
            np.testing.assert_array_equal(found, theirs(*args(each)))
    for each in wrong:
        for run in (compiled.run, lambda f: rlx.interpret(g, f)):
            with pytest.raises(FaultError, match=rf"{told}.*found [1-9]"):
                run(feeds | {counts: each})


def test_a_count_that_is_known_is_right_or_refused() -> None:
    g = rlx.Graph()
    n = Node("repeat_interleave.Tensor", [TensorType((5,), dtype("i64"))], lambda: dtype("f32"))
    row = ROWS["repeat_interleave.Tensor"]
    g.set_outputs([row(n, g.constant(np.array([2, 0, 3])), 5)])
    np.testing.assert_array_equal(rlx.interpret(g, {})[0], [0, 0, 2, 2, 2])
    assert not any(isinstance(node, Position) for node in g.nodes())
    with pytest.raises(ShapeError, match=r"output_size=5 and repeats with another sum.*found 1"):
        row(n, g.constant(np.array([1, 0, 3])), 5)


@pytest.mark.parametrize("rank", [2, 4])
def test_pseudo_inverses_of_hermitian_matrices_read_the_lower_triangle(rank: int) -> None:
    half = RNG.standard_normal((3, 4, rank)).astype(np.float32)
    signs = np.where(np.arange(rank) % 2, -1, 1).astype(np.float32)
    whole = (half * signs) @ half.swapaxes(1, 2)
    x = np.tril(whole) + 100 * np.triu(np.ones_like(whole), 1)
    g = rlx.Graph()
    v = g.input("x", x.shape)
    atol = np.float32(1e-4)
    bound = g.constant(atol)
    n = Node("linalg_pinv", [v.type], lambda: dtype("f32"))
    row = ROWS["linalg_pinv.atol_rtol_tensor"]
    g.set_outputs(row(n, v, atol=bound, hermitian=True))
    expected = np.linalg.pinv(whole.astype(np.float64), rcond=1e-5)
    (found,) = rlx.interpret(g, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


SMALL = {
    "erfc": (scipy.special.erfc, np.linspace(-7, 26, 3000)),
    "special_ndtri": (
        scipy.special.ndtri,
        np.concatenate([10.0 ** np.linspace(-44, 0, 1000), 1 - 10.0 ** np.linspace(-7, 0, 500)]),
    ),
}


@pytest.mark.parametrize("dt", ["f32", "f64", "f16"])
@pytest.mark.parametrize("name", SMALL)
def test_digits_of_what_is_small(name: str, dt: str) -> None:
    """Relative to the result, down to the least normal number; as a kernel too."""
    theirs, line = SMALL[name]
    ends = [np.inf, -np.inf, np.nan, 0.0, 1.0, -1.0, 2.0]
    x = np.concatenate([line, ends]).astype(dtype(dt).numpy)
    with np.errstate(all="ignore"):
        expected = theirs(x.astype(np.float64))
        kept = (np.abs(expected) >= np.finfo(x.dtype).tiny) | (expected == 0) | np.isnan(expected)
    g = rlx.Graph()
    v = g.input("x", x.shape, dt)
    n = Node(name, [v.type], lambda: dtype("f32"))
    g.set_outputs(ROWS[name](n, v))
    for (a,) in (rlx.interpret(g, {"x": x}), rlx.Session("cpu").compile(g).run({"x": x})):
        bound = {"f32": 1e-6, "f64": 1e-13, "f16": 1e-3}[dt]
        np.testing.assert_allclose(a[kept].astype(np.float64), expected[kept], bound, 0)


STRIDED = [
    ((3, 4), (2, 1), 0), ((5, 3), (1, 1), 2), ((3, 2, 2), (8, 4, 2), 1), ((2, 3), (1, 8), 0),
    ((2, 5, 3), (6, 0, 1), 0), ((4,), (7,), 0), ((), (), 5), ((1, 3), (100, 2), None),
    ((0, 2), (3, 1), 0), ((2, 2), (5, 3), None),
]  # fmt: skip


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("size", "stride", "offset"), STRIDED)
def test_elements_by_strides(
    size: tuple[int, ...], stride: tuple[int, ...], offset: int | None, symbolic: bool
) -> None:
    """Of a memory in which the operand begins at the third element; and written there."""
    line = RNG.standard_normal(24).astype(np.float32)
    begin = 2 if offset is None else offset
    expected = line.copy()
    steps = [4 * s for s in stride]
    view = np.lib.stride_tricks.as_strided(expected[begin:], size, steps)
    read = view.copy()
    src = np.zeros(size, np.float32)
    view[...] = src
    g = rlx.Graph()
    memory = g.input("x", ["n" if symbolic else 24])
    part = memory.narrow(0, 2, 20).reshape([5, 4]).transpose([1, 0])
    lies = Memory(memory, (1, 4), 2)
    at = Node("as_strided", [TensorType(size, dtype("f32"))], lambda: dtype("f32"), lambda: lies)
    into = Node("as_strided_scatter", [part.type], lambda: dtype("f32"), lambda: lies)
    g.set_outputs([
        ROWS["as_strided"](at, part, size, stride, offset),
        ROWS["as_strided_scatter"](into, part, g.constant(src), size, stride, offset),
    ])  # fmt: skip
    found = rlx.interpret(g, {"x": line})
    np.testing.assert_array_equal(found[0], read)
    np.testing.assert_array_equal(found[1], expected[2:22].reshape(5, 4).T)


def test_a_diagonal_of_symbolic_length_is_written() -> None:
    g = rlx.Graph()
    x, src = g.input("x", ["n", 4]), g.input("src", ["n"])
    n = Node("diagonal_scatter", [x.type], lambda: dtype("f32"))
    g.set_outputs([ROWS["diagonal_scatter"](n, x, src, 1)])
    expected = X.copy()
    expected[np.arange(3), np.arange(1, 4)] = Y[0, :3]
    (found,) = rlx.interpret(g, {"x": X, "src": Y[0, :3]})
    np.testing.assert_array_equal(found, expected)


COUNT = 20000


def drawn(
    name: str, shape: tuple[int, ...], kind: str, *args: Any, seed: int = 0
) -> list[np.ndarray[Any, Any]]:
    """The results of a row that draws, of arguments of which arrays are constants."""
    g = rlx.Graph()
    keys = Keys(lambda: g.input("key", [2], "u32"))
    t = TensorType(shape, dtype(kind))
    n = Node(name, [t, t], lambda: dtype("f32"), keys=keys)
    given = [g.constant(a) if isinstance(a, np.ndarray) else a for a in args]
    found = (ROWS.get(name) or ROWS[name.split(".", maxsplit=1)[0]])(n, *given)
    assert keys.drawn
    g.set_outputs(list(found) if isinstance(found, tuple) else [found])
    return [np.asarray(a) for a in rlx.interpret(g, {"key": rlx.random.key_data(seed)})]


def x_of(kind: str = "f32") -> np.ndarray[Any, Any]:
    return np.ones(COUNT, dtype(kind).numpy)


DRAWN: list[tuple[str, str, tuple[Any, ...], Any]] = [
    ("rand", "f32", ([COUNT],), scipy.stats.uniform()),
    ("rand_like", "f64", (x_of("f64"),), scipy.stats.uniform()),
    ("uniform", "f32", (x_of(), -1.0, 3.0), scipy.stats.uniform(-1, 4)),
    ("randn", "f32", ([COUNT],), scipy.stats.norm()),
    ("normal.Tensor_float", "f32", (x_of(), 2.0), scipy.stats.norm(1, 2)),
    ("normal.float_Tensor", "f32", (3.0, x_of() / 2), scipy.stats.norm(3, 0.5)),
    ("normal.float_float", "f32", (3.0, 2.0, [COUNT]), scipy.stats.norm(3, 2)),
    ("normal_functional", "f32", (x_of(), 1.0, 3.0), scipy.stats.norm(1, 3)),
    ("log_normal", "f32", (x_of(), 1.0, 0.5), scipy.stats.lognorm(0.5, scale=np.exp(1))),
    ("cauchy", "f32", (x_of(), 1.0, 2.0), scipy.stats.cauchy(1, 2)),
    ("exponential", "f32", (x_of(), 4.0), scipy.stats.expon(scale=0.25)),
    ("geometric", "f32", (x_of(), 0.3), scipy.stats.geom(0.3)),
    ("bernoulli", "f32", (x_of() / 4,), scipy.stats.bernoulli(0.25)),
    ("bernoulli.p", "f32", (x_of(), 0.7), scipy.stats.bernoulli(0.7)),
    ("randint", "i64", (7, [COUNT]), scipy.stats.randint(0, 7)),
    ("randint.low", "i32", (-3, 9, [COUNT]), scipy.stats.randint(-3, 9)),
    ("randint_like", "f32", (x_of(), 5), scipy.stats.randint(0, 5)),
    ("randint_like.low_dtype", "u8", (x_of("u8"), 2, 200), scipy.stats.randint(2, 200)),
    ("random", "u8", (x_of("u8"),), scipy.stats.randint(0, 256)),
    ("random", "i8", (x_of("i8"),), scipy.stats.randint(0, 128)),
    ("random", "bf16", (x_of("bf16"),), scipy.stats.randint(0, 257)),
    ("random", "bool", (x_of("bool"),), scipy.stats.randint(0, 2)),
    ("random.to", "i64", (x_of("i64"), 4), scipy.stats.randint(0, 4)),
    ("random.from", "i64", (x_of("i64"), 2, 4), scipy.stats.randint(2, 4)),
]


@pytest.mark.parametrize(("name", "kind", "args", "law"), DRAWN, ids=lambda v: str(v)[:12])
def test_what_is_drawn_has_its_distribution(
    name: str, kind: str, args: tuple[Any, ...], law: Any
) -> None:
    """The largest distance of the distribution functions (Kolmogorov-Smirnov), to the left of each
    number too, where that of a discrete one jumps."""
    (x,) = drawn(name, (COUNT,), kind, *args)
    assert x.dtype == dtype(kind).numpy
    values, counts = np.unique(x.astype(np.float64), return_counts=True)
    ours = np.cumsum(counts) / COUNT
    before = law.cdf(values - 1e-9 * np.abs(values) - 1e-30)
    most = max(np.abs(ours - law.cdf(values)).max(), np.abs(ours - counts / COUNT - before).max())
    assert most < 1.95 / COUNT**0.5  # one of a thousand samples is farther off
    (other,) = drawn(name, (COUNT,), kind, *args, seed=1)
    assert not np.array_equal(x, other)


@pytest.mark.parametrize("p", [0.25, 0.9, 1.0])
def test_dropout_keeps_what_its_mask_says(p: float) -> None:
    x = x_of() * 3
    y, kept = drawn("native_dropout", x.shape, "f32", x, p, True)
    np.testing.assert_allclose(y, np.where(kept, 3 / (1 - p) if p < 1 else 0, 0), rtol=1e-6)
    assert abs(kept.mean() - (1 - p)) < 0.01
    (again,) = drawn("dropout", x.shape, "f32", x, p, True)
    np.testing.assert_array_equal(again, y)
    square = np.ones((40, 50, 3, 2), np.float32)
    (channels,) = drawn("feature_dropout", square.shape, "f32", square, p, True)
    assert np.all(channels == channels[:, :, :1, :1])
    assert abs((channels[..., 0, 0] == 0).mean() - p) < 0.05
    normal = RNG.standard_normal(COUNT).astype(np.float32)
    (selu,) = drawn("alpha_dropout", x.shape, "f32", normal, p, True) if p < 1 else (normal,)
    assert abs(selu.mean()) < 0.05 and abs(selu.std() - 1) < 0.05


def test_indices_and_orders_are_drawn() -> None:
    (order,) = drawn("randperm", (50,), "i64", 50)
    assert sorted(order) == [*range(50)] and [*order] != [*range(50)]
    weights = np.tile(np.array([1, 0, 2, 5], np.float32), (5000, 1))
    (some,) = drawn("multinomial", (5000, 3), "i64", weights, 3)
    assert all(sorted(row) == [0, 2, 3] for row in some.tolist())
    np.testing.assert_allclose(np.bincount(some[:, 0], minlength=4) / 5000, [1 / 8, 0, 2 / 8, 5 / 8],
                               atol=0.03)  # fmt: skip
    (many,) = drawn("multinomial", (5000, 7), "i64", weights, 7, True)
    np.testing.assert_allclose(np.bincount(many.ravel(), minlength=4) / 35000,
                               [1 / 8, 0, 2 / 8, 5 / 8], atol=0.02)  # fmt: skip


def test_leaky_slopes_are_drawn_below_zero() -> None:
    x = np.array([-2, 0, 3] * 100, np.float32)
    y, factor = drawn("rrelu_with_noise_functional", x.shape, "f32", x, x, 0.1, 0.3, True)
    np.testing.assert_array_equal(y, x * factor)
    assert np.all(factor[2::3] == 1) and np.all((factor[::3] >= 0.1) & (factor[::3] < 0.3))
    assert len(np.unique(factor)) > 150


def test_each_op_draws_its_own_numbers_and_none_without_a_key() -> None:
    g = rlx.Graph()
    keys = Keys(lambda: g.input("key", [2], "u32"))
    n = Node("rand", [TensorType((8,), dtype("f32"))], lambda: dtype("f32"), keys=keys)
    g.set_outputs([ROWS["rand"](n, [8]), ROWS["rand"](n, [8])])
    a, b = rlx.interpret(g, {"key": rlx.random.key_data(0)})
    assert not np.any(a == b)
    n = Node("rand", [TensorType((8,), dtype("f32"))], lambda: dtype("f32"))
    with pytest.raises(UnsupportedError, match=r'no state to draw from; .*key="key"'):
        ROWS["rand"](n, [8])


def test_no_op_has_two_rows() -> None:
    assert sum(len(family.ROWS) for family in FAMILIES) == len(ROWS)


def test_a_batch_norm_that_writes_its_statistics_is_refused() -> None:
    g = rlx.Graph()
    x, mean = g.input("x", [2, 3]), g.input("mean", [3])
    n = Node("native_batch_norm", [x.type, mean.type, mean.type], lambda: dtype("f32"))
    row = ROWS["native_batch_norm"]
    with pytest.raises(UnsupportedError, match=r"writes its running statistics.*eval"):
        row(n, x, None, None, mean, mean, True, 0.1, 1e-5)
    g.set_outputs([
        row(n, x, None, None, None, None, True, 0.1, 1e-5)[0],
        row(n, x, None, None, mean, mean, False, 0.1, 1e-5)[0],
    ])  # fmt: skip
    by_batch, by_given = rlx.interpret(g, {"x": X[:2, :3], "mean": np.ones(3, np.float32)})
    spread = (X[:2, :3] - X[:2, :3].mean(0)) / np.sqrt(X[:2, :3].var(0) + 1e-5)
    np.testing.assert_allclose(by_batch, spread, rtol=1e-4)
    np.testing.assert_allclose(by_given, (X[:2, :3] - 1) / np.sqrt(1 + 1e-5), rtol=1e-5)


def test_interpolation_of_integers_is_refused() -> None:
    x = rlx.Graph().input("x", [1, 1, 2, 4], "u8")
    n = Node("upsample_bilinear2d", [TensorType((1, 1, 3, 7), dtype("u8"))], lambda: dtype("f32"))
    with pytest.raises(DTypeError, match=r"interpolation takes floats, found u8; .*x.float\(\)"):
        ROWS["upsample_bilinear2d"](n, x, [3, 7], False, 1.7, 1.8)


def test_a_form_without_counterpart_is_refused() -> None:
    n = Node("add", [TensorType((), dtype("f32"))], lambda: dtype("f32"))
    with pytest.raises(UnsupportedError, match="no such form"):
        n.refuse("no such form")
