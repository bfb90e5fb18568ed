"""Norms, statistics, likelihoods and resizing against formulas in NumPy and SciPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.special

import rlx
from rlx.errors import FaultError, GraphError, ShapeError
from rlx.types import SymDim, bf16
from support.ad import vjp
from support.evaluate import call

G: Any = rlx.Graph("norms")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 6, 3, 4)) * 3 + 1
GAMMA, BETA = RNG.standard_normal(6), RNG.standard_normal(6)
INF, NAN = math.inf, math.nan


def close(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def of_channels(v: Any) -> Any:
    return v.reshape(6, 1, 1)


def standard(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(groups: int) -> None:
    found = call(lambda x, g, b: x.group_norm(g, b, num_groups=groups, eps=0.1), X, GAMMA, BETA)
    line = standard(X.reshape(2, groups, -1), (2,), 0.1).reshape(X.shape)
    close(found, line * of_channels(GAMMA) + of_channels(BETA))


def test_instance_norm_and_layer_norm2d() -> None:
    found = call(lambda x, g: [x.instance_norm(g), x.layer_norm2d(g)], X, GAMMA)
    close(found[0], standard(X, (2, 3), 1e-5) * of_channels(GAMMA))
    close(found[1], standard(X, (1,), 1e-6) * of_channels(GAMMA))
    for f, x in (("instance_norm", X[0, 0, 0]), ("layer_norm2d", X[0])):
        with pytest.raises(ShapeError, match=f"{f} takes"):
            call(lambda v, f=f: getattr(v, f)(), x)


def test_batch_norm() -> None:
    mean, variance = X.mean((0, 2, 3)), X.var((0, 2, 3))
    found = call(G.batch_norm_train, X, GAMMA, BETA)
    want = standard(X, (0, 2, 3), 1e-5) * of_channels(GAMMA) + of_channels(BETA)
    for a, b in zip(found, (want, mean, variance), strict=True):
        close(a, b)
    given = call(lambda x, *v: x.batch_norm(*v), X, mean, variance, GAMMA, BETA)
    close(given, want)


def test_batch_norm_keeps_statistics_of_short_floats_in_f32() -> None:
    x = X.astype(bf16.numpy)
    y, mean, variance = call(G.batch_norm_train, x)
    assert (y.dtype, mean.dtype, variance.dtype) == (x.dtype, np.float32, np.float32)
    close(mean, x.astype(float).mean((0, 2, 3)), 1e-6)
    again = call(lambda *v: v[0].batch_norm(*v[1:]), x, mean, variance)
    np.testing.assert_array_equal(again, y)


@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.5, INF, -INF])
def test_norm(p: float) -> None:
    for axis in (0, 2):
        close(call(lambda x, a=axis: x.norm(p, a), X), np.linalg.norm(X, p, axis))
    flat = call(lambda x: x.norm(p, keepdims=True), X)
    close(flat.ravel()[0], np.linalg.norm(X.ravel(), p))


def test_normalize() -> None:
    x = np.concatenate([X, np.zeros((2, 6, 3, 1))], axis=3)
    size = np.linalg.norm(x, axis=1, keepdims=True)
    close(call(lambda v: v.normalize(axes=1), x), x / np.maximum(size, 1e-12))


def test_the_gradient_of_a_norm_at_zero_is_zero() -> None:
    g = rlx.Graph("zero")
    x = g.input("x", [3], "f64")
    u = g.input("u", [], "f64")
    g.set_outputs([v for v in vjp([x.norm()], [x], [u]) if v is not None])
    assert rlx.interpret(g, {"x": np.zeros(3), "u": np.ones(())})[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_local_response_norm(size: int) -> None:
    found = call(lambda x: x.local_response_norm(size, alpha=0.3, beta=0.6, k=2.0), X)
    want = np.empty_like(X)
    for c in range(6):
        near = X[:, max(0, c - size // 2) : c + (size - 1) // 2 + 1]
        want[:, c] = X[:, c] / (2.0 + 0.3 / size * (near * near).sum(1)) ** 0.6
    close(found, want)
    with pytest.raises(ShapeError, match="size of 1 or more"):
        call(lambda x: x.local_response_norm(0), X)


@pytest.mark.parametrize("axes", [None, 1, (0, -1), ()])
@pytest.mark.parametrize("ddof", [0, 1])
def test_variance(axes: Any, ddof: int) -> None:
    found = call(lambda x: [x.var(axes, ddof), x.std(axes, ddof, keepdims=True)], X)
    with np.errstate(all="ignore"):
        if axes == ():
            want = [np.zeros_like(X) / (1 - ddof)] * 2
        else:
            want = [X.var(axes, ddof=ddof), X.std(axes, ddof=ddof, keepdims=True)]
    for a, b in zip(found, want, strict=True):
        close(a, b)
    with pytest.raises(GraphError, match="var takes floats"):
        call(lambda x: x.cast("i32").var(), X)
    with pytest.raises(ShapeError, match="static sizes"):
        G.input(f"open{ddof}{axes}", ["n", 2]).var(0)


@pytest.mark.parametrize("axes", [None, 0, (0, 1)])
def test_any_and_all(axes: Any) -> None:
    for x in (np.array([[0, 2, 0], [0, 1, 1]]), np.array([[0.0, NAN]]), np.zeros((0, 2), bool)):
        found = call(lambda v: [v.any(axes), v.all(axes, keepdims=True)], x)
        np.testing.assert_array_equal(found[0], np.any(x, axes))
        np.testing.assert_array_equal(found[1], np.all(x, axes, keepdims=True))


def test_sums_of_sizes() -> None:
    found = call(lambda x: [x.reduce_l1(1), x.reduce_l2((0, 1), keepdims=True)], X)
    close(found[0], np.abs(X).sum(1))
    close(found[1], np.sqrt((X * X).sum((0, 1), keepdims=True)))


# -- likelihoods ---------------------------------------------------------------------------

ROWS = np.array([[1e4, 1e4], [-INF, 0], [-INF, -INF], [NAN, 0], [INF, 0], [-800, -801]])


def test_logsumexp() -> None:
    found = call(lambda x, r: [x.logsumexp(), x.logsumexp((1, 3)), r.logsumexp(1)], X, ROWS)
    want = [scipy.special.logsumexp(a, axis) for a, axis in ((X, None), (X, (1, 3)), (ROWS, 1))]
    for a, b in zip(found, want, strict=True):
        close(a, b)


def test_log_softmax() -> None:
    found = call(lambda x, r: [x.log_softmax(1), r[:2].log_softmax()], X, ROWS)
    for a, b in zip(found, [(X, 1), (ROWS[:2], -1)], strict=True):
        close(a, scipy.special.log_softmax(*b))


def compiled(f: Any, *arrays: Any) -> list[Any]:
    g = rlx.Graph("compiled")
    leaves = [g.input(f"x{n}", a.shape, a.dtype) for n, a in enumerate(arrays)]
    g.set_outputs(list(f(*leaves)))
    return rlx.Session("cpu").compile(g).run({f"x{n}": a for n, a in enumerate(arrays)})


@pytest.mark.parametrize("run", [call, compiled])
def test_softmax_cross_entropy(run: Any) -> None:
    logits = RNG.standard_normal((2, 3, 5))
    labels = np.array([[0, 4, -100], [2, -100, 1]])
    counted = labels >= 0
    u = RNG.standard_normal((2, 3))
    loss, slope = run(
        lambda x, t, u: (y := x.softmax_cross_entropy(t), vjp([y], [x], [u])[0]), logits, labels, u
    )
    logs = scipy.special.log_softmax(logits, -1)
    own = np.take_along_axis(logs, np.where(counted, labels, 0)[..., None], -1)[..., 0]
    close(loss, np.where(counted, -own, 0))
    hot = np.eye(5)[np.where(counted, labels, 0)]
    close(slope, (np.exp(logs) - hot) * (u * counted)[..., None])


@pytest.mark.parametrize("run", [call, compiled])
@pytest.mark.parametrize("label", [-1, 5, 1 << 40])
def test_a_label_out_of_range_is_a_fault(run: Any, label: int) -> None:
    with pytest.raises(FaultError, match="out of range"):
        run(lambda x, t: [x.softmax_cross_entropy(t)], np.zeros((1, 5)), np.array([label]))


def test_labels_may_be_an_array() -> None:
    found = call(lambda x: x.softmax_cross_entropy([1, 0]), np.zeros((2, 4)))
    close(found, np.full(2, math.log(4)))


# -- resize --------------------------------------------------------------------------------


def place(o: int, old: int, new: int, how: str) -> float:
    if how == "half_pixel":
        return (o + 0.5) * old / new - 0.5
    return o * old / new if how == "asymmetric" else o * (old - 1) / max(new - 1, 1)


def weights(s: float, mode: str, how: str) -> dict[int, float]:
    if mode == "nearest":
        return {math.floor(s + 0.5 if how == "half_pixel" else s): 1.0}
    if mode == "linear":
        return {n: max(0.0, 1 - abs(s - n)) for n in (math.floor(s), math.floor(s) + 1)}
    out, a = {}, -0.75
    for n in range(math.floor(s) - 1, math.floor(s) + 3):
        d = abs(s - n)
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        out[n] = near if d <= 1 else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0
    return out


def resized(x: Any, sizes: tuple[int, ...], mode: str, how: str) -> Any:
    """By the definition: each new element is a weighted sum of old ones, axis by axis."""
    for axis, new in enumerate(sizes, 2):
        old = x.shape[axis]
        m = np.zeros((new, old))
        for o in range(new):
            for n, w in weights(place(o, old, new, how), mode, how).items():
                m[o, min(max(n, 0), old - 1)] += w
        x = np.moveaxis(np.tensordot(m, x, (1, axis)), 0, axis)
    return x


@pytest.mark.parametrize("how", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(6, 8), (5, 3), (1, 2), (3, 4), (2, 9)])
def test_resize(sizes: tuple[int, int], mode: str, how: str) -> None:
    found = call(lambda x: x.resize(sizes, mode, how), X)
    close(found, resized(X, sizes, mode, how))


def test_resize_of_one_and_three_axes() -> None:
    line, box = X[:, :, 0], X.reshape(2, 1, 6, 3, 4)
    close(
        call(lambda x: x.resize([7], "linear"), line), resized(line, (7,), "linear", "half_pixel")
    )
    close(
        call(lambda x: x.resize([3, 6, 5]), box), resized(box, (3, 6, 5), "nearest", "asymmetric")
    )


def test_twice_by_nearest_is_a_broadcast() -> None:
    g = rlx.Graph("twice")
    x = g.input("x", [1, 2, 3, 4])
    y = x.resize([6, 8])
    assert y.op is not None
    g.set_outputs([y.op.expand()])
    assert {n.short for n in g.nodes()} == {"reshape", "expand"}
    small = x.resize([1, 2])
    assert small.op is not None
    g.set_outputs([small.op.expand()])
    assert {n.short for n in g.nodes()} == {"slice"}


def test_nearest_takes_every_type() -> None:
    for dt in (np.int8, bool):
        x = np.arange(4).reshape(1, 1, 4).astype(dt)
        found = call(lambda v: v.resize([6]), x)
        np.testing.assert_array_equal(found, x[..., [0, 0, 1, 2, 2, 3]])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("sizes", [(3, 7), (7, 3), (4, 8), (5, 1), (1, 4), (6, 5)])
def test_resize_of_sizes_known_at_run_time(
    sizes: tuple[int, int], coordinates: str, mode: str
) -> None:
    """Where its expansion has symbols, as in a gradient, it says what it says of numbers."""
    old, new = sizes
    x = np.random.default_rng(0).standard_normal((1, 2, old)).astype(np.float32)
    found: list[Any] = []
    for dims in (("h", SymDim.symbol("k")), (old, new)):
        g = rlx.Graph()
        image, like = g.input("image", [1, 2, dims[0]]), g.input("like", [dims[1]])
        y = image.resize([dims[1]], mode, coordinates)
        g.set_outputs((y * y).sum() + like.sum() * 0.0)
        feeds = {"image": x, "like": np.zeros(new, np.float32)}
        found.append(rlx.interpret(rlx.grad(g, "image"), feeds)[0])
    np.testing.assert_allclose(found[0], found[1], 1e-5, 1e-5)


@pytest.mark.parametrize(("coordinates", "new"), [("align_corners", 9), ("asymmetric", 10)])
def test_an_element_alone_is_taken_without_its_neighbour(coordinates: str, new: int) -> None:
    """Which may be infinite: at sizes known at compile time and at run time."""
    x = np.array([[[0, 1, np.inf, 3, 4]]], np.float32)
    for old in (5, rlx.Dim("old", 2, 20)):
        g = rlx.Graph()
        image = g.input("image", [1, 1, old])
        g.set_outputs([image.resize([new], "linear", coordinates)])
        (found,) = rlx.Session("cpu").compile(g).run({"image": x})
        wanted = [0, 0.5, 1, np.inf, np.inf, np.inf, 3, 3.5, 4, 4]
        np.testing.assert_array_equal(found[0, 0], wanted[:new])


# -- places in an image, experts, adapters -------------------------------------------------


def test_axial_rope() -> None:
    ends, heads, d, theta = (3, 2), 2, 8, 50.0
    x = RNG.standard_normal((2, 12, heads * d))
    found = call(lambda v: v.axial_rope2d(*ends, head_dim=d, theta=theta, repeat_factor=2), x)
    want = np.empty_like(x)
    for t in range(12):
        column, row = t % 6 % 3, t % 6 // 3
        for h in range(heads):
            for pair in range(d // 2):
                half, i = divmod(pair, d // 4)
                angle = (row if half else column) * theta ** (-4 * i / d)
                at = h * d + 2 * pair
                turned = (x[:, t, at] + 1j * x[:, t, at + 1]) * np.exp(1j * angle)
                want[:, t, at], want[:, t, at + 1] = turned.real, turned.imag
    close(found, want)


@pytest.mark.parametrize("run", [call, compiled])
def test_grouped_matmul(run: Any) -> None:
    x, w = RNG.standard_normal((5, 3)), RNG.standard_normal((4, 3, 2))
    experts, u = np.array([3, 0, 0, 2, 3]), RNG.standard_normal((5, 2))
    out, dx, dw = run(
        lambda x, w, e, u: (y := x.grouped_matmul(w, e), *vjp([y], [x, w], [u])), x, w, experts, u
    )
    close(out, np.einsum("mk,mkn->mn", x, w[experts]))
    close(dx, np.einsum("mn,mkn->mk", u, w[experts]))
    want = np.zeros_like(w)
    np.add.at(want, experts, x[:, :, None] * u[:, None])
    close(dw, want)


@pytest.mark.parametrize("run", [call, compiled])
@pytest.mark.parametrize("expert", [-1, 4])
def test_an_expert_out_of_range_is_a_fault(run: Any, expert: int) -> None:
    with pytest.raises(FaultError, match="for 4 experts"):
        run(
            lambda x, w, e: [x.grouped_matmul(w, e)],
            np.ones((1, 3)), np.ones((4, 3, 2)), np.array([expert]),
        )  # fmt: skip


def test_lora_matmul() -> None:
    x, w, a, b = (RNG.standard_normal(s) for s in ((2, 5, 4), (4, 3), (4, 2), (2, 3)))
    found = call(lambda *v: v[0].lora_matmul(*v[1:], scale=0.25), x, w, a, b)
    close(found, x @ w + 0.25 * (x @ a) @ b)
