"""Backends from outside that say which ops they run: graphs come to them in those ops alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError, UnsupportedError
from rlx.ir.op import op_class
from rlx.runtime.backend import InterpreterBackend
from rlx.runtime.interpreted import Interpreted

MATMUL = ("mir.matmul", "mir.add", "mir.gelu", "mir.reshape", "mir.expand")


class Claiming(InterpreterBackend):
    """The interpreter, of some ops alone, which keeps the graphs that come to it."""

    supported_ops: Any = MATMUL
    seen: list[rlx.Graph] = []  # noqa: RUF012 (shared on purpose)

    def load(self, graph: rlx.Graph, options: Any, shared: Any) -> Interpreted:
        self.seen.append(graph)
        return super().load(graph, options, shared)


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Claiming]]:
    from rlx.runtime import backend

    monkeypatch.setattr(backend, "_registry", dict(backend._registry))
    monkeypatch.setattr(Claiming, "supported_ops", MATMUL)
    Claiming.seen.clear()
    rlx.register_backend("mine", Claiming)
    yield Claiming


def layer() -> rlx.Graph:
    g = rlx.Graph("layer")
    x, w, b = g.input("x", [2, 3]), g.param("w", [3, 4]), g.param("b", [4])
    g.set_outputs({"y": g.linear(x, w, b, activation="gelu")})
    return g


def names(graph: rlx.Graph) -> set[str]:
    return {op.name for op in graph.nodes()}


def test_a_graph_comes_rewritten_and_gives_the_same() -> None:
    f, feeds = rlx.Session("mine").compile(layer()), {"x": np.ones((2, 3), np.float32)}
    expected = rlx.Session("interpret").compile(layer())
    for c in (f, expected):
        c.set_param("w", np.arange(12, dtype=np.float32))
        c.set_param("b", np.ones(4, np.float32))
    np.testing.assert_array_equal(f.run(feeds)[0], expected.run(feeds)[0])
    (seen,) = Claiming.seen
    assert names(seen) <= {*MATMUL, "mir.constant"} and "mir.matmul" in names(seen)


def test_what_a_claim_has_stays_as_it_is(mine: type[Claiming]) -> None:
    mine.supported_ops = lambda self: [op_class("hir.linear")]
    rlx.Session("mine").compile(layer())
    assert names(Claiming.seen[0]) == {"hir.linear"}


def test_all_that_is_left_is_refused_with_the_report() -> None:
    g = rlx.Graph()
    x = g.input("x", [4, 4])
    g.set_outputs([(x @ x + x).gelu().sin().cos(), g.linear(x, x, activation="silu")])
    with pytest.raises(UnsupportedError) as caught:
        rlx.Session("mine").compile(g)
    said = str(caught.value)
    assert "does not run 3 of the graph's nodes" in said
    assert "node 3, mir.sin" in said and "node 4, mir.cos" in said
    assert "hir.linear, which needs mir.silu" in said
    assert said.index("mir.cos") < said.index("native") and "mir.matmul x 1" in said
    assert not Claiming.seen


def test_devices_ask_the_claim() -> None:
    g = layer()
    assert rlx.supports("mine", "mir.matmul") and rlx.supports("mine", rlx.Activation.GELU)
    assert rlx.supports("mine", "hir.linear") and not rlx.supports("mine", "mir.sort")
    assert rlx.supports_graph("mine", g) and "mine" in rlx.devices_for(g)
    h = rlx.Graph()
    h.set_outputs((h.input("x", [4]) + 1.0).sin())
    found = rlx.first_unsupported_op("mine", h)
    assert found is not None and found[1].name == "mir.sin" and "mine" not in rlx.devices_for(h)
    row = next(r for r in rlx.device_report(h) if r.device == "mine")
    assert not row.supports_graph and "supported_ops have not it" in row.blocker


def test_bodies_are_rewritten_where_the_op_around_is_claimed(mine: type[Claiming]) -> None:
    mine.supported_ops = (*MATMUL, "control.cond")
    g = rlx.Graph()
    p, x, w = g.input("p", [], "bool"), g.input("x", [2, 3]), g.input("w", [3, 3])
    g.set_outputs(rlx.cond(p, lambda: g.linear(x, w, activation="gelu"), lambda: x + 1.0))
    f = rlx.Session("mine").compile(g)
    feeds = {"x": np.ones((2, 3), np.float32), "w": np.eye(3, dtype=np.float32)}
    for p_is in (True, False):
        expected = rlx.interpret(g, {**feeds, "p": p_is})
        np.testing.assert_array_equal(f.run({**feeds, "p": p_is})[0], expected[0])
    (cond,) = [op for op in Claiming.seen[0].nodes() if op.name == "control.cond"]
    assert names(cond.attrs["then"]) <= {*MATMUL, "mir.constant"}
    mine.supported_ops = MATMUL
    with pytest.raises(UnsupportedError, match=r"control\.cond"):
        rlx.Session("mine").compile(g)


def test_bodies_of_what_needs_no_control_are_put_in_its_place() -> None:
    g = rlx.Graph()
    x = g.input("x", [2, 2])
    g.set_outputs(rlx.checkpoint(lambda a: (a @ a).gelu())(x))
    rlx.Session("mine").compile(g)
    assert names(Claiming.seen[0]) == {"mir.matmul", "mir.gelu"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("mir.add", "expected names of ops in a list"),
        ([3], "found 3"),
        (["mir.ad"], "unknown op .mir.ad."),
    ],
)
def test_a_claim_that_is_none(said: Any, why: str, mine: type[Claiming]) -> None:
    mine.supported_ops = said
    with pytest.raises(GraphError, match=why):
        rlx.Session("mine").compile(layer())
