"""Whole models with symbolic sizes: every variant that serves sizes has the bits of a compile for
these alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx import Dim
from rlx.ir.graph import symbols_of
from rlx.runtime.background import waited
from rlx.runtime.sized_variant import key_of

Array = np.ndarray[Any, Any]
Sizes = dict[str, int]


def _numbers(*shape: int, like: float = 1.0) -> Array:
    draw = np.random.default_rng(sum(shape))
    return (draw.standard_normal(shape) * like).astype(np.float32)


def _weight(g: rlx.Graph, name: str, *shape: int) -> rlx.Value:
    like = 1 / np.sqrt(np.prod(shape[1:]))
    return g.param(name, list(shape), value=_numbers(*shape, like=float(like)))


def _images() -> rlx.Graph:
    """Dense and depthwise convolutions, pools, and a head."""
    g = rlx.Graph("images")
    x = g.input("x", [Dim("batch", 1, 9), 3, Dim("height", 4, 99), Dim("width", 4, 99)])
    y = x.conv(_weight(g, "stem", 16, 3, 3, 3), stride=[2, 2], padding=[(1, 1), (1, 1)]).relu()
    z = y.conv(_weight(g, "depth", 16, 1, 3, 3), padding=[(1, 1), (1, 1)], groups=16)
    y = y + z.conv(_weight(g, "points", 16, 16, 1, 1)).relu()
    y = y.max_pool((3, 3), stride=[2, 2], padding=[(1, 1), (1, 1)])
    y = y.conv(_weight(g, "wide", 40, 16, 3, 3), padding=[(1, 1), (1, 1)]).gelu()
    g.set_outputs([y, y.mean(axes=(2, 3)) @ _weight(g, "head", 40, 10)])
    return g


def _unet() -> rlx.Graph:
    g = rlx.Graph("unet")
    same: Any = {"padding": [(1, 1), (1, 1)]}
    x = g.input("x", [Dim("batch", 1, 5), 4, 4 * Dim("height", 1, 12), 4 * Dim("width", 1, 12)])
    first = x.conv(_weight(g, "a", 8, 4, 3, 3), **same).relu()
    second = first.max_pool((2, 2), stride=[2, 2]).conv(_weight(g, "b", 16, 8, 3, 3), **same).relu()
    y = second.max_pool((2, 2), stride=[2, 2]).conv(_weight(g, "c", 24, 16, 3, 3), **same).relu()
    y = y.conv_transpose(_weight(g, "d", 24, 16, 2, 2), stride=[2, 2])
    y = g.concat([y, second], axis=1).conv(_weight(g, "e", 16, 32, 3, 3), **same).relu()
    y = y.conv_transpose(_weight(g, "f", 16, 8, 2, 2), stride=[2, 2])
    g.set_outputs([g.concat([y, first], axis=1).conv(_weight(g, "out", 2, 16, 1, 1))])
    return g


def _decoder() -> rlx.Graph:
    """A block with as many queries as are new, and keys that were there before."""
    g = rlx.Graph("decoder")
    batch, new, past = Dim("batch", 1, 4), Dim("new", 1, 40), Dim("past", 1, 300)
    x = g.input("x", [batch, new, 64])
    keys, values = (g.input(n, [batch, 2, past, 16]) for n in ("keys", "values"))

    def heads(name: str, count: int) -> rlx.Value:
        y = x @ _weight(g, name, 64, 16 * count)
        return y.reshape([batch, new, count, 16]).transpose((0, 2, 1, 3))

    k = g.concat([keys, heads("k", 2)], axis=2)
    v = g.concat([values, heads("v", 2)], axis=2)
    y = heads("q", 4).attention(k.repeat(2, axis=1), v.repeat(2, axis=1), layout="bhsd")
    y = x + y.transpose((0, 2, 1, 3)).reshape([batch, new, 64]) @ _weight(g, "o", 64, 64)
    up = y.layer_norm() @ _weight(g, "up", 64, 160)
    g.set_outputs([y + up.silu() @ _weight(g, "down", 160, 64), k, v])
    return g


def _training() -> rlx.Graph:
    """The loss of a batch and its gradients."""
    g = rlx.Graph("training")
    x = g.input("x", [Dim("batch", 1, 70), 20])
    y = (x @ _weight(g, "a", 20, 33)).gelu().layer_norm() @ _weight(g, "b", 33, 10)
    wanted = g.input("wanted", [x.shape[0], 10])
    g.set_outputs([((y - wanted) ** 2.0).mean()])
    return rlx.value_and_grad(g, wrt=["a", "b"])


MODELS: dict[str, Callable[[], rlx.Graph]] = {
    "images": _images, "unet": _unet, "decoder": _decoder, "training": _training,
}  # fmt: skip


def _drawn(g: rlx.Graph) -> st.SearchStrategy[Sizes]:
    symbols = symbols_of(v.type for v in g.inputs)
    return st.fixed_dictionaries({s.name: st.integers(s.least, s.most) for s in symbols})


@pytest.mark.parametrize("name", MODELS)
def test_every_variant_has_the_bits_of_a_compile_for_the_sizes(name: str) -> None:
    graph = MODELS[name]()
    f = rlx.Session("cpu").compile(graph)
    served: dict[bool, int] = {False: 0, True: 0}

    @settings(max_examples=8, deadline=None)
    @given(_drawn(graph))
    def holds(sizes: Sizes) -> None:
        own = rlx.Session("cpu").compile(graph, dims=sizes)
        inputs = {str(v.name): _numbers(*v.type.static_shape) for v in own.graph.inputs}
        wanted = [a.tobytes() for a in own.run(inputs)]
        assert [a.tobytes() for a in f.run(inputs)] == wanted, sizes
        waited()
        key = key_of(sizes)
        for variant in f._variants.found:  # type: ignore[union-attr]
            if variant.serves(key):
                f._load(variant)
                bound = variant.bound(key)
                assert bound is not None
                assert [a.tobytes() for a in bound.run_slots(*inputs.values())] == wanted, sizes
                served[variant.general] += 1

    holds()
    general = [v for v in f._variants.found if v.general]  # type: ignore[union-attr]
    assert served[True] and not any(v.pinned for v in general), "it is for many sizes"
    # Those that take over from hasty ones may tell narrow images apart.
    assert all(
        sum(v.hasty == hasty for v in general) <= (4 if hasty else 8) for hasty in (False, True)
    )


def test_narrow_images_of_any_height_are_written_where_they_lie() -> None:
    """A depthwise convolution whose rows are shorter than a vector writes nothing behind them."""
    g = rlx.Graph("narrow")
    x = g.input("x", [1, 4, Dim("height", 1, 90), 2])
    g.set_outputs([x.conv(_weight(g, "w", 4, 1, 3, 1), padding=[(1, 1), (0, 0)], groups=4)])
    f = rlx.Session("cpu").compile(g)
    f.prepare(dims={"height": (1, 90)})
    variants = f._variants
    assert variants is not None
    variants.found = [v for v in variants.found if v.general]
    for height in (1, 5, 33):
        memory, images = np.full(8 * height + 64, 7, np.float32), _numbers(1, 4, height, 2)
        f.run_into({"x": images}, [memory[: 8 * height].reshape(1, 4, height, 2)])
        (own,) = rlx.Session("cpu").compile(g, dims={"height": height}).run({"x": images})
        assert memory[: 8 * height].tobytes() == own.tobytes()
        np.testing.assert_array_equal(memory[8 * height :], 7)
