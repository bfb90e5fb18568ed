"""Convolution and pooling against PyTorch: results, gradients, and what the builders take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError, RlxError, ShapeError
from rlx.ir.graph import Graph
from rlx.ir.op import placeholders
from rlx.types import TensorType
from support.ad import grad, vjp
from support.evaluate import call
from support.samples import run

Array = np.ndarray[Any, Any]

X1, X2, X3 = (2, 4, 11), (2, 4, 7, 6), (1, 4, 4, 5, 4)

# The method (torch's and ours), the operands' shapes, and the arguments.
CASES: list[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]]] = [
    ("conv1d", (X1, (6, 4, 3), (6,)), {"stride": 2, "padding": 1, "dilation": 2}),
    ("conv1d", (X1, (6, 4, 4)), {"padding": "same", "dilation": 3}),
    ("conv2d", (X2, (6, 4, 3, 3), (6,)), {"padding": 1}),
    ("conv2d", (X2, (6, 2, 3, 2)), {"groups": 2, "stride": (2, 1), "padding": (1, 0)}),
    ("conv2d", (X2, (8, 1, 3, 3)), {"groups": 4, "padding": "same"}),
    ("conv2d", ((2, 3, 9, 21), (6, 1, 5, 4), (6,)), {"groups": 3, "stride": (1, 2), "padding": 2}),
    ("conv1d", ((2, 3, 40), (3, 1, 4)), {"groups": 3, "padding": 3, "dilation": 2}),
    ("conv3d", (X3, (4, 1, 2, 3, 2)), {"groups": 4, "stride": (2, 1, 1), "padding": 1}),
    ("conv_transpose2d", (X2, (4, 1, 3, 3)), {"groups": 4, "stride": 2, "padding": 1}),
    ("conv2d", (X2, (3, 4, 4, 4)), {"padding": "same"}),
    ("conv2d", (X2, (3, 4, 2, 2)), {"padding": "valid", "stride": 3}),
    ("conv2d", (X2, (3, 4, 1, 1)), {"stride": 2}),
    ("conv3d", (X3, (2, 4, 2, 3, 2), (2,)), {"stride": (1, 2, 1), "padding": (0, 1, 1)}),
    # From 8 channels a group on, the gradient of the weights is a product a tap.
    ("conv1d", ((2, 8, 11), (6, 8, 3)), {"stride": 2, "padding": 1, "dilation": 2}),
    ("conv2d", ((2, 16, 7, 6), (6, 8, 3, 2)), {"groups": 2, "stride": (2, 3), "padding": 1}),
    ("conv2d", ((3, 9, 6, 5), (4, 9, 1, 1)), {}),
    ("conv2d", ((1, 8, 9, 5), (2, 8, 2, 2)), {"stride": 3}),
    ("conv3d", ((2, 8, 4, 5, 3), (3, 8, 2, 3, 1)), {"stride": (1, 2, 1), "padding": (0, 1, 1)}),
    ("conv_transpose2d", (X2, (4, 8, 3, 2)), {"stride": (2, 3), "output_padding": (1, 2)}),
    ("conv_transpose1d", (X1, (4, 3, 4), (3,)), {"stride": 3, "padding": 2, "output_padding": 1}),
    ("conv_transpose1d", (X1, (4, 3, 2)), {"dilation": 3, "output_padding": 2}),
    ("conv_transpose2d", (X2, (4, 3, 3, 2), (3,)), {"padding": 1}),
    ("conv_transpose2d", (X2, (4, 3, 3, 2)), {"stride": (2, 3), "groups": 2, "padding": (1, 0),
                                              "output_padding": (1, 2), "dilation": (2, 1)}),
    ("conv_transpose3d", (X3, (4, 2, 2, 3, 2)), {"stride": 2, "padding": 1}),
    ("max_pool1d", (X1,), {"kernel": 3, "stride": 2, "padding": 1, "dilation": 2}),
    ("max_pool2d", (X2,), {"kernel": 3, "stride": 2, "padding": 1}),
    ("max_pool2d", (X2,), {"kernel": (3, 2), "stride": 2, "padding": 1, "ceil_mode": True}),
    ("max_pool2d", (X2,), {"kernel": 2, "stride": (5, 4), "ceil_mode": True}),
    ("max_pool3d", (X3,), {"kernel": 2}),
    ("avg_pool1d", (X1,), {"kernel": 4, "padding": 2, "ceil_mode": True}),
    ("avg_pool2d", (X2,), {"kernel": 3, "stride": 2, "padding": 1}),
    ("avg_pool2d", (X2,), {"kernel": 3, "stride": 2, "padding": (1, 0), "ceil_mode": True,
                           "count_include_pad": False}),
    ("avg_pool2d", (X2,), {"kernel": (2, 3), "stride": 4, "padding": 1, "ceil_mode": True}),
    ("avg_pool3d", (X3,), {"kernel": 2, "stride": 1}),
    ("adaptive_avg_pool1d", (X1,), {"output_size": 4}),
    ("adaptive_avg_pool2d", (X2,), {"output_size": 1}),
    ("adaptive_avg_pool2d", (X2,), {"output_size": (3, None)}),
    ("adaptive_avg_pool3d", (X3,), {"output_size": (2, 1, 3)}),
]  # fmt: skip


def ours(method: str, args: dict[str, Any], *xs: Any) -> Any:
    return getattr(xs[0], method)(*xs[1:], **args)


@pytest.mark.parametrize(("method", "shapes", "args"), CASES, ids=lambda v: str(v)[:60])
def test_results_and_gradients_are_those_of_pytorch(
    method: str, shapes: tuple[tuple[int, ...], ...], args: dict[str, Any]
) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    # Few values, so that maxima tie and the first one counts.
    arrays = [np.round(rng.standard_normal(s) * 2) / 2 for s in shapes]
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    kernel = {"kernel_size" if k == "kernel" else k: v for k, v in args.items()}
    wanted = getattr(torch.nn.functional, method)(*leaves, **kernel)
    cotangent = np.asarray(rng.standard_normal(wanted.shape))
    wanted.backward(torch.tensor(cotangent))

    g = Graph()
    inputs = [g.input(f"x{i}", a.shape, "f64") for i, a in enumerate(arrays)]
    seed = g.input("seed", cotangent.shape, "f64")
    y = ours(method, args, *inputs)
    grads = vjp([y], inputs, [seed])
    feeds = dict(zip([*inputs, seed], [*arrays, cotangent], strict=True))
    found = run([y, *(v for v in grads if v is not None)], feeds)
    np.testing.assert_allclose(found[0], wanted.detach().numpy(), rtol=1e-12, atol=1e-12)
    for a, leaf in zip(found[1:], leaves, strict=True):
        np.testing.assert_allclose(a, leaf.grad.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("channels", [3, 8])
@pytest.mark.parametrize("method", ["conv2d", "conv_transpose2d"])
def test_second_derivatives_are_those_of_pytorch(method: str, channels: int) -> None:
    """The gradients of a gradient's square."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    shapes = ((2, channels, 5, 4), (channels, channels, 3, 3))
    arrays = [rng.standard_normal(s) for s in shapes]
    args = {"stride": 2, "padding": 1}
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = getattr(torch.nn.functional, method)(*leaves, **args)
    first = torch.autograd.grad((y**3).sum(), leaves, create_graph=True)
    want = torch.autograd.grad(sum((v**2).sum() for v in first), leaves)

    g = Graph()
    inputs = [g.input(f"x{i}", a.shape, "f64") for i, a in enumerate(arrays)]
    z = (ours(method, args, *inputs) ** 3.0).sum()
    norm = sum((v * v).sum() for v in grad(z, inputs))
    found = run(grad(norm, inputs), dict(zip(inputs, arrays, strict=True)))
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fill", [np.nan, -np.inf, np.inf])
def test_max_pool_of_special_values_is_pytorchs(fill: float) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(1).standard_normal((1, 2, 6, 6)).astype(np.float32)
    x[0, 0, 1:4, 1:3] = fill
    x[0, 1] = fill
    want, where = torch.nn.functional.max_pool2d(torch.tensor(x), 3, 2, 1, return_indices=True)
    np.testing.assert_array_equal(call(lambda v: v.max_pool2d(3, 2, 1), x), want.numpy())
    found = call(lambda v: v.max_pool2d(3, 2, 1).op.indices(), x)
    np.testing.assert_array_equal(found, where.numpy())


