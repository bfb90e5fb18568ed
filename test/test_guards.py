"""Decisions about dims by sizes at hand, and the guards that they leave."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from test_dim_expressions import sizes, symbolic, trees

from rlx.base.dim_text import parse_dim
from rlx.base.dims import SymDim, bind_dim, floor_div, maximum
from rlx.base.guards import Deciding, deciding
from rlx.errors import ShapeError

N = SymDim.symbol("n")
B = SymDim.symbol("b", 1, 64)
RELATIONS = ("lt", "le", "gt", "ge", "eq", "ne")

questions = st.lists(st.tuples(st.sampled_from(RELATIONS), trees, trees), max_size=6)


def _asked(asked: Any, a: Any, b: Any) -> Any:
    return getattr(operator, asked)(a, b)


@given(questions, sizes, st.lists(sizes, max_size=8))
def test_answers_hold_where_the_guards_do(
    asked: list[Any], at: dict[str, int], others: list[dict[str, int]]
) -> None:
    rows = [(kind, symbolic(x), symbolic(y)) for kind, x, y in asked]
    assume(all(x is not None and y is not None for _, x, y in rows))
    try:
        with Deciding(at) as made:
            answers = [_asked(*row) for row in rows]
    except ShapeError:
        return  # a division by zero
    assert all(g.holds(at) for g in made.guards)
    for sizes_now in (at, *others):
        try:
            if not all(g.holds(sizes_now) for g in made.guards):
                continue
            bound = [(kind, bind_dim(x, sizes_now), bind_dim(y, sizes_now)) for kind, x, y in rows]
        except ShapeError:
            continue
        assert [_asked(*row) for row in bound] == answers


def _guards(text: str) -> list[str]:
    """The guards of deciding a condition at n = 100, b = 8."""
    with Deciding({"n": 100, "b": 8}) as made:
        eval(text, {"n": N, "b": B})
    return [str(g) for g in made.guards]


GUARDS = [
    ("b >= 1, b <= 64, b < 100, n >= 0, n != -1", []),
    ("b * 4 <= 64", ["b[1..64] <= 16"]),
    ("n > 4, n > 2, n > 8, n > 8", ["n >= 9"]),
    ("n > 4, n == 1, n < 1", ["n >= 5"]),
    ("b == 1", ["b[1..64] >= 2"]),
    ("b == 64", ["b[1..64] <= 63"]),
    ("n == 384", ["n != 384"]),
    ("n == 384, n < 200", ["n <= 199"]),
    ("n == 100", ["n == 100"]),
    ("n % 4 == 0", ["n % 4 == 0"]),
    ("n % 6 == 0", ["n % 6 != 0"]),
    ("n % 8 == 4", ["n % 8 == 4"]),
    ("n % 8 == 5, n % 7 > 1", ["n % 8 != 5", "n % 7 >= 2"]),
    ("n % 8 < 5", ["n % 8 <= 4"]),
    ("(n + b) % 4 == 0, (n + b) % 5 > 0", ["(n+b[1..64]) % 4 == 0", "(n+b[1..64]) % 5 != 0"]),
    ("n // 4 * 3 >= n", ["3*(n//4)-n <= -1"]),
    ("2 * n == 5", []),
    ("int(n), n + 1 > b, n * b > 3", ["n == 100"]),
    ("int(n * 2 + 1), int(n)", ["n == 100"]),
    ("n + b > 20, n + b > 10", ["n+b[1..64] >= 21"]),
    ("bool(n)", ["n >= 1"]),
    ("b > n", ["n-b[1..64] >= 0"]),
    ("list(range(b))", ["b[1..64] == 8"]),
    ("float(n)", ["n == 100"]),
    ("b in (1, n)", ["b[1..64] >= 2", "n-b[1..64] != 0"]),
    ("b == 'b', b == None", []),
]


@pytest.mark.parametrize(("text", "wanted"), GUARDS)
def test_guards(text: str, wanted: list[str]) -> None:
    assert sorted(_guards(text)) == sorted(wanted)


def test_numbers_within_the_block() -> None:
    with Deciding({"n": 100}):
        assert int(N * 2 + 1) == 201
        assert float(N) == 100.0
        assert [*range(N // 50)] == [0, 1]
        with pytest.raises(ShapeError, match=r"b.*has no size yet: there is none for b"):
            bool(B > 3)
    assert deciding() is None


@pytest.mark.parametrize("ask", [int, float, bool, lambda d: d < 3, lambda d: d >= 3, range])
def test_outside_of_it_a_dim_has_no_size(ask: Any) -> None:
    with pytest.raises(
        ShapeError, match=r"the dim n has no size yet; bind it with dims=\{'n': 8\}"
    ):
        ask(N)


def test_what_ranges_decide_needs_no_sizes() -> None:
    assert B >= 1 and B < 65 and bool(B) and parse_dim("min(n,3)") <= 3
    assert B != 0 and B == B * 1 and B != N


def test_dims_of_one_hash_are_not_compared() -> None:
    """Python's hashes of -1 and -2 are the same, so those of n - b and n - 2*b may be."""
    one, two = N - B, N - 2 * B
    with Deciding({"n": 9, "b": 1}) as decided:
        assert one <= 20 and two <= 30
        worked_out = [str(f(d, 7)) for f in (floor_div, maximum) for d in (one, two)]
    assert [str(g) for g in decided.guards] == ["n-b[1..64] <= 20", "n-2*b[1..64] <= 30"]
    assert len({*worked_out}) == 4
