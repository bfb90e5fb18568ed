"""Loops over tensors, most of whose body does not depend on what the loop carries."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from support.control import outcomes

UNARY: list[Callable[[rlx.Value], rlx.Value]] = [
    lambda a: a.exp() * 0.1,
    lambda a: a.tanh(),
    lambda a: a.mean(axes=0),
    lambda a: a.sum(axes=a.rank - 1, keepdims=True) * 0.1,
    lambda a: a.max(),
    lambda a: a.transpose([1, 0]),
    lambda a: a.cast("f16").cast("f32"),
    lambda a: a.softmax(axis=a.rank - 1),
    lambda a: a[:1],
]
BINARY: list[Callable[[rlx.Value, rlx.Value], rlx.Value]] = [
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: (a @ b) * 0.1,
]


def grown(draw: random.Random, values: list[rlx.Value], count: int) -> list[rlx.Value]:
    """Values and others made of them; ops that do not take what was drawn are left out."""
    found = list(values)
    while len(found) < len(values) + count:
        try:
            if draw.random() < 0.6:
                found.append(draw.choice(UNARY)(draw.choice(found)))
            else:
                found.append(draw.choice(BINARY)(draw.choice(found), draw.choice(found)))
        except rlx.errors.RlxError:
            continue
    return found


def body(draw: random.Random, fixed: list[rlx.Value], v: rlx.Value) -> rlx.Value:
    """The next value of what is carried, of values that are invariant and of others."""
    inner = grown(draw, fixed, draw.randrange(3, 8))
    every = grown(draw, [*inner, v], draw.randrange(2, 6))
    out = v * 0.5
    for x in draw.sample(every, 4):
        ends = zip(x.shape[::-1], v.shape[::-1], strict=False)
        fits = x.rank <= 2 and all(a in (1, b) for a, b in ends)
        out = out + (x if fits else x.mean()) * 0.1
    return out


@settings(max_examples=15)
@given(st.randoms(use_true_random=False), st.sampled_from([3, 24]), st.booleans())
def test_random_bodies_agree(draw: random.Random, n: int, scanned: bool) -> None:
    def build(g: rlx.Graph) -> Any:
        x, fixed = g.input("x", [2, n]), [g.input("m", [3, n]), g.input("w", [n])]
        if not scanned:
            return rlx.fori(3, lambda _, v: body(draw, fixed, v), x)
        rows = g.input("rows", [3, 2, n])
        return rlx.scan(lambda v, e: (body(draw, fixed, v + e * 0.1), None), x, rows)[0]

    data = np.random.default_rng(n)
    shapes = {"x": (2, n), "m": (3, n), "w": (n,), "rows": (3, 2, n)}
    names = [*shapes][: 4 if scanned else 3]
    feeds = {k: data.standard_normal(shapes[k]).astype(np.float32) for k in names}
    expected, *others = outcomes(build, feeds)
    for found in others:
        for a, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-3)
