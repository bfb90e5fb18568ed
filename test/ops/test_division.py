"""Whole quotients, remainders and shifts, compiled, against NumPy and Python over whole ranges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.types import DType, f32, f64, i8, i64, u8
from support.evaluate import call

Array = np.ndarray[Any, Any]

QUOTIENTS = ("floor_divide", "remainder", "fmod")


def compiled(f: Any, *arrays: Array) -> list[Array]:
    """The results of native kernels."""
    g = rlx.Graph("compiled")
    leaves = [g.input(f"x{n}", a.shape, a.dtype) for n, a in enumerate(arrays)]
    g.set_outputs(list(f(*leaves)))
    return rlx.Session("cpu").compile(g).run({f"x{n}": a for n, a in enumerate(arrays)})


def same(found: Array, expected: Array) -> None:
    """Equal, signs of zeros included; any nan is nan."""
    np.testing.assert_array_equal(found, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[number], np.signbit(expected)[number])


@pytest.mark.parametrize("dt", [f32, f64], ids=str)
def test_floats_are_as_in_numpy(dt: DType) -> None:
    rng = np.random.default_rng(0)
    info = np.finfo(dt.numpy)
    row = [0, -0.0, 1, -1, 0.1, -0.3, 3, math.inf, -math.inf, math.nan, info.max, info.tiny]
    special = np.stack(np.meshgrid(*[np.array(row, dt.numpy)] * 2)).reshape(2, -1)
    word = np.uint32 if dt is f32 else np.uint64
    wild = rng.integers(0, 1 << dt.bits, (2, 3000), dtype=word).view(dt.numpy)
    tame = (rng.integers(-40, 40, (2, 2000)) * 0.1).astype(dt.numpy)
    x, y = np.concatenate([special, wild, tame], axis=1)
    found = compiled(lambda a, b: [a // b, a % b, a.fmod(b)], x, y)
    with np.errstate(all="ignore"):
        for name, result in zip(QUOTIENTS, found, strict=True):
            same(result, getattr(np, name)(x, y))


@pytest.mark.parametrize("dt", [i8, u8], ids=str)
def test_every_pair_of_bytes(dt: DType) -> None:
    line = np.arange(256).astype(np.uint8).view(dt.numpy)
    x, y = (a.ravel() for a in np.meshgrid(line, line))
    p, q = x.astype(int), y.astype(int)
    by = np.where(q == 0, 1, q)
    whole = np.where(q == 0, 0, p // by)
    rest = np.where(q == 0, 0, p % by)
    cut = np.where(q == 0, 0, np.fmod(p, by))
    inside = (q >= 0) & (q < 8)
    count = np.where(inside, q, 0)
    left = np.where(inside, p << count, 0)
    right = np.where(inside, p >> count, np.where(p < 0, -1, 0))
    ops = [lambda a, b: a // b, lambda a, b: a % b, lambda a, b: a.fmod(b)]
    ops += [lambda a, b: a << b, lambda a, b: a >> b, lambda a, b: a & b, lambda a, b: a | b]
    ops += [lambda a, b: a ^ b, lambda a, b: ~a]
    wanted = [whole, rest, cut, left, right, p & q, p | q, p ^ q, ~p]
    for run in (compiled, call):
        found = run(lambda a, b: [f(a, b) for f in ops], x, y)
        for result, want in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(result, want.astype(dt.numpy))


def test_operators_with_numbers() -> None:
    x = np.array([-7, 7, 12], np.int64)
    found = call(
        lambda v: [v // 2, 100 // v, v % 5, 100 % v, 1 << v, v >> 1, v & 6, 6 | v, v ^ 1,
                   *divmod(v, 4), *divmod(50, v)], x,
    )  # fmt: skip
    wanted = [x // 2, 100 // x, x % 5, 100 % x, [0, 128, 4096], x >> 1, x & 6, 6 | x, x ^ 1,
              *divmod(x, 4), *divmod(50, x)]  # fmt: skip
    for result, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(result, want)


def test_of_bools_they_are_logical() -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    g = rlx.Graph("bools")
    x, y = g.input("x", [4], "bool"), g.input("y", [4], "bool")
    values = [x & y, x | y, x ^ y, ~x, x & True]
    assert [v.op.short for v in values if v.op] == [
        "logical_and", "logical_or", "logical_xor", "logical_not", "logical_and",
    ]  # fmt: skip
    found = call(lambda p, q: [p & q, p | q, p ^ q, ~p, p & True], a, b)
    for result, want in zip(found, [a & b, a | b, a ^ b, ~a, a], strict=True):
        np.testing.assert_array_equal(result, want)


def test_a_bool_meets_an_integer() -> None:
    found = call(lambda a, b: a & b, np.array([True, False]), np.array([3, 3], np.int32))
    np.testing.assert_array_equal(found, np.array([1, 0], np.int32))


def test_kinds_of_floats() -> None:
    x = np.array([0.0, -0.0, 1e-45, math.inf, -math.inf, math.nan], np.float32)
    for run in (compiled, call):
        found = run(lambda v: [v.isnan(), v.isinf(), v.isfinite()], x)
        for f, result in zip((np.isnan, np.isinf, np.isfinite), found, strict=True):
            np.testing.assert_array_equal(result, f(x))


def test_the_least_integer_over_minus_one() -> None:
    least = np.array([-(1 << 63)], i64.numpy)
    found = compiled(lambda v: [v // -1, v % -1, v.fmod(-1)], least)
    assert [int(r[0]) for r in found] == [-(1 << 63), 0, 0]


@pytest.mark.parametrize("dt", [np.int32, np.int64, np.uint64])
def test_shifts_of_one_number(dt: Any) -> None:
    """A scalar instruction counts modulo the width."""
    x = np.array(-5 if dt is not np.uint64 else 5).astype(dt)
    for count in (0, 3, x.itemsize * 8 - 1, x.itemsize * 8, x.itemsize * 8 + 6, 1 << 30):
        left, right = compiled(lambda a, b: [a << b, a >> b], x, np.array(count, dt))
        whole = int(x) << count if count < 64 else 0
        assert int(left) == int(np.array(whole & (1 << x.itemsize * 8) - 1, np.uint64).astype(dt))
        assert int(right) == int(x) >> count
