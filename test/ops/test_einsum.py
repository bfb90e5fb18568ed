"""einsum against NumPy's, compiled and interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError, ShapeError
from support.ad import vjp
from support.evaluate import call

G: Any = rlx.Graph("einsum")
RNG = np.random.default_rng(0)


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    return [RNG.standard_normal(s) for s in shapes]


CASES: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("ba", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("ij->ji", [(2, 3)]),
    ("i->i", [(3,)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("iij->ji", [(3, 3, 2)]),
    ("iii->i", [(3, 3, 3)]),
    ("ijij->ij", [(2, 3, 2, 3)]),
    ("...ii->...i", [(2, 4, 3, 3)]),
    ("i,j->ij", [(2,), (3,)]),
    ("i,i", [(3,), (3,)]),
    (",ij->ij", [(), (2, 3)]),
    ("i,ij,j->", [(2,), (2, 3), (3,)]),
    ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
    ("bqhd,bkhd->bhqk", [(2, 3, 2, 4), (2, 5, 2, 4)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("...ij,jk", [(2, 3, 4), (4, 2)]),
    ("i...,i...->...", [(3, 2, 4), (3, 4)]),
    ("i...->...", [(3, 2)]),
    ("...,...", [(2, 3), (3,)]),
    ("ij,ij->ij", [(2, 1), (2, 3)]),
    ("ij,jk,kl,lm->im", [(2, 3), (3, 4), (4, 5), (5, 2)]),
    ("ab,bc,ca", [(2, 3), (3, 4), (4, 2)]),
    ("ijk,ilm,njm,nlk->", [(2, 3, 4), (2, 5, 3), (4, 3, 3), (4, 5, 4)]),
    ("ij,k->i", [(2, 3), (4,)]),
    (" i j , j k -> k i ", [(2, 3), (3, 4)]),
    ("Ab,bC", [(2, 3), (3, 4)]),
    ("ij,jk->ik", [(2, 0), (0, 4)]),
    ("ii->i", [(0, 0)]),
]


@pytest.mark.parametrize(("subscripts", "shapes"), CASES, ids=[c[0] for c in CASES])
def test_as_numpy(subscripts: str, shapes: Any) -> None:
    given = arrays(*shapes)
    found = call(lambda *vs: G.einsum(subscripts, *vs), *given)
    expected = np.einsum(subscripts, *given)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_compiled() -> None:
    g = rlx.Graph("compiled")
    feeds, outputs, wanted = {}, [], []
    for n, (subscripts, shapes) in enumerate(CASES):
        given = [a.astype(np.float32) for a in arrays(*shapes)]
        leaves = [g.input(f"x{n}_{i}", a.shape) for i, a in enumerate(given)]
        feeds |= {str(v.name): a for v, a in zip(leaves, given, strict=True)}
        outputs.append(g.einsum(subscripts, *leaves))
        wanted.append(np.einsum(subscripts, *given))
    g.set_outputs(outputs)
    for found, want in zip(rlx.Session("cpu").compile(g).run(feeds), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=1e-5)


def ops_of(v: Any) -> list[str]:
    g = v.op.operands[0]
    while g.op is not None:
        g = g.op.operands[0]
    g.graph.set_outputs([v])
    return [n.short for n in g.graph.nodes()]


def test_a_chain_is_multiplied_in_the_cheap_order() -> None:
    g = rlx.Graph("chain")
    x, y, z = g.input("x", [100, 100]), g.input("y", [100, 100]), g.input("z", [100])
    out = g.einsum("ij,jk,k->i", x, y, z)
    g.set_outputs([out])
    sizes = [n.out.type.size for n in g.nodes() if n.short == "dot_general"]
    assert sizes == [100, 100]


def test_a_diagonal_is_a_view() -> None:
    g = rlx.Graph("diagonal")
    assert ops_of(g.einsum("bii->bi", g.input("x", [2, 3, 3]))) == ["reshape", "slice"]


def test_types_meet() -> None:
    found = call(
        lambda a, b: G.einsum("i,i", a, b), np.ones(3, np.int32), np.full(3, 2.5, np.float32)
    )
    assert found.dtype == np.float32
    assert found == 7.5
    whole = call(lambda a: G.einsum("ij->i", a), np.ones((2, 3), np.int16))
    assert whole.dtype == np.int16


def test_gradient() -> None:
    g = rlx.Graph("gradient")
    x, y = g.input("x", [3, 3, 2], "f64"), g.input("y", [2, 4], "f64")
    u = g.input("u", [4, 3], "f64")
    out = g.einsum("iij,jk->ki", x, y)
    g.set_outputs([v for v in vjp([out], [x, y], [u]) if v is not None])
    a, b, c = arrays((3, 3, 2), (2, 4), (4, 3))
    dx, dy = rlx.interpret(g, {"x": a, "y": b, "u": c})
    want = np.zeros_like(a)
    for i in range(3):
        want[i, i] = np.einsum("jk,k->j", b, c[:, i])
    np.testing.assert_allclose(dx, want)
    np.testing.assert_allclose(dy, np.einsum("iij,ki->jk", a, c))


def test_symbolic_dims() -> None:
    g = rlx.Graph("symbolic")
    x, y = g.input("x", ["n", 4]), g.input("y", [4, "m"])
    g.set_outputs([g.einsum("ij,jk->ki", x, y)])
    a, b = (v.astype(np.float32) for v in arrays((3, 4), (4, 2)))
    found = rlx.interpret(g.bind({"n": 3, "m": 2}), {"x": a, "y": b})[0]
    np.testing.assert_allclose(found, (a @ b).T, rtol=1e-5)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "error", "match"),
    [
        ("ij,jk", [(2, 3)], GraphError, "2 operands, found 1"),
        ("ij", [(2, 3, 4)], ShapeError, "2 labels for a tensor of rank 3"),
        ("ij...", [(2,)], ShapeError, "2 labels for a tensor of rank 1"),
        ("i,i", [(2,), (3,)], ShapeError, "'i' is 2 and 3"),
        ("ii", [(2, 3)], ShapeError, "both 'i'"),
        ("ij->ik", [(2, 3)], GraphError, "'k', which no operand has"),
        ("ij->ii", [(2, 3)], GraphError, "twice in the result"),
        ("...i->i", [(2, 3)], GraphError, "needs '...' too"),
        ("i1->i", [(2, 3)], GraphError, "'1' in 'i1->i'"),
        ("i..j", [(2, 3)], GraphError, r"'\.' in"),
    ],
)
def test_refusals(subscripts: str, shapes: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        call(lambda *vs: G.einsum(subscripts, *vs), *arrays(*shapes))


def test_a_diagonal_needs_a_static_size() -> None:
    with pytest.raises(ShapeError, match="needs a static size"):
        G.einsum("ii->i", G.input("square", ["n", "n"]))


def test_the_subscripts_come_first() -> None:
    with pytest.raises(GraphError, match="subscripts first"):
        call(lambda x: G.einsum(x, "ij"), *arrays((2, 3)))