def test_padding_may_differ_at_both_ends() -> None:
    x, w = np.arange(1.0, 5.0).reshape(1, 1, 4), np.ones((1, 1, 2))
    got = call(lambda a, b: a.conv1d(b, padding=[(0, 1)]), x, w)
    np.testing.assert_array_equal(got, [[[3, 5, 7, 4]]])
    got = call(lambda a: a.max_pool1d(2, 1, [(1, 0)]), -x)
    np.testing.assert_array_equal(got, [[[-1, -1, -2, -3]]])


def test_a_causal_convolution_sees_no_later_elements() -> None:
    x, w = np.arange(1.0, 5.0).reshape(1, 4, 1), np.array([[[10.0, 1.0]]])
    got = call(lambda a, b: a.depthwise_conv1d_causal(b), x, w)
    np.testing.assert_array_equal(got[0, :, 0], [1, 12, 23, 34])
    left = np.full((1, 1, 1), 7.0)
    got = call(lambda a, b, c: a.depthwise_conv1d_causal(b, c), x, w, left)
    np.testing.assert_array_equal(got[0, :, 0], [71, 12, 23, 34])


def test_pool_by_kind() -> None:
    x = np.arange(4.0).reshape(1, 1, 4)
    np.testing.assert_array_equal(call(lambda v: v.pool("max", 2), x), [[[1, 3]]])
    np.testing.assert_array_equal(call(lambda v: v.pool("mean", 2), x), [[[0.5, 2.5]]])


