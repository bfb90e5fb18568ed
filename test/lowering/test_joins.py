"""Joins of joins and reshapes that copy: each element is moved once, and to the right place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx

Array = np.ndarray[Any, Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(say: Any, *arrays: Array, **options: Any) -> list[Array]:
    g = rlx.Graph("joins")
    leaves = [g.input(f"x{n}", a.shape) for n, a in enumerate(arrays)]
    out = say(g, *leaves)
    g.set_outputs(out if isinstance(out, list) else [out])
    f = rlx.Session("cpu").compile(g, **options)
    return list(f.run_slots(*arrays))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_many_parts(axis: int) -> None:
    shapes = [[3, 4, 5] for _ in range(5)]
    for n, s in enumerate(shapes):
        s[axis] = n + 1
    parts = [numbers(*s, seed=n) for n, s in enumerate(shapes)]
    (got,) = run(lambda g, *x: g.concat(list(x), axis), *parts)
    np.testing.assert_array_equal(got, np.concatenate(parts, axis))
    (got,) = run(lambda g, *x: g.concat(list(x), axis) * 2.0, *parts)
    np.testing.assert_array_equal(got, np.concatenate(parts, axis) * 2)


def test_joins_along_two_axes() -> None:
    a, b, c = numbers(3, 4), numbers(3, 5, seed=1), numbers(2, 9, seed=2)
    (got,) = run(lambda g, a, b, c: g.concat([g.concat([a, b], 1), c], 0), a, b, c)
    np.testing.assert_array_equal(got, np.block([[a, b], [c]]))
    (got,) = run(lambda g, a, b, c: g.concat([c, g.concat([a, b], 1)], 0), a, b, c)
    np.testing.assert_array_equal(got, np.block([[c], [a, b]]))


def test_a_join_that_is_read_twice() -> None:
    a, b = numbers(3, 4), numbers(3, 4, seed=1)

    def both(g: Any, a: Any, b: Any) -> Any:
        inner = g.concat([a, b], 0)
        return [g.concat([inner, inner], 1), inner]

    got = run(both, a, b)
    inner = np.concatenate([a, b])
    np.testing.assert_array_equal(got[0], np.concatenate([inner, inner], 1))
    np.testing.assert_array_equal(got[1], inner)

    def then(g: Any, a: Any, b: Any) -> Any:
        inner = g.concat([a, b], 0)
        return [g.concat([inner, a], 0), inner.exp()]

    got = run(then, a, b)
    np.testing.assert_array_equal(got[0], np.concatenate([a, b, a]))
    np.testing.assert_allclose(got[1], np.exp(inner), rtol=1e-6)


def test_a_carried_value_is_read_before_a_join_is_written_over_it() -> None:
    """The inner join is made before the old value is read, the outer one after it."""
    x, a, b = numbers(4, 6), numbers(1, 6, seed=1), numbers(2, 6, seed=2)

    def say(g: Any, x: Any, a: Any, b: Any) -> Any:
        def body(n: Any, v: Any) -> Any:
            inner = g.concat([a, b], 0)
            return g.concat([inner, v[:1] + v[3:]], 0)

        return rlx.fori(3, body, x)

    (got,) = run(say, x, a, b)
    want = x
    for _ in range(3):
        want = np.concatenate([a, b, want[:1] + want[3:]])
    np.testing.assert_array_equal(got, want)


def test_a_donated_input_is_read_before_a_join_is_written_over_it() -> None:
    x, a, b = numbers(4, 6), numbers(1, 6, seed=1), numbers(2, 6, seed=2)

    def say(g: Any, x: Any, a: Any, b: Any) -> Any:
        inner = g.concat([a, b], 0)
        return g.concat([inner, x[:1] + x[3:]], 0)

    want = np.concatenate([a, b, x[:1] + x[3:]])
    (got,) = run(say, x.copy(), a, b, donate=((0, 0),))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("counts", [(2, 3), (1, 4), (3, 1), (2, 1, 2)])
def test_tiles(counts: tuple[int, ...]) -> None:
    x = numbers(5, 7)
    (got,) = run(lambda g, x: x.tile(counts), x)
    np.testing.assert_array_equal(got, np.tile(x, counts))
    got = run(lambda g, x: [x.tile(counts), x.tile(counts) + 1.0], x)
    np.testing.assert_array_equal(got[0], np.tile(x, counts))
    np.testing.assert_array_equal(got[1], np.tile(x, counts) + 1)


def test_a_reshaped_transpose_of_a_donated_input() -> None:
    x = numbers(6, 6)
    (got,) = run(
        lambda g, x: x.transpose((1, 0)).reshape((36,)).reshape((6, 6)), x.copy(),
        donate=((0, 0),),
    )  # fmt: skip
    np.testing.assert_array_equal(got, x.T)
