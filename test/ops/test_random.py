"""Random numbers against jax.random and the test vectors of Random123.

The fixture is written by tools/make_random_fixtures.py. What depends on integers alone must be the
same to the bit; what goes through a logarithm or erfinv is as near as those are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import RlxError
from rlx.ir.interpreter import interpret
from rlx.ops.nn.sampling import Sample
from rlx.ops.random.random import threefry2x32
from rlx.types import DTYPES, FLOATS, dtype
from support import ad
from support.evaluate import call

Array = np.ndarray[Any, Any]
R = rlx.random

SEED = 1234567
JAX = dict(np.load(Path(__file__).parent / "fixtures" / "random.npz"))
SHAPE = (4, 9)
EPS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}


def draw(f: Callable[..., Any], *arrays: Any, seed: int = SEED) -> Array:
    """``f(key, ...)`` compiled, which must be what the interpreter gives, near rounding."""
    return draw_all([f], *arrays, seed=seed)[0]


def draw_all(fs: Iterable[Callable[..., Any]], *arrays: Any, seed: int = SEED) -> list[Array]:
    """The same of several functions, in one graph."""
    g = rlx.Graph("draw")
    key = g.input("key", [2], "u32")
    leaves = [g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    g.set_outputs([f(key, *leaves) for f in fs])
    feeds = {"key": R.key_data(seed)} | {f"x{i}": a for i, a in enumerate(arrays)}
    outputs = rlx.Session("cpu").compile(g).run(feeds)
    for found, expected in zip(outputs, interpret(g, feeds), strict=True):
        assert_near(found, expected)
    return outputs


def assert_near(found: Array, expected: Array) -> None:
    if found.dtype.kind in "uib":
        np.testing.assert_array_equal(found, expected)
    else:
        near = 8 * EPS[dtype(found.dtype).name]
        np.testing.assert_allclose(np.float64(found), np.float64(expected), near, near)


# Of Random123 1.14, tests/kat_vectors: key, counter, result.
VECTORS = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("key", "counter", "words"), VECTORS)
def test_published_vectors(key: Any, counter: Any, words: Any) -> None:
    given = [np.array([w], np.uint32) for w in (*key, *counter)]
    assert [int(w[0]) for w in threefry2x32(*given)] == list(words)
    found = draw(lambda _, *v: v[0].graph.threefry2x32(*v, bits=64), *given)
    assert int(found[0]) == words[0] << 32 | words[1]


RANGES = [
    (0, 10, "i32"), (-100, 100, "i8"), (-5, 2**31 - 1, "i32"), (0, 1000003, "u32"),
    (0, 7, "i64"), (-(2**62), 2**62, "i64"), (0, 256, "u8"), (3, 70, "u16"), (0, 2**32, "u32"),
]  # fmt: skip
EXACT: dict[str, Callable[..., Any]] = {
    "key": lambda key: R.key(SEED) + key * 0,
    "wide_key": lambda key: R.key(-SEED) + key * 0,
    "split": lambda key: R.split(key, 5),
    "fold_in": lambda key: R.fold_in(key, 77),
    "bernoulli": lambda key: R.bernoulli(key, 0.3, (40,)),
    "permutation": lambda key: R.permutation(key, 50),
    **{f"bits{n}": lambda key, n=n: R.bits(key, (3, 5), n) for n in (8, 16, 32, 64)},
    **{f"uniform_{dt}": lambda key, dt=dt: R.uniform(key, SHAPE, dt) for dt in FLOATS},
    **{
        f"randint{n}": lambda key, r=r: R.randint(key, (6, 7), r[0], r[1], r[2])
        for n, r in enumerate(RANGES)
    },
}


# The functions, and how many roundings of a number of size 1 they may be apart.
NEAR: dict[str, tuple[Callable[..., Any], int]] = {
    "between": (lambda key, dt: R.uniform(key, SHAPE, dt, -2.5, 0.7), 3),
    "normal": (lambda key, dt: R.normal(key, SHAPE, dt), 8),
    # log1p of XLA is off by some roundings in f64.
    "exponential": (lambda key, dt: R.exponential(key, SHAPE, dt), 20),
    "gumbel": (lambda key, dt: R.gumbel(key, SHAPE, dt), 8),
    "truncated_normal": (lambda key, dt: R.truncated_normal(key, -1.0, 2.0, SHAPE, dt), 8),
}


@cache
def drawn() -> dict[str, Array]:
    """All these draws, by one compile."""
    near = {
        f"{name}_{dt}": lambda key, f=f, dt=dt: f(key, dt)
        for name, (f, _) in NEAR.items()
        for dt in FLOATS
    }
    functions = EXACT | near
    return dict(zip(functions, draw_all(functions.values()), strict=True))


@pytest.mark.parametrize("name", EXACT)
def test_same_bits_as_jax(name: str) -> None:
    found = drawn()[name]
    np.testing.assert_array_equal(np.float64(found), np.float64(JAX[name]))
    if "bf16" not in name:
        assert found.dtype == JAX[name].dtype


@pytest.mark.parametrize("dt", FLOATS, ids=str)
@pytest.mark.parametrize("name", NEAR)
def test_near_jax(name: str, dt: rlx.DType) -> None:
    found, (_, bound) = drawn()[f"{name}_{dt}"], NEAR[name]
    assert found.dtype == dt.numpy
    expected = JAX[f"{name}_{dt}"].astype(np.float64)
    error = np.abs(np.float64(found) - expected) / np.maximum(np.abs(expected), 1.0)
    assert error.max() <= bound * EPS[dt.name]


def test_rows_in_random_order() -> None:
    found = draw(R.permutation, np.arange(12).reshape(6, 2))
    np.testing.assert_array_equal(found, JAX["rows"])
    columns = draw(lambda key, x: R.permutation(key, x, axis=-1), np.arange(12).reshape(6, 2).T)
    np.testing.assert_array_equal(columns, JAX["rows"].T)


@pytest.mark.parametrize(
    ("name", "how"),
    [("categorical", {}), ("first_axis", {"axis": 0}), ("thrice", {"shape": (3, 4)})],
)
def test_categorical(name: str, how: dict[str, Any]) -> None:
    found = draw(lambda key, x: R.categorical(key, x, **how), JAX["logits"])
    np.testing.assert_array_equal(found, JAX[name])


@pytest.mark.parametrize(
    ("dt", "seed"), [("i32", -7), ("u32", 2**32 - 1), ("i64", -(2**40)), ("u64", 2**63 + 5)]
)
def test_a_seed_may_be_a_value(dt: str, seed: int) -> None:
    found = call(R.key, np.array(seed, DTYPES[dt].numpy))
    np.testing.assert_array_equal(found, R.key_data(seed))


def test_a_number_to_fold_in_may_be_a_value() -> None:
    key = R.key_data(3)
    by_value = call(R.fold_in, key, np.array(77, np.int64))
    np.testing.assert_array_equal(by_value, call(lambda k: R.fold_in(k, 77), key))


OF_KEYS: dict[str, Callable[..., Any]] = {
    "split": lambda key: R.split(key, 3),
    "fold_in": lambda key: R.fold_in(key, 5),
    "uniform": lambda key: R.uniform(key, (2, 3)),
    "normal": lambda key: R.normal(key, (5,)),
    "randint": lambda key: R.randint(key, (4,), -3, 9),
    "bernoulli": lambda key: R.bernoulli(key, 0.5, (4, 2)),
}


@pytest.mark.parametrize("name", OF_KEYS)
def test_many_keys_are_a_loop(name: str) -> None:
    keys = np.random.default_rng(0).integers(0, 2**32, (2, 3, 2), np.uint32)
    found = call(OF_KEYS[name], keys)
    each = [[call(OF_KEYS[name], key) for key in row] for row in keys]
    np.testing.assert_array_equal(found, np.array(each))


def test_counters_of_two_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tensor of more elements than 32 bits count is drawn with, on a small one."""
    monkeypatch.setattr("rlx.ops.random.random.ONE_WORD", 0)
    found = draw(EXACT["bits32"])
    np.testing.assert_array_equal(found, JAX["bits32"])


