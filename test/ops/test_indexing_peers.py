"""Ops by index against JAX, PyTorch and ONNX Runtime, each where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.evaluate import call

RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, 4, 5)).astype(np.float32)


def jax() -> Any:
    found = pytest.importorskip("jax")
    found.config.update("jax_enable_x64", True)
    return found


# -- JAX -----------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["set", "add", "mul", "min", "max"])
@pytest.mark.parametrize("mode", ["fill", "clip", "wrap"])
def test_scatter_is_jax_at(reduction: str, mode: str) -> None:
    np_ = jax().numpy
    index = RNG.integers(0 if mode == "clip" else -3, 6, 9)
    if reduction == "set":  # JAX leaves the order of updates for one place open
        index = RNG.permutation(6 if mode == "fill" else 3)
    updates = RNG.standard_normal((len(index), 4, 5)).astype(np.float32)
    got = call(lambda x, i, u: x.scatter(i, u, 0, reduction, mode), X, index, updates)
    where = index % 3 if mode == "wrap" else index  # JAX has no such mode here
    at = np_.asarray(X).at[where]
    name = {"mul": "multiply"}.get(reduction, reduction)
    want = getattr(at, name)(updates, mode="clip" if mode == "wrap" else mode)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("starts", [(0, 0, 0), (1, 2, 9), (-1, -2, -9)])
def test_boxes_are_jaxs(starts: tuple[int, ...]) -> None:
    lax, box = jax().lax, (2, 2, 3)
    got = call(lambda x: x.dynamic_slice(list(starts), box), X)
    np.testing.assert_array_equal(got, lax.dynamic_slice(X, starts, box))
    update = RNG.standard_normal(box).astype(np.float32)
    got = call(lambda x, u: x.dynamic_update_slice(u, list(starts)), X, update)
    np.testing.assert_array_equal(got, lax.dynamic_update_slice(X, update, starts))


def test_order_is_jaxs() -> None:
    np_ = jax().numpy
    x = np.array([[1.0, np.nan, 3, 1, -np.inf], [2, 2, np.nan, np.nan, 0]])
    for down in (False, True):
        got = call(lambda v, d=down: v.argsort(descending=d), x)
        np.testing.assert_array_equal(got, np_.argsort(x, stable=True, descending=down))
        got = call(lambda v, d=down: v.sort(descending=d), x)
        np.testing.assert_array_equal(got, np_.sort(x, descending=down))


def test_counts_are_jaxs() -> None:
    np_ = jax().numpy
    x = np.array([0, 2, 2, 7, -3, 4])
    np.testing.assert_array_equal(call(lambda v: v.bincount(5), x), np_.bincount(x, length=5))
    mask = RNG.integers(0, 2, (3, 4))
    for size in (2, 12):
        got = call(lambda v, n=size: v.nonzero(n, -1), mask)
        for a, b in zip(got, np_.nonzero(mask, size=size, fill_value=-1), strict=True):
            np.testing.assert_array_equal(a, b)
    codes = np.array([0, 3, -1, 2])
    np.testing.assert_array_equal(call(lambda v: v.one_hot(3), codes), jax().nn.one_hot(codes, 3))


def test_running_folds_and_their_gradients_are_jaxs() -> None:
    j, x = jax(), RNG.standard_normal((2, 6))
    x[0, 2] = x[1, 0] = x[1, 3] = 0
    weight = RNG.standard_normal((2, 6))
    from support import ad

    for name in ("cumprod", "cummax", "cummin", "cumlogsumexp"):
        ours = {"cumlogsumexp": "logcumsumexp"}.get(name, name)
        for reverse in (False, True):
            theirs = getattr(j.lax, name)
            f = lambda v, t=theirs, r=reverse: t(v, 1, reverse=r)
            g = lambda v, n=ours, r=reverse: getattr(v, n)(1, reverse=r)
            np.testing.assert_allclose(call(g, x), f(x), rtol=1e-12)
            found = call(lambda v, w, g=g: ad.grad((g(v) * w).sum(), [v])[0], x, weight)
            want = j.grad(lambda v, f=f: (f(v) * weight).sum())(x)
            np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-12)


# -- PyTorch -------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["sum", "prod", "amin", "amax"])
def test_put_along_axis_is_scatter_reduce(reduction: str) -> None:
    """With the gradients, ties among them."""
    torch = pytest.importorskip("torch")
    from support import ad

    x, updates = (RNG.integers(1, 4, s).astype(np.float64) for s in ((3, 4), (6, 4)))
    if reduction == "prod":
        x[0], updates[2] = 0, 0
    index, weight = RNG.integers(0, 3, (6, 4)), RNG.standard_normal((3, 4))
    ours = {"sum": "add", "prod": "mul", "amin": "min", "amax": "max"}[reduction]
    a, u = (torch.tensor(v, requires_grad=True) for v in (x, updates))
    want = a.scatter_reduce(0, torch.tensor(index), u, reduction)
    (want * torch.tensor(weight)).sum().backward()

    def f(x: Any, i: Any, u: Any, w: Any) -> list[Any]:
        out = x.put_along_axis(i, u, 0, ours)
        return [out, *ad.grad((out * w).sum(), [x, u])]

    out, gx, gu = call(f, x, index, updates, weight)
    np.testing.assert_allclose(out, want.detach())
    np.testing.assert_allclose(gx, a.grad, atol=1e-12)
    np.testing.assert_allclose(gu, u.grad, atol=1e-12)


def test_order_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    x = np.array([[1.0, np.nan, 3, 1, -np.inf], [2, 2, np.nan, np.nan, 0]])
    t = torch.tensor(x)
    for down in (False, True):
        got = call(lambda v, d=down: v.argsort(descending=d), x)
        np.testing.assert_array_equal(got, torch.argsort(t, stable=True, descending=down))
        got = call(lambda v, d=down: v.topk(3, largest=d)[0], x)
        np.testing.assert_array_equal(got, torch.topk(t, 3, largest=down)[0])
    line, values = np.sort(X), X[..., :2].copy()
    for side in ("left", "right"):
        got = call(lambda a, v, s=side: a.searchsorted(v, s), line, values)
        want = torch.searchsorted(torch.tensor(line), torch.tensor(values), side=side)
        np.testing.assert_array_equal(got, want)


# -- ONNX Runtime --------------------------------------------------------------------------


def onnx(op: str, *arrays: Any, **attrs: Any) -> Any:
    helper = pytest.importorskip("onnx").helper
    runtime = pytest.importorskip("onnxruntime")
    names = [f"x{n}" for n in range(len(arrays))]
    tensor = pytest.importorskip("onnx").TensorProto
    kinds = {"f": tensor.FLOAT, "i": tensor.INT64}
    inputs = [
        helper.make_tensor_value_info(n, kinds[a.dtype.kind], a.shape)
        for n, a in zip(names, arrays, strict=True)
    ]
    kind = tensor.INT64 if op.startswith("Arg") else tensor.FLOAT
    out = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attrs)], "g", inputs, [out])
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = runtime.InferenceSession(model.SerializeToString())
    return session.run(None, dict(zip(names, arrays, strict=True)))[0]


def test_gather_nd_is_onnxs() -> None:
    plain = np.stack([RNG.integers(-3, 3, (2, 6)), RNG.integers(-4, 4, (2, 6))], -1)
    batched = RNG.integers(-4, 4, (3, 7, 1))
    for index, lead in ((plain, 0), (batched, 1)):
        got = call(lambda x, i, b=lead: x.gather_nd(i, batch_dims=b), X, index)
        np.testing.assert_array_equal(got, onnx("GatherND", X, index, batch_dims=lead))


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
def test_scatter_nd_and_elements_are_onnxs(reduction: str) -> None:
    places = RNG.permutation(12)[:7] if reduction == "none" else RNG.integers(0, 12, 7)
    index = np.stack([places // 4, places % 4 - 4], -1)
    updates = RNG.standard_normal((7, 5)).astype(np.float32)
    ours = "set" if reduction == "none" else reduction
    got = call(lambda x, i, u: x.scatter_nd(i, u, ours), X, index, updates)
    np.testing.assert_allclose(
        got, onnx("ScatterND", X, index, updates, reduction=reduction), rtol=1e-6
    )
    many = 2 if reduction == "none" else 6
    index = np.argsort(RNG.standard_normal((3, 4, 5)), 1)[:, :many] - 4
    index = np.concatenate([index] * (1 if reduction == "none" else 2), 1)
    updates = RNG.standard_normal(index.shape).astype(np.float32)
    got = call(lambda x, i, u: x.put_along_axis(i, u, 1, ours), X, index, updates)
    want = onnx("ScatterElements", X, index, updates, axis=1, reduction=reduction)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    got = call(lambda x, i: x.take_along_axis(i, 1), X, index)
    np.testing.assert_array_equal(got, onnx("GatherElements", X, index, axis=1))


@pytest.mark.parametrize("last", [False, True])
def test_argmax_is_onnxs(last: bool) -> None:
    x = RNG.integers(0, 3, (3, 7)).astype(np.float32)
    for op in ("ArgMax", "ArgMin"):
        got = call(lambda v, op=op: getattr(v, op.lower())(1, True, last), x)
        np.testing.assert_array_equal(got, onnx(op, x, axis=1, select_last_index=int(last)))