def test_a_symbolic_batch() -> None:
    g = Graph()
    x, w = g.input("x", ["batch", 3, 8, 8]), g.param("w", [4, 3, 3, 3])
    y = x.conv2d(w, stride=2, padding=1).max_pool2d(2)
    assert str(y.type) == "batchx4x2x2xf32"
    gx, gw = vjp([y], [x, w], [g.input("g", ["batch", 4, 2, 2])])
    assert gx is not None and gw is not None
    assert (gx.shape, gw.shape) == (x.shape, w.shape)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("options", [{"padding": 1, "stride": (2, 1)}, {"groups": 2}])
def test_the_gradients_of_a_number_of_examples_that_is_not_known(
    options: dict[str, Any], shared: bool
) -> None:
    g = Graph()
    x, w = g.input("x", [2, 4, 7, 6], "f64"), g.input("w", [6, 4 // options.get("groups", 1), 3, 2])
    s = g.input("s", [], "f64")
    y = (x if shared else x * s).conv2d(w.cast("f64"), **options)
    g.set_outputs((y * s).tanh().sum())
    slope = rlx.grad(g, "w")
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {"s": rng.standard_normal(3)}
    feeds["x"] = rng.standard_normal(x.type.static_shape)
    feeds["w"] = rng.standard_normal(w.type.static_shape).astype(np.float32)
    each = rlx.vmap(slope, {"s": 0}, "n")
    expected = [rlx.interpret(slope, {**feeds, "s": np.asarray(s)})[0] for s in feeds["s"]]
    np.testing.assert_allclose(rlx.interpret(each, feeds)[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        rlx.Session("cpu").compile(each).run(feeds)[0], expected, rtol=1e-5, atol=1e-6
    )


def test_a_number_of_examples_that_must_be_known() -> None:
    g = Graph()
    x, w = g.input("x", [1, 2, "h", 5]), g.input("w", [3, 2, 3, 3])
    y = x.conv2d(w)
    g.set_outputs(y)
    with pytest.raises(ShapeError, match=r"conv: images and weights .* not known \(n\); give vmap"):
        rlx.vmap(g, {"x": 0, "w": 0}, "n")
    g.set_outputs(y.sum())
    with pytest.raises(ShapeError, match="there are n examples of 1x2xhx5xf32; one of both"):
        rlx.vmap(rlx.grad(g, "w"), {"x": 0}, "n")


X, W = "1x2x5x5", "3x2x3x3"
REFUSED: list[tuple[str, str, dict[str, Any], type[RlxError], str]] = [
    ("conv1d", W, {}, ShapeError, r"conv1d takes x \[N, C, L\]"),
    ("conv2d", W, {"padding": "some"}, GraphError, "found 'some'"),
    ("conv2d", W, {"padding": "same", "stride": 2}, ShapeError, "takes stride 1"),
    ("conv2d", W, {"padding": -1}, ShapeError, "not negative"),
    ("conv2d", W, {"stride": (1, 2, 3)}, GraphError, "2 spatial axes"),
    ("conv2d", W, {"stride": 1.5}, GraphError, "found 1.5"),
    ("conv2d", W, {"stride": "2"}, GraphError, "found '2'"),
    ("conv2d", W, {"padding": [(1, 2, 3), (1, 2)]}, GraphError, r"pairs are \(low, high\)"),
    ("conv2d", "3x2x3", {}, ShapeError, "w of the rank of x"),
    ("conv2d", W, {"bias": np.ones(2, np.float32)}, ShapeError, r"bias must be \[3\]"),
    ("conv_transpose2d", "2x3x3", {}, ShapeError, "w of the rank of x"),
    ("conv_transpose2d", "2x3x3x3", {"padding": "same"}, ShapeError, "padding is a number"),
    ("conv_transpose2d", "2x3x3x3", {"output_padding": 1}, ShapeError, "less than stride"),
    ("max_pool2d", "", {"kernel": 3, "padding": 2}, ShapeError, "at most half a window, here 1"),
    ("avg_pool2d", "", {"kernel": 6}, ShapeError, "does not fit"),
    ("pool", "", {"kind": "least", "kernel": 2}, GraphError, "found 'least'"),
    ("adaptive_avg_pool2d", "", {"output_size": (1, 2, 3)}, ShapeError, "2 sizes"),
    ("adaptive_avg_pool2d", "", {"output_size": 0}, ShapeError, "at least 1"),
]


@pytest.mark.parametrize(("method", "w", "args", "error", "match"), REFUSED)
def test_refusals(
    method: str, w: str, args: dict[str, Any], error: type[RlxError], match: str
) -> None:
    operands = placeholders([TensorType.of([int(n) for n in s.split("x")]) for s in (X, w) if s])
    with pytest.raises(error, match=match):
        ours(method, args, *operands)


def test_windows_of_a_symbolic_axis() -> None:
    g = Graph()
    x, w = g.input("x", [1, 2, "length"]), g.param("w", [3, 2, 3])
    assert str(x.conv1d(w, padding=1).type) == "1x3xlengthxf32"
    assert str(x.conv1d(w, stride=2).type) == "1x3x(length-1)//2xf32"
