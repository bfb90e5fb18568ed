"""Quotients, minima, maxima and ranges of symbolic dims, against Python's ints."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlx
from rlx.base.dim_bounds import bounds
from rlx.base.dim_text import LENGTH, parse_dim
from rlx.base.dims import (
    DEPTH,
    WEIGHT,
    Dim,
    LimitError,
    SymDim,
    bind_dim,
    ceil_div,
    exact_quotient,
    floor_div,
    maximum,
    minimum,
)
from rlx.errors import NameError, RlxError, ShapeError

Tree = Any
"""A number, the name of a symbol, or an operation on two trees."""

LEAVES: dict[str, SymDim] = {
    "a": SymDim.symbol("a"), "b": SymDim.symbol("b", 1, 6), "c": SymDim.symbol("c", 2),
}  # fmt: skip
DIMS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y, "//": floor_div,
    "%": lambda x, y: x - floor_div(x, y) * y, "min": minimum, "max": maximum,
    "ceil": ceil_div,
}  # fmt: skip
INTS: dict[str, Callable[[int, int], int]] = {
    "+": int.__add__, "-": int.__sub__, "*": int.__mul__, "//": int.__floordiv__,
    "%": int.__mod__, "min": min, "max": max, "ceil": lambda x, y: -(-x // y),
}  # fmt: skip
leaves = st.one_of(st.integers(-9, 9), st.sampled_from(sorted(LEAVES)))
trees = st.recursive(
    leaves, lambda inner: st.tuples(st.sampled_from(sorted(DIMS)), inner, inner), max_leaves=7
)
sizes = st.fixed_dictionaries(
    {"a": st.integers(0, 12), "b": st.integers(1, 6), "c": st.integers(2, 14)}
)


def value(tree: Tree, leaf: Mapping[str, Any], rows: Mapping[str, Callable[..., Any]]) -> Any:
    """What a tree is, by a table of operations."""
    if isinstance(tree, tuple):
        kind, x, y = tree
        return rows[kind](value(x, leaf, rows), value(y, leaf, rows))
    return leaf[tree] if isinstance(tree, str) else tree


def symbolic(tree: Tree) -> Dim | None:
    """The dim that a tree is; None where that is a division by zero whatever the sizes."""
    try:
        return value(tree, LEAVES, DIMS)
    except RlxError:
        return None
    except ZeroDivisionError:
        return None


@given(trees, sizes)
def test_an_expression_is_what_ints_make_of_it(tree: Tree, at: dict[str, int]) -> None:
    d = symbolic(tree)
    try:
        wanted = value(tree, at, INTS)
    except ZeroDivisionError:
        return
    assert d is not None
    assert bind_dim(d, at) == wanted
    low, high = bounds(d)
    assert low <= wanted <= high
    partly = bind_dim(d, {"a": at["a"]})
    assert bind_dim(partly, at) == wanted


@given(trees)
def test_text_is_read_back(tree: Tree) -> None:
    d = symbolic(tree)
    if d is not None:
        assert parse_dim(str(d)) == d
        assert pickle.loads(pickle.dumps(d)) == d


FORMS = [
    ("(4*n+3)//4", "n"),
    ("(5*n)//4", "n//4+n"),
    ("(6*n+4)//8", "(3*n+2)//4"),
    ("(n//4)//3", "n//12"),
    ("(n//4+1)//3", "(n+4)//12"),
    ("(n-n%4)//4", "n//4"),
    ("0-(0-n)//4", "(n+3)//4"),
    ("n%4//4", "0"),
    ("n%4", "-4*(n//4)+n"),
    ("(n*m+3)//n", "m+3//n"),
    ("n*m//(m*4)", "n//4"),
    ("(b[1..6]-1)//b[1..6]", "0"),
    ("min(n,n+1,64)", "min(64,n)"),
    ("min(b[1..6],6)", "b[1..6]"),
    ("max(b[1..6],2,1)", "max(2,b[1..6])"),
    ("max(max(n,m),min(n,m))", "max(m,n)"),
    ("min(min(n,4),m)", "min(4,m,n)"),
    ("2*(n//4)*min(n,m)", "2*min(m,n)*(n//4)"),
    ("n[0..]", "n"),
    (" ( n + 1 ) * 2 ", "2*n+2"),
]


@pytest.mark.parametrize(("text", "form"), FORMS)
def test_normal_forms(text: str, form: str) -> None:
    assert str(parse_dim(text)) == form
    assert parse_dim(form) == parse_dim(text)


UNREAD = [
    "", "n+", "n n", "min(n", "min()", "(n", "n)", "n[1]", "n[..3]", "3n+*", "n**2", "n/2", "1.5",
    "9" * 79, "(" * (4 * DEPTH + 1) + "n" + ")" * (4 * DEPTH + 1), "n" + " " * LENGTH + "n",
]  # fmt: skip


@pytest.mark.parametrize("text", UNREAD)
def test_text_that_is_no_dim(text: str) -> None:
    with pytest.raises(NameError, match="is no dim; write"):
        parse_dim(text)


def _nested() -> Dim:
    d: Dim = SymDim.symbol("n")
    for i in range(DEPTH + 1):
        d = minimum(d * 3 // 5 + SymDim.symbol(f"m{i}"), 100)
    return d


def _wide() -> Dim:
    many = [SymDim.symbol(f"m{i}") for i in range(7)]
    return minimum(*(m * 3 + o * p for m in many for o in many for p in many))


@pytest.mark.parametrize(
    ("make", "says"),
    [(_nested, f"{DEPTH} inside one another"), (_wide, f"at most {WEIGHT}")],
    ids=("deep", "wide"),
)
def test_an_expression_has_a_largest_size(make: Callable[[], Dim], says: str) -> None:
    with pytest.raises(LimitError, match=says):
        make()


def test_division_by_zero() -> None:
    n = SymDim.symbol("n")
    for divide in (lambda: n // 0, lambda: floor_div(4, 0), lambda: parse_dim("n%0")):
        with pytest.raises(ShapeError, match="is divided by zero"):
            divide()
    with pytest.raises(ShapeError, match="is divided by zero"):
        bind_dim(7 // n, {"n": 0})
    with pytest.raises(ShapeError, match="divides evenly by 0"):
        exact_quotient(n, 0)
    assert exact_quotient(12, 4) == 3
    with pytest.raises(ShapeError, match="cannot tell that 12 divides evenly by 5"):
        exact_quotient(12, 5)


def test_operators_of_ints_and_dims() -> None:
    n = SymDim.symbol("n")
    found = [7 // n, 7 % n, n % 4, *divmod(n, 4), *divmod(7, n), -n, abs(n), abs(-n)]
    wanted = [7 // 3, 7 % 3, 3, 0, 3, 2, 1, -3, 3, 3]
    assert [bind_dim(d, {"n": 3}) for d in found] == wanted
    seven: Any = np.int64(7)
    assert str(seven // n) == "7//n"


# -- ranges ----------------------------------------------------------------------------------


def test_a_range_is_part_of_a_graph() -> None:
    g = rlx.Graph()
    x = g.input("x", [rlx.Dim("batch", 1, 64), "tokens"])
    y = g.input("y", ["batch", 1])
    g.set_outputs(x + y)
    assert str((x + y).type) == "batch[1..64]xtokensxf32"
    assert str(x.reshape([-1, "batch"]).type) == "tokensxbatch[1..64]xf32"
    assert g.symbols == {"batch", "tokens"}
    assert [str(d) for d in g.bind({"batch": 64}).inputs[0].shape] == ["64", "tokens"]
    with pytest.raises(ShapeError, match="'batch' is from 1 to 64, found 65"):
        g.bind({"batch": 65})
    with pytest.raises(ShapeError, match=r"batch\[2\.\.64\] is batch\[1\.\.64\] in another leaf"):
        g.param("w", [rlx.Dim("batch", 2, 64)])
    with pytest.raises(ShapeError, match=r"tokens\[1\.\.\] is tokens in another leaf"):
        g.input("z", [rlx.Dim("tokens", 1)])


def test_a_call_outside_a_range() -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", [rlx.Dim("n", 2), 3]) * 2)

    f = rlx.Session("interpret").compile(g)
    assert f(np.ones((2, 3), np.float32))[0].shape == (2, 3)
    with pytest.raises(ShapeError, match="'n' is 2 or more, found 1"):
        f(np.ones((1, 3), np.float32))


@pytest.mark.parametrize(
    ("least", "most"), [(-1, None), (3, 2), (0, 1 << 63), (True, 4), (1.5, None), (0, "4")]
)
def test_what_is_no_range(least: Any, most: Any) -> None:
    with pytest.raises(RlxError, match=r"range of the dim 'n'|least|most"):
        rlx.Dim("n", least, most)
    with pytest.raises(ShapeError, match="the range of the dim 'n' is from an int"):
        SymDim.symbol("n", least, most)


def test_the_name_of_a_dim() -> None:
    with pytest.raises(NameError, match="is no name for a dim"):
        rlx.Dim("2n")