# -- dropout -------------------------------------------------------------------------------


def test_dropout_is_a_bernoulli_mask() -> None:
    x = np.random.default_rng(0).standard_normal((30, 40)).astype(np.float32)
    keep = np.float32(1 - 0.3)
    mask = draw(lambda key: R.bernoulli(key, 0.7, x.shape))
    found = draw(lambda key, v: v.dropout(key, rate=0.3), x)
    np.testing.assert_allclose(found, np.where(mask, x / keep, 0), rtol=1e-6)
    assert 0.65 < mask.mean() < 0.75


def test_the_gradient_of_dropout_has_its_mask() -> None:
    g = rlx.Graph("gradient")
    x, key = g.input("x", [50], "f64"), g.input("key", [2], "u32")
    y = x.dropout(key, rate=0.5)
    (dx,) = ad.grad(y.sum(), [x])
    g.set_outputs([y, dx])
    y_found, dx_found = interpret(g, {"x": np.ones(50), "key": R.key_data(1)})
    np.testing.assert_array_equal(y_found, dx_found)
    assert set(y_found) == {0.0, 2.0}


# -- the next token ------------------------------------------------------------------------


def probabilities(x: Array, top_k: int, top_p: float, temperature: float) -> Array:
    """What Sample draws from, one row at a time."""
    x = np.float64(x) / temperature
    if 0 < top_k < x.size:
        x = np.where(x < np.sort(x)[-top_k], -np.inf, x)
    p: Array = np.exp(x - x.max())
    p = p / p.sum()
    if top_p < 1:
        order = np.argsort(-p, kind="stable")
        last = np.searchsorted(np.cumsum(p[order]), top_p)
        p = np.where(p < p[order[last]], 0, p)
    return p / p.sum()


