"""Symbolic dims: arithmetic of polynomials, exact division, and what is too large to be one."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, floordiv, mul, sub
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlx
from rlx.base.dim_atoms import Symbol
from rlx.base.dim_text import parse_dim
from rlx.base.dims import (
    DEGREE,
    TERMS,
    Dim,
    LimitError,
    SymDim,
    as_sizes,
    bind_dim,
    exact_quotient,
)
from rlx.errors import ShapeError

SYMBOLS = ("batch", "n", "past")
N = SymDim.symbol("n")

monomials = st.lists(st.sampled_from(SYMBOLS), max_size=3).map(
    lambda m: tuple(Symbol(s) for s in sorted(m))
)
polynomials = st.dictionaries(
    monomials, st.integers(-40, 40).filter(bool), min_size=1, max_size=5
).map(lambda terms: SymDim(terms) + 0)
symbolic = polynomials.filter(lambda d: isinstance(d, SymDim))


@given(polynomials, symbolic)
def test_a_product_divides_by_its_factors(p: Dim, q: SymDim) -> None:
    assert (p * q) // q == p if isinstance(p, SymDim) else (q * p) // q == p
    if isinstance(p, SymDim):
        assert (p * q) // p == q


@given(symbolic, symbolic, st.integers(1, 40))
def test_what_leaves_a_rest_does_not_divide(p: SymDim, q: SymDim, rest: int) -> None:
    """A rest of a lower degree than the divisor is one for good."""
    whole = p * q + rest
    assert isinstance(whole, SymDim)
    with pytest.raises(ShapeError, match="divides evenly by"):
        exact_quotient(whole, q)


@given(symbolic, polynomials)
def test_a_quotient_times_its_divisor_is_what_was_divided(a: SymDim, b: Dim) -> None:
    try:
        found = exact_quotient(a, b)
    except ShapeError:
        return
    assert b * found == a


@given(polynomials, polynomials, st.fixed_dictionaries({s: st.integers(0, 50) for s in SYMBOLS}))
def test_arithmetic_holds_at_every_size(a: Dim, b: Dim, sizes: dict[str, int]) -> None:
    x, y = bind_dim(a, sizes), bind_dim(b, sizes)
    for found, wanted in ((a + b, x + y), (a - b, x - y), (a * b, x * y)):
        assert bind_dim(found, sizes) == wanted
    assert parse_dim(str(a)) == a


EXACT = [
    ("1024*batch*past+1024*batch", "64*past+64", "16*batch"),
    ("n*n-1", "n-1", "n+1"),
    ("n*n+2*n*past+past*past", "n+past", "n+past"),
    ("6*n*past", "2*past", "3*n"),
    ("n+1", "n+1", "1"),
]


@pytest.mark.parametrize(("whole", "part", "quotient"), EXACT)
def test_division_by_a_sum(whole: str, part: str, quotient: str) -> None:
    a, b, wanted = (parse_dim(t) for t in (whole, part, quotient))
    assert isinstance(a, SymDim) and a // b == wanted


INEXACT = [
    ("n", "n+1"),
    ("n*n+1", "n-1"),
    ("2*n+1", "2"),
    ("n+past", "n"),
    ("n", "past"),
    ("n", "0"),
]


@pytest.mark.parametrize(("whole", "part"), INEXACT)
def test_what_does_not_come_out_even(whole: str, part: str) -> None:
    a = parse_dim(whole)
    assert isinstance(a, SymDim)
    with pytest.raises(ShapeError, match="divides evenly"):
        exact_quotient(a, parse_dim(part))


@pytest.mark.parametrize("two", [2, np.int64(2), np.uint8(2)])
def test_numbers_of_numpy_are_ints(two: Any) -> None:
    found = [N * two, two * N, N + two, two + N, N - two, two - N, (N * 4) // two]
    assert list(map(str, found)) == ["2*n", "2*n", "n+2", "n+2", "n-2", "-1*n+2", "2*n"]
    assert all(type(c) is int for d in found for _, c in d.terms)


@pytest.mark.parametrize("other", [0.5, None, "n", [1]])
def test_dims_are_computed_from_ints_alone(other: Any) -> None:
    for compute in (mul, add, sub, floordiv):
        with pytest.raises(ShapeError, match="dims are computed from dims and ints, found"):
            compute(N, other)


def test_reshape_and_split_divide_by_sums() -> None:
    g = rlx.Graph()
    x = g.input("x", ["batch", 16, parse_dim("past+1"), 64])
    assert str(x.reshape([-1, parse_dim("past+1"), 64]).type) == "16*batchxpast+1x64xf32"
    assert str(x.reshape([-1, parse_dim("64*past+64")]).type) == "16*batchx64*past+64xf32"
    y = g.input("y", [parse_dim("4*past+4")])
    assert [str(p.type) for p in y.split(4)] == ["past+1xf32"] * 4


def _squared(d: Dim) -> Dim:
    for _ in range(70):
        d = d * d
    return d


def _summed() -> Dim:
    total: Dim = 0
    for i in range(TERMS + 1):
        total = SymDim.symbol(f"s{i}") + total
    return total


def _multiplied() -> Dim:
    out: Dim = 1
    for i in range(40):
        out = (SymDim.symbol(f"s{i}") + 1) * out
    return out


TOO_LARGE = [
    (lambda: _squared(N), f"degree 128.*at most degree {DEGREE}"),
    (lambda: _squared(N * 3 - N), "numbers of|degree 128"),
    (_summed, f"of {TERMS + 1} terms"),
    (_multiplied, "of 128 terms"),
    (lambda: (N + 1) * (1 << 300), "numbers of 301 bits"),
    (lambda: parse_dim("*".join("n" * 1000)), "degree 65"),
]


@pytest.mark.parametrize(("make", "says"), TOO_LARGE, ids=range(len(TOO_LARGE)))
def test_a_dim_has_a_largest_polynomial(make: Callable[[], Dim], says: str) -> None:
    with pytest.raises(LimitError, match=says):
        make()


def test_sizes_are_known() -> None:
    assert as_sizes([3, 4]) == (3, 4)
    with pytest.raises(ShapeError, match=r"the dim n is symbolic; bind it with dims="):
        as_sizes([3, rlx.Dim("n")])


def test_numbers_beyond_64_bits_are_text() -> None:
    g = rlx.Graph("far")
    g.set_outputs(g.input("x", ["n"]).pad([0], [2**63]))
    assert f'high = ["{2**63}"]' in str(g.to_mlir())
    with pytest.raises(ShapeError, match=r"more than 2\*\*56 bytes"):
        rlx.Session("cpu").compile(g).run({"x": np.zeros(3, np.float32)})


@pytest.mark.parametrize("shape", [3, np.int8(3), "n", [np.int64(2), 3]])
def test_a_single_dim_is_a_shape(shape: Any) -> None:
    g = rlx.Graph("bits")
    dims = [shape] if isinstance(shape, int | str | np.integer) else shape
    assert list(g.random_bits(g.input("key", [2], "u32"), shape).shape) == [
        rlx.Dim(d) if isinstance(d, str) else d for d in dims
    ]
