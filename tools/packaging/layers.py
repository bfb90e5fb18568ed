"""The layers whose kernels a wheel brings: those that published networks are made of, in f32.

A kernel depends on the kinds of things: how an axis is cut into tiles, which ops follow a product,
along which axes an operand moves. So a list of layers covers networks that it does not know. The
channels of a convolution and the features of a product are sizes that kernels get at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from rlx import Graph, Value

__all__ = ["graphs"]

Layer = Callable[[Value], Value]
Activation = Callable[[Value], Value]

IMAGES = (224, 256, 384, 320, 192, 640)
"""Widths of the images that networks are published for; each step down halves them."""

SIXTH = 0.1666666716337204
"""1/6 in f32, as files have it."""

LARGE = {48: 3072, 64: 1 << 17}
"""Sizes of elementwise ops that need 256 KiB and more, in the place of small ones."""

ACTIVATIONS: dict[str, Activation] = {
    "none": lambda x: x,
    "relu": lambda x: x.relu(),
    "relu6": lambda x: x.clip(0.0, 6.0),
    "silu": lambda x: x * x.sigmoid(),
    "sigmoid": lambda x: x.sigmoid(),
    "hard swish": lambda x: x.hard_swish(),
    "leaky relu": lambda x: x.leaky_relu(0.1),
    "gelu": lambda x: x.gelu(),
}


class Builder:
    """A graph of many layers that have nothing to do with each other."""

    def __init__(self, name: str) -> None:
        self.graph = Graph(name)
        self.outputs: list[Value] = []

    def input(self, *shape: int, dtype: str = "f32") -> Value:
        """A new input."""
        return self.graph.input(f"x{len(self.graph.inputs)}", shape, dtype)

    def param(self, *shape: int) -> Value:
        """A new weight."""
        return self.graph.param(f"w{len(self.graph.params)}", list(shape))

    def inner(self, *shape: int) -> Value:
        """A tensor that an op made which joins no other, in place of which a kernel may write."""
        return self.input(*shape).cumsum(-1)

    def kept(self, value: Value) -> Value:
        """What an op makes of a value, which may thus lie where an operand of its own was."""
        return value.cumsum(-1)

    def add(self, *values: Value) -> None:
        """Results of the graph."""
        self.outputs += values

    def done(self) -> Graph:
        """The graph."""
        self.graph.set_outputs(self.outputs)
        return self.graph


def widths() -> list[int]:
    """Widths of images and of what strided layers make of them."""
    halves = (image >> steps for steps in range(6) for image in IMAGES)
    return sorted({n for n in halves if n <= 256})


# -- images ------------------------------------------------------------------------------------


def convolutions(b: Builder, width: int, kernel: int, stride: int) -> None:
    """A convolution of one kernel and stride on images of a width, with all that may follow it."""
    pad = kernel // 2 if kernel % 2 else 0
    if kernel == stride:
        pad = 0
    # Few channels are done on planes, where the width makes no difference.
    channels = [(64, 64), (256, 256)] + [(16, 24)] * (width in (14, 56))
    for (ci, co), (name, act) in product(channels, ACTIVATIONS.items()):
        for ends in ("", "residual") if name in ("none", "relu") else ("",):
            x = b.input(1, ci, width, width)
            y = b.graph.conv2d(x, b.param(co, ci, kernel, kernel), stride=stride, padding=pad)
            y = y + b.param(1, co, 1, 1)
            if ends:
                y = y + b.input(*y.type.static_shape)
            b.add(act(y))
    x = b.input(1, 64, width, width)
    b.add(b.graph.conv2d(x, b.param(64, 64, kernel, kernel), stride=stride, padding=pad))


def stems(b: Builder, width: int) -> None:
    """The first layer of a network: few channels, large windows."""
    for kernel, stride, pad in ((3, 2, 1), (3, 1, 1), (7, 2, 3), (4, 4, 0), (16, 16, 0), (6, 2, 2),
                                (7, 4, 3), (3, 2, 0), (32, 32, 0), (11, 4, 2)):  # fmt: skip
        for co in (32, 24):
            for act in ("none", "relu", "silu"):
                x = b.input(1, 3, width, width)
                y = b.graph.conv2d(x, b.param(co, 3, kernel, kernel), stride=stride, padding=pad)
                b.add(ACTIVATIONS[act](y + b.param(1, co, 1, 1)))


def depthwise(b: Builder, width: int, kernel: int, stride: int) -> None:
    """A convolution of each channel by itself."""
    for name, act in ACTIVATIONS.items():
        x = b.input(1, 64, width, width)
        w = b.param(64, 1, kernel, kernel)
        y = b.graph.conv2d(x, w, stride=stride, padding=kernel // 2, groups=64)
        if name != "leaky relu":
            b.add(act(y + b.param(1, 64, 1, 1)))


def around_convolutions(b: Builder, width: int) -> None:
    """Pools, means, gates, joins and resizes of images."""
    x = lambda c=32: b.inner(1, c, width, width)  # noqa: E731
    for kernel, stride, pad in ((3, 2, 1), (2, 2, 0), (3, 1, 1), (5, 1, 2), (3, 2, 0)):
        b.add(x().max_pool2d(kernel, stride, pad))
        b.add(b.graph.avg_pool2d(x(), kernel, stride, pad))
    for act in ACTIVATIONS.values():
        b.add(act(x()))
        y = act(x())
        b.add(y, y.mean([2, 3], keepdims=True))
        b.add(act(x()).mean([2, 3]), act(x()).mean([2, 3], keepdims=True), b.kept(act(x())))
    b.add(x().mean([2, 3]), x().mean([2, 3], keepdims=True))
    b.add(x() * b.input(1, 32, 1, 1), x() * b.input(1, 32, 1, 1).sigmoid(), x() + x(), x() * x())
    b.add((x() + x()).relu(), b.kept((x() + x()).relu()), b.kept(x() + x()))
    b.add(b.kept(x() * b.input(1, 32, 1, 1)), b.kept(x() * b.inner(1, 32, 1, 1).sigmoid()))
    b.add(x() * b.param(1, 32, 1, 1) + b.param(1, 32, 1, 1))
    b.add((x() * b.param(1, 32, 1, 1) + b.param(1, 32, 1, 1)).relu())
    b.add(b.graph.concat([x(), x()], 1), b.graph.concat([x(8), x(16), x(24)], 1))
    for mode in ("nearest", "linear"):
        b.add(b.graph.resize(x(), [2 * width, 2 * width], mode))
    b.add(b.graph.conv_transpose2d(x(), b.param(32, 16, 2, 2), stride=2) + b.param(1, 16, 1, 1))
    b.add(x().reshape(1, 32, width * width).transpose([0, 2, 1]))
    b.add(x().transpose([0, 2, 3, 1]), b.inner(1, width, width, 32).transpose([0, 3, 1, 2]))
    b.add(x().pad([0, 0, 1, 1], [0, 0, 1, 1]), x()[:, :16], x()[:, :, ::2, ::2])


def gates(b: Builder) -> None:
    """Layers of one place, as those that weigh channels; scaled residuals; and sounds."""
    acts = ACTIVATIONS | {
        "hard sigmoid": lambda x: (x / 6.0 + 0.5).clip(0.0, 1.0),
        "hard sigmoid of ONNX": lambda x: x.hard_sigmoid(SIXTH, 0.5),
    }
    for (ci, co), act in product(((256, 16), (16, 256), (64, 24)), acts.values()):
        x, w = b.inner(1, ci, 1, 1), b.param(co, ci, 1, 1)
        b.add(act(b.graph.conv2d(x, w) + b.param(1, co, 1, 1)))
    for width in (7, 14, 28, 56):
        x, w = b.input(1, 256, width, width), b.param(64, 256, 1, 1)
        y = (b.graph.conv2d(x, w) + b.param(1, 64, 1, 1)) * b.param(1, 64, 1, 1)
        b.add(y + b.input(1, 64, width, width))
    for width in (6, 12, 24, 48, 96):
        b.add(b.graph.resize(b.inner(1, 32, width, width), [2 * width, 2 * width], "linear"))
    for kernel, stride in product((2, 3, 5, 10), (1, 2, 5)):
        for act in (ACTIVATIONS["none"], ACTIVATIONS["relu"], ACTIVATIONS["gelu"]):
            x, w = b.input(1, 64, 1600), b.param(64, 64, kernel)
            y = b.graph.conv1d(x, w, stride=stride, padding=kernel // 2 if stride == 1 else 0)
            b.add(act(y), act(y + b.param(1, 64, 1)))


# -- rows --------------------------------------------------------------------------------------


def products(b: Builder, rows: int, depth: int) -> None:
    """Dense layers of so many rows and inputs, with all that may follow them."""
    acts = ACTIVATIONS | {
        "tanh": lambda x: x.tanh(),
        "gelu by tanh": lambda x: x.gelu_approx(),
        "softplus": lambda x: x.softplus(),
    }
    for shape in ((rows, depth), (1, rows, depth)):
        for transposed in (False, True):
            for act in acts.values():
                y = b.graph.linear(
                    b.inner(*shape), _weight(b, depth, transposed), transposed=transposed
                )
                b.add(act(y + b.param(256)))
            y = b.graph.linear(
                b.inner(*shape), _weight(b, depth, transposed), transposed=transposed
            )
            z = b.inner(*y.type.static_shape)
            b.add(y)
            for end in (
                lambda y, z: y + b.param(256) + z,
                lambda y, z: y + z,
                lambda y, z: (y + b.param(256)) * b.param(256) + z,
                lambda y, z: y * z,
                lambda y, z: y * y.sigmoid() * z,
                lambda y, z: y * y.sigmoid(),
                lambda y, z: y.gelu() * z,
                lambda y, z: y.relu(),
                lambda y, z: y.gelu(),
                lambda y, z: y + b.param(256) + z + b.inner(*z.type.static_shape),
            ):
                y = b.graph.linear(
                    b.inner(*shape), _weight(b, depth, transposed), transposed=transposed
                )
                b.add(end(y, z))


def _weight(b: Builder, depth: int, transposed: bool) -> Value:
    return b.param(256, depth) if transposed else b.param(depth, 256)


def attentions(b: Builder, rows: int, width: int) -> None:
    """Products of queries, keys and values, joined and in steps."""
    heads = 4
    g, hidden = b.graph, heads * width

    def split(x: Value) -> Value:
        return x.reshape(1, rows, heads, width).transpose([0, 2, 1, 3])

    def part() -> Value:
        return b.graph.linear(b.inner(1, rows, hidden), b.param(hidden, hidden)) + b.param(hidden)

    for mask in ("none", "row", "full", "causal"):
        q, k, v = split(part()), split(part()), split(part())
        scores = q.matmul(k.transpose([0, 1, 3, 2])) * width**-0.5
        if mask == "row":
            scores = scores + b.input(1, 1, 1, rows)
        elif mask == "full":
            scores = scores + b.input(1, 1, rows, rows)
        elif mask == "causal":
            scores = scores + b.param(1, heads, rows, rows)
        y = scores.softmax(-1).matmul(v).transpose([0, 2, 1, 3]).reshape(1, rows, hidden)
        b.add(y, g.linear(y, b.param(hidden, hidden)) + b.param(hidden))
    q, k, v = (b.inner(1, heads, rows, width) for _ in range(3))
    b.add(g.attention(q, k, v, layout="bhsd"))
    b.add(g.attention(q, k, v, layout="bhsd", mask_kind="causal"))
    for shape in ((1, 1, rows, rows), (1, heads, rows, rows)):
        b.add(g.attention(q, k, v, b.input(*shape), layout="bhsd", mask_kind="bias"))
    x = b.inner(1, heads, rows, rows)
    b.add(x.softmax(-1), b.inner(1, heads, rows, width).matmul(b.inner(1, heads, width, rows)))


def rowwise(b: Builder, rows: int, width: int) -> None:
    """Norms and softmax of rows, alone and behind a sum."""
    g = b.graph
    x = lambda: b.inner(1, rows, width)  # noqa: E731
    for shape in ((rows, width), (1, rows, width)):
        one = b.inner(*shape)
        b.add(
            one.softmax(-1),
            one.sum(-1),
            one.mean(-1),
            one.max(axes=-1),
            one.mean(-1, keepdims=True),
        )
    for norm in (
        lambda v: g.layer_norm(v, b.param(width), b.param(width)),
        lambda v: g.rms_norm(v, b.param(width)),
    ):
        b.add(norm(x()), norm(x() + x()))
        s = x() + x()
        b.add(s, norm(s))
        s = x() + b.param(width) + x()
        b.add(s, norm(s))
        b.add(norm(x()).gelu(), norm(x() * b.param(width) + x()))
    b.add(x().mean(1), x().max(axes=1), x().sum(1))


def texts(b: Builder, rows: int, width: int) -> None:
    """Look-ups of rows, positions, masks and rotary positions."""
    g = b.graph
    ids = lambda: b.input(1, rows, dtype="i64")  # noqa: E731
    table = g.param("table", [1000, width])
    x = g.gather(table, ids())
    b.add(x, g.gather(b.param(1000, width), ids()) + b.param(1, rows, width))
    mask = b.input(1, rows, dtype="i64")
    seen = mask.cast("f32").reshape(1, 1, 1, rows)
    b.add((1.0 - seen) * -3.4028235e38, g.where(mask != 0, 0.0, -3.4028235e38))
    for heads in (1, 4):
        q = b.inner(1, heads, rows, width)
        half = width // 2
        turned = g.concat([-q[..., half:], q[..., :half]], 3)
        b.add(q * b.param(1, 1, rows, width) + turned * b.param(1, 1, rows, width))
        b.add(q.transpose([0, 2, 1, 3]).reshape(1, rows, heads * width))


def cells(b: Builder) -> None:
    """Steps of recurrent nets."""
    for rows, width in product((1, 8), (64, 256)):
        h, c = b.inner(rows, width), b.inner(rows, width)
        y = b.input(rows, 4 * width) + b.graph.linear(h, b.param(width, 4 * width))
        i, o, f, z = (y[:, n * width : (n + 1) * width] for n in range(4))
        kept = f.sigmoid() * c + i.sigmoid() * z.tanh()
        b.add(kept, o.sigmoid() * kept.tanh())


def exported_texts(b: Builder, rows: int, width: int) -> None:
    """Parts of networks of texts in the ops that exporters write for them."""
    g, heads = b.graph, 4
    ids = lambda: b.input(1, rows, dtype="i64")  # noqa: E731
    words, places = g.gather(b.param(1000, width), ids()), b.param(1, rows, width)
    kinds = g.gather(b.param(2, width), ids())
    for embedded in (words + places, words + kinds + places, words + places + kinds):
        b.add(g.layer_norm(embedded, b.param(width), b.param(width)))
    for shape in ((1, 1, rows, 1), (1, 1, rows, rows)):  # what a mask lets each token see
        sees = g.param(f"w{len(g.params)}", list(shape), "bool")
        allowed = sees.logical_and(ids().cast("bool").reshape(1, 1, 1, rows))
        b.add(g.where(allowed, 0.0, -3.4028235e38))
    sees = ids().cast("bool").reshape(1, 1, 1, rows)
    b.add(g.constant(True).logical_and(g.param("causal", [rows, rows], "bool")))
    b.add(g.where(sees, b.inner(1, heads, rows, rows), -3e38))
    x = b.inner(1, rows, width)
    for _ in range(3):
        root = (x.pow(2.0).mean(-1, keepdims=True) + 1e-6).sqrt()
        y = b.param(width) * (x * (1.0 / root))
        x = x + b.graph.linear(y, b.param(width, width))
    b.add(x)
    hidden = b.inner(1, rows, width)
    wide = b.inner(1, 1024, 3072)
    for x in (hidden, g.linear(hidden, b.param(width, 256)) + b.param(256), wide):
        half, inner = x * 0.5, x + 0.044715 * x.pow(3.0)
        y = half * ((0.7978845608028654 * inner).tanh() + 1.0)
        b.add(b.kept(y) if x is wide else y)
    one, other = (g.linear(hidden, b.param(width, 256)) for _ in range(2))
    b.add(one * one.sigmoid() * other)
    split = lambda: b.inner(1, rows, heads * width).reshape(1, rows, heads, width)  # noqa: E731
    cos, sin = (b.inner(1, 1, rows, width) for _ in range(2))
    for many in (heads, 64):
        q, half = b.inner(1, rows, many * width).reshape(1, rows, many, width), width // 2
        q = q.transpose([0, 2, 1, 3])
        turned = g.concat([-q[..., half:], q[..., :half]], 3)
        y = q * cos + turned * sin
        b.add(y if many == heads else b.kept(y))
    shared = split().transpose([0, 2, 1, 3]).reshape(1, heads, 1, rows, width)
    b.add(shared.expand([1, heads, 2, rows, width]).reshape(1, 2 * heads, rows, width))
    b.add(*(split().transpose(perm) * b.param(1) for perm in ([0, 2, 1, 3], [0, 2, 3, 1])))
    for columns, act in product((2, 3, 4), ("none", "relu", "sigmoid")):
        y = g.linear(b.inner(1, rows, width), b.param(width, columns)) + b.param(columns)
        b.add(ACTIVATIONS[act](y))
    b.add(
        ACTIVATIONS["relu"](g.linear(b.inner(rows, width), b.param(width, 256)).transpose([1, 0]))
    )


def elementwise(b: Builder) -> None:
    """Ops of one and two operands, on what moves along axes in each way."""
    unary: list[Activation] = [
        *ACTIVATIONS.values(), lambda x: x.exp(), lambda x: x.log(), lambda x: x.sqrt(),
        lambda x: x.rsqrt(), lambda x: x.tanh(), lambda x: -x, lambda x: x.abs(), lambda x: x.erf(),
        lambda x: x.cos(), lambda x: x.sin(), lambda x: 1.0 / x, lambda x: x * x,
        lambda x: x * 0.5, lambda x: x + 1.0, lambda x: 1.0 - x, lambda x: x.softplus(),
        lambda x: x.gelu_approx(), lambda x: x.reciprocal(), lambda x: x.floor(),
    ]  # fmt: skip
    for op, shape in product(unary, ((64,), (32, 48), (4, 32, 48))):
        b.add(op(b.input(*shape)), op(b.input(*shape).transpose([*range(len(shape))][::-1])))
    binary: list[Callable[[Value, Value], Value]] = [
        lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x / y,
        lambda x, y: y - x, lambda x, y: (x + y).relu(), lambda x, y: x * y.sigmoid(),
        lambda x, y: x.maximum(y), lambda x, y: x.minimum(y), lambda x, y: x * x.sigmoid() * y,
        lambda x, y: x.gelu() * y, lambda x, y: (x + y).gelu(), lambda x, y: x**y,
    ]  # fmt: skip
    shapes = (
        ((64,), (64,)), ((32, 48), (32, 48)), ((32, 48), (48,)), ((32, 48), (32, 1)),
        ((4, 32, 48), (1, 1, 48)), ((4, 32, 48), (4, 1, 48)), ((4, 32, 48), (4, 32, 1)),
        ((4, 32, 48), (1, 32, 48)), ((4, 32, 48), (1, 32, 1)), ((64,), (1,)),
    )  # fmt: skip
    for op, (one, other) in product(binary, shapes):
        b.add(op(b.input(*one), b.input(*other)), op(b.inner(*one), b.input(*other)))
        # Large ones, in the place of the first operand.
        long, wide = ([LARGE.get(d, d) for d in s] for s in (one, other))
        b.add(b.kept(op(b.inner(*long), b.input(*wide))))
    for perm in ((1, 0), (0, 2, 1), (1, 0, 2), (2, 0, 1), (0, 2, 1, 3), (0, 1, 3, 2), (0, 3, 1, 2),
                 (0, 2, 3, 1), (2, 0, 3, 1, 4), (0, 2, 4, 1, 3), (0, 1, 3, 2, 4)):  # fmt: skip
        b.add(b.input(*(6, 7, 8, 9, 10)[: len(perm)]).transpose(list(perm)))


# -- all ---------------------------------------------------------------------------------------


def graphs() -> Iterator[Graph]:
    """The graphs of all layers, some hundreds of them, each of one kind."""
    yield from _of_rows()
    yield from _of_images()
    yield _graph("elementwise", elementwise)
    yield _graph("cells", cells)


def _of_images() -> Iterator[Graph]:
    for n in widths():
        for kernel, stride in ((3, 1), (3, 2), (1, 1), (1, 2), (2, 2)):
            yield _graph(f"conv {kernel} by {stride} of {n}", convolutions, n, kernel, stride)
        for kernel, stride in ((3, 1), (3, 2), (5, 1), (5, 2), (7, 1)):
            if n <= 128:
                yield _graph(f"depthwise {kernel} by {stride} of {n}", depthwise, n, kernel, stride)
    for n in IMAGES:
        yield _graph(f"stems of {n}", stems, n)
    yield _graph("gates", gates)
    for n in (7, 28, 32, 40, 112):
        yield _graph(f"around convolutions of {n}", around_convolutions, n)


def _of_rows() -> Iterator[Graph]:
    for rows, depth in product((1, 7, 128, 197), (768, 3072)):
        yield _graph(f"products of {rows}x{depth}", products, rows, depth)
    for rows, width in product((128, 197), (32, 64)):
        yield _graph(f"attention of {rows}x{width}", attentions, rows, width)
        yield _graph(f"texts of {rows}x{width}", texts, rows, width)
        yield _graph(f"exported texts of {rows}x{width}", exported_texts, rows, width)
    for rows, width in ((128, 384), (197, 768), (1, 64), (50, 2048)):
        yield _graph(f"rows of {rows}x{width}", rowwise, rows, width)


def _graph(name: str, fill: Callable[..., None], *sizes: int) -> Graph:
    b = Builder(name)
    fill(b, *sizes)
    return b.done()
