"""Batching rules of control ops against a loop over the op on one element at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import FaultError
from rlx.ops.rules import batch
from support.control import outcomes
from support.sweeps import pairs

Values = Sequence[rlx.Value]
Function = Callable[..., Values]
N = 3
VECTORS = np.random.default_rng(0).standard_normal((N, 2)).astype(np.float32)
ROWS = np.random.default_rng(1).standard_normal((N, 4, 2)).astype(np.float32)


def agree(function: Function, *arrays: Any) -> None:
    """Choices of batched arguments, of which every two are together batched, apart and neither;
    ``arrays`` have the new axis, of which an argument that is not batched is the first element."""
    for flags in pairs(*[(True, False)] * len(arrays)):
        if any(flags):
            check(function, [np.asarray(a) for a in arrays], flags)


def check(function: Function, arrays: list[Any], flags: Sequence[bool]) -> None:
    feeds = {
        f"x{i}": a if has else a[0] for i, (a, has) in enumerate(zip(arrays, flags, strict=True))
    }

    def batched(g: rlx.Graph) -> Values:
        one = rlx.Graph()
        xs = [one.input(f"x{i}", a.shape[1:], str(a.dtype)) for i, a in enumerate(arrays)]
        wide = [g.input(k, a.shape, str(a.dtype)) for k, a in feeds.items()]
        pairs = batch(function(*xs), dict(zip(xs, zip(wide, flags, strict=True), strict=True)))
        return [v if has else v.expand((N, *v.shape)) for v, has in pairs]

    def single(g: rlx.Graph) -> Values:
        return function(*[g.input(k, arrays[i].shape[1:], str(arrays[i].dtype))
                          for i, k in enumerate(feeds)])  # fmt: skip

    rows = [
        outcomes(single, {k: a[n] if has else a
                          for (k, a), has in zip(feeds.items(), flags, strict=True)})[0]
        for n in range(N)
    ]  # fmt: skip
    for found in outcomes(batched, feeds):
        for a, *expected in zip(found, *rows, strict=True):
            np.testing.assert_allclose(a, np.stack(expected), rtol=1e-5, atol=1e-6)


def test_cond() -> None:
    def function(n: rlx.Value, x: rlx.Value, y: rlx.Value) -> Values:
        return rlx.cond(n > 0, lambda: (x * 2, x.sum()), lambda: (y, y.max()))

    agree(function, [1, -1, 2], VECTORS, VECTORS + 1)


@pytest.mark.parametrize("limits", [[2, 0, 5], [0, 0, 0]])
def test_while_loop(limits: list[int]) -> None:
    """A batched limit makes a masked loop: the elements stop at different rounds."""

    def function(n: rlx.Value, x: rlx.Value, w: rlx.Value) -> Values:
        zero = rlx.Graph().constant(0)
        return rlx.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, v * w), (zero, x))

    agree(function, limits, VECTORS, VECTORS + 1)


def test_a_carry_that_is_batched_in_the_second_round() -> None:
    def function(x: rlx.Value) -> Values:
        start = rlx.Graph().constant(np.float32([1, 2]))
        return rlx.fori(3, lambda i, c: (c[0] * 2, c[0] + c[1]), (x, start))

    agree(function, VECTORS)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse: bool) -> None:
    def function(c: rlx.Value, xs: rlx.Value, w: rlx.Value) -> Values:
        c, ys = rlx.scan(lambda c, x: ((c + x) * w, (x, c.sum())), c, xs, reverse=reverse)
        return [c, *ys]

    agree(function, VECTORS, ROWS, VECTORS)


def test_nested() -> None:
    def function(n: rlx.Value, x: rlx.Value, xs: rlx.Value) -> Values:
        def one_round(c: rlx.Value, row: rlx.Value) -> Any:
            grown = rlx.while_loop(lambda v: v.sum() < 2, lambda v: v + 1.0, c)
            return rlx.cond(n > 1, lambda: grown * row, lambda: grown - row), grown

        return rlx.scan(one_round, x, xs)

    agree(function, [1, 2, 3], VECTORS, ROWS)


def test_a_limit_that_one_element_exceeds_is_a_fault() -> None:
    g, one = rlx.Graph(), rlx.Graph()
    x = one.input("x", [])
    y = rlx.while_loop(lambda v: v < 8, lambda v: v + 1, x, limit=5)
    ((out, _),) = batch([y], {x: (g.input("x", [N]), True)})
    g.set_outputs(out)
    assert rlx.interpret(g, {"x": np.float32([3, 5, 9])})[0].tolist() == [8, 8, 9]
    with pytest.raises(FaultError, match="still true after 5 rounds"):
        rlx.interpret(g, {"x": np.float32([3, 2, 9])})
