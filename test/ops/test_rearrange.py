"""Movement that is composed, and tensors made of nothing, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError, ShapeError
from support.evaluate import call

G: Any = rlx.Graph("rearrange")
X = np.arange(24.0).reshape(2, 3, 4)
IMAGE = np.arange(2 * 8 * 4 * 6.0).reshape(2, 8, 4, 6)


def equal(found: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2), ()])
def test_flip(axes: Any) -> None:
    equal(call(lambda x: x.flip(axes), X), np.flip(X, axes))


@pytest.mark.parametrize("reps", [2, 0, (2, 1), (1, 2, 3), (2, 1, 1, 3)])
def test_tile(reps: Any) -> None:
    equal(call(lambda x: x.tile(reps), X), np.tile(X, reps))


@pytest.mark.parametrize(
    ("repeats", "axis"), [(2, None), (3, 1), (0, 0), ([1, 0, 2], -2), ([2], 2)]
)
def test_repeat(repeats: Any, axis: Any) -> None:
    equal(call(lambda x: x.repeat(repeats, axis), X), np.repeat(X, repeats, axis))


@pytest.mark.parametrize(
    ("shift", "axis"), [(5, None), (-1, 1), (7, -1), ((1, -1), (0, 2)), (1, (0, 1)), (0, 0)]
)
def test_roll(shift: Any, axis: Any) -> None:
    equal(call(lambda x: x.roll(shift, axis), X), np.roll(X, shift, axis))


def test_stack_and_unstack() -> None:
    for axis in (0, 1, -1):
        equal(call(lambda x, y, a=axis: G.stack([x, y], a), X, -X), np.stack([X, -X], axis))
    parts = call(lambda x: x.unstack(1), X)
    assert len(parts) == 3
    for n, part in enumerate(parts):
        equal(part, X[:, n])


def test_moveaxis_and_broadcasts() -> None:
    for source, to in ((0, -1), ((0, 1), (-1, 0)), (2, 0)):
        equal(call(lambda x, s=source, t=to: x.moveaxis(s, t), X), np.moveaxis(X, source, to))
    found = call(lambda x, y: G.broadcast_arrays([x, y]), X[:1], X[..., :1])
    for a, b in zip(found, np.broadcast_arrays(X[:1], X[..., :1]), strict=True):
        equal(a, b)
    equal(call(lambda x: x.broadcast_to([5, 2, 3, 4]), X), np.broadcast_to(X, (5, 2, 3, 4)))


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("ends", [((0, 0), (1, 2), (2, 1)), ((3, 4), (0, 5), (9, 0))])
def test_pad_modes(mode: Any, ends: Any) -> None:
    low, high = zip(*ends, strict=True)
    equal(call(lambda x: x.pad(low, high, mode=mode), X), np.pad(X, ends, mode))
    one = X[:, :1, :1]
    equal(call(lambda x: x.pad(low, high, mode=mode), one), np.pad(one, ends, mode))


def test_a_reflection_is_made_of_few_pieces() -> None:
    g = rlx.Graph("pieces")
    g.set_outputs([g.input("x", [50]).pad(40, 30, mode="reflect")])
    names = [n.short for n in g.nodes()]
    assert (names.count("flip"), names.count("concat")) == (2, 2)


def test_pad_by_a_number_of_each() -> None:
    equal(call(lambda x: x.pad(1, 2, 7.0), X), np.pad(X, (1, 2), constant_values=7.0))
    equal(call(lambda x: x.pad(1, 2, mode="wrap"), X), np.pad(X, (1, 2), "wrap"))


def blocks(x: Any, block: int) -> Any:
    """Space to depth by the definition: channel (i * block + j) * C + c."""
    parts = [x[:, :, i::block, j::block] for i in range(block) for j in range(block)]
    return np.concatenate(parts, 1)


def test_between_channels_and_space() -> None:
    equal(call(lambda x: x.space_to_depth(2), IMAGE), blocks(IMAGE, 2))
    equal(call(lambda x: x.space_to_depth(2).depth_to_space(2), IMAGE), IMAGE)
    shuffled = call(lambda x: x.pixel_shuffle(2), IMAGE)
    for c in range(2):
        for i in range(2):
            for j in range(2):
                equal(shuffled[:, c, i::2, j::2], IMAGE[:, c * 4 + i * 2 + j])
    equal(call(lambda x: x.pixel_shuffle(2).pixel_unshuffle(2), IMAGE), IMAGE)


def test_filled() -> None:
    f32, i32 = np.float32, np.int32
    made = call(
        lambda x: [
            G.full([2, 3], 1.5), G.full([2], 3), G.full((), True), G.zeros([2, 0]),
            G.ones([3], dtype="i32"), x.full_like(2), x.zeros_like(), x.ones_like(),
        ], X,
    )  # fmt: skip
    expected = [
        np.full((2, 3), 1.5, f32), np.full(2, 3), np.full((), True), np.zeros((2, 0), f32),
        np.ones(3, i32), np.full_like(X, 2), np.zeros_like(X), np.ones_like(X),
    ]  # fmt: skip
    for a, b in zip(made, expected, strict=True):
        equal(a, b)


@pytest.mark.parametrize("args", [(5,), (2, 9), (2, 9, 3), (9, 2, -2), (3, 3), (-4, 1, 1)])
def test_arange(args: Any) -> None:
    equal(call(lambda x: G.arange(*args) + 0 * x.sum().cast("i64"), X), np.arange(*args))
    g = rlx.Graph("arange")
    g.set_outputs([g.arange(*args, dtype="f32")])
    equal(rlx.interpret(g, {})[0], np.arange(*args, dtype=np.float32))


def test_fractions() -> None:
    g = rlx.Graph("fractions")
    g.set_outputs([g.arange(0, 1, 0.1), g.linspace(0, 1, 7), g.linspace(2, 5, 3, endpoint=False)])
    found = rlx.interpret(g, {})
    equal(found[0], np.arange(0, 1, 0.1).astype(np.float32))
    equal(found[1], np.linspace(0, 1, 7).astype(np.float32))
    equal(found[2], np.linspace(2, 5, 3, endpoint=False).astype(np.float32))


def test_symbolic_dims() -> None:
    g = rlx.Graph("symbolic")
    x = g.input("x", ["n", 4])
    g.set_outputs([x.tile((2, 1)), x.repeat(2, 0), x.flip(1), x.roll(1, 1)])
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = rlx.interpret(g.bind({"n": 3}), {"x": a})
    wanted = [np.tile(a, (2, 1)), np.repeat(a, 2, 0), np.flip(a, 1), np.roll(a, 1, 1)]
    for one, want in zip(found, wanted, strict=True):
        equal(one, want)


@pytest.mark.parametrize(
    ("f", "error", "match"),
    [
        (lambda x: x.flip(3), ShapeError, "axis 3"),
        (lambda x: x.tile(-1), ShapeError, "negative"),
        (lambda x: x.repeat([1, 2], 1), ShapeError, "has 3 elements, found 2"),
        (lambda x: x.roll([1, 2], [0, 1, 2]), ShapeError, "2 shifts for 3 axes"),
        (lambda x: x.moveaxis((0, 0), (1, 2)), ShapeError, "different sources"),
        (lambda x: G.stack([]), GraphError, "in a list"),
        (lambda x: G.stack([x, x.flatten()]), ShapeError, "one shape"),
        (G.broadcast_arrays, GraphError, "in a list"),
        (lambda x: x.pad(1, 1, mode="mirror"), GraphError, "reflect"),
        (lambda x: x.pad(1, 1, interior=1, mode="edge"), GraphError, "interior"),
        (lambda x: x.pad([1], [1], mode="edge"), ShapeError, "one number an axis"),
        (lambda x: x.pad(-1, 0, mode="edge"), ShapeError, "slice"),
        (lambda x: x.pad(["n"] * 3, 0, mode="edge"), GraphError, "takes ints"),
        (lambda x: x.narrow(0, 0, 0).pad(1, 0, mode="edge"), ShapeError, "is empty"),
        (lambda x: x.space_to_depth(2), ShapeError, r"\[N, C, H, W\]"),
        (lambda x: x.unsqueeze(0).space_to_depth(3), ShapeError, "blocks of 3"),
        (lambda x: x.unsqueeze(0).space_to_depth(0), ShapeError, "at least 1"),
        (lambda x: x.unsqueeze(0).depth_to_space(2), ShapeError, "multiple of 4"),
        (lambda x: x.unsqueeze(0).depth_to_space(1, "RCD"), GraphError, "CRD"),
        (lambda x: G.arange(1, 2, 0), GraphError, "step is 0"),
        (lambda x: G.linspace(1, 2, -1), GraphError, "negative"),
        (lambda x: G.input("s", ["n", 2]).unstack(0), ShapeError, "static size"),
    ],
)
def test_refusals(f: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        call(f, X)