@pytest.mark.parametrize(
    ("top_k", "top_p", "temperature"),
    [(0, 1.0, 1.0), (3, 1.0, 1.0), (0, 0.6, 1.0), (4, 0.8, 0.5), (0, 1.0, 3.0), (50, 0.999, 1.0)],
)
def test_sample_draws_with_the_filtered_probabilities(
    top_k: int, top_p: float, temperature: float
) -> None:
    row = np.array([1.0, -0.5, 2.0, 0.3, 0.3, -3.0, 1.6], np.float32)
    count = 20_000
    found = draw(
        lambda key, x: x.expand((count, 7)).sample(
            key, top_k=top_k, top_p=top_p, temperature=temperature
        ),
        row,
    )
    expected = probabilities(row, top_k, top_p, temperature) * count
    counts = np.bincount(found, minlength=7)
    assert not counts[expected == 0].any()
    there = expected > 0
    chi = ((counts - expected)[there] ** 2 / expected[there]).sum()
    assert chi < 30  # of up to 6 degrees of freedom: 4e-5


def test_what_ties_with_the_last_survives() -> None:
    row = np.array([0.0, 1.0, 1.0, 1.0, -1.0], np.float32)
    for filters in ({"top_k": 2}, {"top_p": 0.5}):
        found = draw(lambda key, x, f=filters: x.expand((500, 5)).sample(key, **f), row)
        assert set(found) == {1, 2, 3}


def test_temperature_0_is_the_greatest_whatever_the_key() -> None:
    x = np.float32(np.random.default_rng(0).integers(0, 4, (6, 9)))
    for seed in (0, 1):
        found = draw(lambda key, v: v.sample(key, temperature=0.0), x, seed=seed)
        np.testing.assert_array_equal(found, x.argmax(-1))
    apart = np.float32(np.random.default_rng(0).permuted(np.tile(range(9), (6, 1)), axis=1))
    for cold in (1e-50, 1e-38, 1e-30):
        found = draw(lambda key, v, cold=cold: v.sample(key, temperature=cold), apart)
        np.testing.assert_array_equal(found, apart.argmax(-1))


def test_a_run_with_another_key_draws_anew() -> None:
    g = rlx.Graph("draws")
    g.set_outputs([R.normal(g.input("key", [2], "u32"), (8,))])
    f = rlx.Session("cpu").compile(g)
    first, again, other = (f.run({"key": R.key_data(seed)})[0] for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first, other).any()


def test_sample_is_categorical_without_filters() -> None:
    found = draw(lambda key, x: x.sample(key), JAX["logits"])
    np.testing.assert_array_equal(found, JAX["categorical"])
    assert not Sample.differentiable


# -- refusals ------------------------------------------------------------------------------

KEY = rlx.Graph().input("key", [2], "u32")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a seed is text": (lambda: R.key("7"), "a seed, or a number to fold in, is an int"),  # type: ignore[arg-type]
    "a seed of 65 bits": (lambda: R.key_data(1 << 64), "64 bits"),
    "a seed of floats": (lambda: R.key(KEY.cast("f32")), "integer scalar, found 2xf32"),
    "data of floats": (lambda: R.fold_in(KEY, KEY), "fold_in takes an integer scalar"),
    "a key of i64": (lambda: R.split(KEY.cast("i64")), "split: a key is u32"),
    "a shape of half a dim": (
        lambda: R.uniform(KEY, 2.5),  # type: ignore[arg-type]
        "'shape' is 2.5, expected Iterable",
    ),
    "fewer than no keys": (lambda: R.split(KEY, -1), "found num=-1"),
    "uniform integers": (lambda: R.uniform(KEY, (2,), "i32"), "uniform gives f16, bf16"),
    "an unknown dtype": (lambda: R.normal(KEY, (2,), "f12"), "unknown dtype 'f12'"),
    "randint of floats": (lambda: R.randint(KEY, (2,), 0, 5, "f32"), "randint gives integers"),
    "an empty range": (lambda: R.randint(KEY, (2,), 5, 5), r"\[5, 5\) is no range of i32"),
    "too wide a range": (lambda: R.randint(KEY, (2,), 0, 257, "u8"), "is no range of u8"),
    "bounds the wrong way": (
        lambda: R.truncated_normal(KEY, 2.0, 1.0),
        "no number lies between 2.0 and 1.0",
    ),
    "p of integers": (lambda: R.bernoulli(KEY, KEY), "bernoulli gives f16"),
    "many keys": (
        lambda: R.permutation(KEY.expand((3, 2)), 4),
        r"takes one key, found keys of shape \[3, 2\]",
    ),
    "an unknown length": (
        lambda: R.permutation(KEY, rlx.Graph().input("x", ["n"])),
        "length n of axis 0 is not known",
    ),
    "another shape": (
        lambda: R.categorical(KEY, KEY.cast("f32").expand((3, 2)), shape=(4,)),
        r"shape \[4\] does not end with \[3\]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(RlxError, match=message) as refusal:
        function()
    assert str(refusal.value).startswith(f"{__file__}:")


def test_moments_of_the_normal_distribution() -> None:
    x = np.float64(draw(lambda key: R.normal(key, (200, 500))))
    assert abs(x.mean()) < 0.015
    assert abs(x.std() - 1) < 0.01
    assert abs((np.abs(x) < 1).mean() - math.erf(math.sqrt(0.5))) < 0.01
