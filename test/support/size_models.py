"""Models of symbolic sizes: small in tests, of usual sizes in ``tools/size_models.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx import Dim
from rlx.base.dims import SymDim
from rlx.ir.clone import rebuild
from rlx.models.bert import BertConfig, bert_encoder

__all__ = [
    "decoder", "encoder", "numbers", "resnet", "training", "training_on_images", "unet", "weight",
]  # fmt: skip

Array = np.ndarray[Any, Any]
SAME: Any = {"padding": [(1, 1), (1, 1)]}


def numbers(*shape: int, like: float = 1.0) -> Array:
    """Numbers of a shape, the same for the same."""
    draw = np.random.default_rng(sum(shape))
    return (draw.standard_normal(shape) * like).astype(np.float32)


def weight(g: rlx.Graph, name: str, *shape: int) -> rlx.Value:
    """A param of such numbers, of the size that keeps values in range."""
    like = 1 / np.sqrt(np.prod(shape[1:]))
    return g.param(name, list(shape), value=numbers(*shape, like=float(like)))


def encoder(layers: int = 6) -> rlx.Graph:
    """MiniLM, with fewer words."""
    config = BertConfig(vocab=1000, hidden=384, layers=layers, heads=12, inner=1536, positions=512)
    ranges = {"batch": SymDim.symbol("batch", 1, 64), "tokens": SymDim.symbol("tokens", 1, 256)}
    g = rebuild(bert_encoder(config), lambda t: t.bind(ranges), ranges)
    for p in g.params:
        g.param_values[str(p.name)] = numbers(*p.type.static_shape, like=0.05)
    return g


def decoder(width: int = 64, heads: int = 4, past: int = 300, new: int = 40) -> rlx.Graph:
    """A block with as many queries as are new, and keys that were there before."""
    g = rlx.Graph("decoder")
    batch, fresh, before = Dim("batch", 1, 4), Dim("new", 1, new), Dim("past", 1, past)
    x = g.input("x", [batch, fresh, width])
    size, kept = width // heads, heads // 2
    keys, values = (g.input(n, [batch, kept, before, size]) for n in ("keys", "values"))

    def parts(name: str, count: int) -> rlx.Value:
        y = x @ weight(g, name, width, size * count)
        return y.reshape([batch, fresh, count, size]).transpose((0, 2, 1, 3))

    k = g.concat([keys, parts("k", kept)], axis=2)
    v = g.concat([values, parts("v", kept)], axis=2)
    y = parts("q", heads).attention(k.repeat(2, axis=1), v.repeat(2, axis=1), layout="bhsd")
    y = y.transpose((0, 2, 1, 3)).reshape([batch, fresh, width])
    y = x + y @ weight(g, "o", width, width)
    inner = width * 5 // 2
    up = y.layer_norm() @ weight(g, "up", width, inner)
    g.set_outputs([y + up.silu() @ weight(g, "down", inner, width), k, v])
    return g


def resnet(width: int = 64, blocks: tuple[int, ...] = (2, 2, 2, 2)) -> rlx.Graph:
    """Stages of residual blocks, each of half the image and twice the channels."""
    g = rlx.Graph("resnet")
    x = g.input("x", [Dim("batch", 1, 8), 3, Dim("height", 32, 320), Dim("width", 32, 320)])

    def conv(y: rlx.Value, name: str, into: int, stride: int = 1, size: int = 3) -> rlx.Value:
        w = weight(g, name, into, int(y.shape[1]), size, size)
        edge = size // 2
        return y.conv(w, stride=[stride, stride], padding=[(edge, edge), (edge, edge)])

    y = conv(x, "stem", width, 2, 7).relu().max_pool((3, 3), stride=[2, 2], **SAME)
    for stage, count in enumerate(blocks):
        channels = width << stage
        for block in range(count):
            at, stride = f"s{stage}b{block}", 2 if stage and not block else 1
            z = conv(conv(y, f"{at}a", channels, stride).relu(), f"{at}b", channels)
            y = conv(y, f"{at}c", channels, stride, 1) if stride > 1 else y
            y = (y + z).relu()
    g.set_outputs([y.mean(axes=(2, 3)) @ weight(g, "head", int(y.shape[1]), 10)])
    return g


def unet(width: int = 8, most: int = 12) -> rlx.Graph:
    """Two levels down and up again."""
    g = rlx.Graph("unet")
    a, b, c = width, 2 * width, 3 * width
    x = g.input("x", [Dim("batch", 1, 5), 4, 4 * Dim("height", 1, most), 4 * Dim("width", 1, most)])
    first = x.conv(weight(g, "a", a, 4, 3, 3), **SAME).relu()
    second = first.max_pool((2, 2), stride=[2, 2]).conv(weight(g, "b", b, a, 3, 3), **SAME).relu()
    y = second.max_pool((2, 2), stride=[2, 2]).conv(weight(g, "c", c, b, 3, 3), **SAME).relu()
    y = y.conv_transpose(weight(g, "d", c, b, 2, 2), stride=[2, 2])
    y = g.concat([y, second], axis=1).conv(weight(g, "e", b, 2 * b, 3, 3), **SAME).relu()
    y = y.conv_transpose(weight(g, "f", b, a, 2, 2), stride=[2, 2])
    g.set_outputs([g.concat([y, first], axis=1).conv(weight(g, "out", 2, 2 * a, 1, 1))])
    return g


def training(inputs: int = 20, inner: int = 33, most: int = 70) -> rlx.Graph:
    """The loss of a batch and its gradients."""
    g = rlx.Graph("training")
    x = g.input("x", [Dim("batch", 1, most), inputs])
    y = (x @ weight(g, "a", inputs, inner)).gelu().layer_norm() @ weight(g, "b", inner, 10)
    wanted = g.input("wanted", [x.shape[0], 10])
    g.set_outputs([((y - wanted) ** 2.0).mean()])
    return rlx.value_and_grad(g, wrt=["a", "b"])


def training_on_images(width: int = 16, batch: int = 64, image: int = 64) -> rlx.Graph:
    """The loss of a convolutional network and its gradients, of images of any size."""
    g = rlx.Graph("training_on_images")
    x = g.input("x", [Dim("batch", 1, batch), 3, Dim("height", 8, image), Dim("width", 8, image)])
    y = x.conv(weight(g, "a", width, 3, 3, 3), **SAME).relu().max_pool((2, 2), stride=[2, 2])
    y = y.conv(weight(g, "b", 2 * width, width, 3, 3), stride=[2, 2], **SAME).relu()
    y = y.mean(axes=(2, 3)) @ weight(g, "c", 2 * width, 10)
    g.set_outputs([((y - g.input("wanted", [x.shape[0], 10])) ** 2.0).mean()])
    return rlx.value_and_grad(g, wrt=["a", "b", "c"])
