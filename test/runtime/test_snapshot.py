"""What was compiled is a snapshot: nothing that becomes of its graph afterwards changes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compiler.graph_module import GraphModule
from rlx.ir.graph import Graph
from support.random_graphs import random_case

SIZES = (3, 2, 5)

COMPILED: dict[str, Callable[[Graph], Any]] = {
    "session": lambda g: rlx.Session().compile(g).run,
    "interpreter": lambda g: rlx.Session("interpret").compile(g).run,
    "high precision": lambda g: rlx.Session(precision="high").compile(g).run,
    "compile cache": lambda g: rlx.CompileCache().compile(rlx.Session(), g).run,
    "devices": lambda g: partial(rlx.GraphDevices(g).run, "cpu"),
    "a module": lambda g: rlx.Session().compile_module(GraphModule.of(g)).run,
}


def twice(dim: int | str) -> tuple[Graph, rlx.Value]:
    g = Graph()
    y = g.input("x", [dim]) * 2
    g.set_outputs(y)
    return g, y


def changed(g: Graph, y: rlx.Value) -> None:
    """The graph with all that can be changed in it changed."""
    g.set_outputs([y.unsqueeze(0), y])
    g.input("late", ["m"])
    g.param("p", value=np.float32(1))
    g.name = "other"


@pytest.mark.parametrize("dim", [3, "n"])
@pytest.mark.parametrize("how", COMPILED)
def test_later_changes_of_a_graph_are_not_seen(how: str, dim: int | str) -> None:
    g, y = twice(dim)
    run = COMPILED[how](g)
    first = run({"x": np.ones(3, np.float32)}) if how == "session" else None
    changed(g, y)
    for n in SIZES if dim == "n" else (3,):
        (found,) = run({"x": np.ones(n, np.float32)})
        assert found.tolist() == [2] * n
    assert first is None or first[0].tolist() == [2] * 3


def test_the_graph_of_what_was_compiled_is_a_copy() -> None:
    g, y = twice("n")
    f = rlx.Session().compile(g)
    f.graph.outputs.append(y * 10)
    f.graph.input("late", [1])
    f.graph.inputs.clear()
    assert len(f.run({"x": np.ones(4, np.float32)})) == 1
    assert f.signature == ([("x", y.type)], [y.type])


def test_options_are_copied() -> None:
    g, _ = twice("n")
    donate = [[0, 0]]
    f = rlx.Session().compile(g, donate=donate)
    donate.clear()
    state = np.ones(3, np.float32)
    f.run_in_place({}, {"x": state})
    assert state.tolist() == [2, 2, 2]


def test_a_graph_that_has_changed_is_another_for_a_cache_of_graphs() -> None:
    g, y = twice(3)
    cache, session, feeds = rlx.SubgraphCache(), rlx.Session(), {"x": np.ones(3, np.float32)}
    assert cache.compiled(session, g).run(feeds)[0].tolist() == [2, 2, 2]
    g.set_outputs(y * 10)
    assert cache.compiled(session, g).run(feeds)[0].tolist() == [20, 20, 20]
    assert cache.compiled(session, g) is cache.compiled(session, g)
    for name in ("a", "b"):
        g.set_outputs({name: y})
        assert cache.compiled(session, g).run(feeds)[name].tolist() == [2, 2, 2]


def test_a_training_step_keeps_its_graph() -> None:
    g = Graph()
    w = g.param("w", value=np.float32([1, 2]))
    loss = (g.input("x", [2]) * w).sum()
    g.set_outputs(loss)
    step = rlx.compile_training(g, rlx.optim.SGD(lr=0.5))
    changed(g, loss)
    step({"x": np.float32([1, 1])})
    assert step.params()["w"].tolist() == [0.5, 1.5]
    assert len(step.plan.graph.outputs) == 1


WITH_BODIES: dict[str, Callable[[Callable[..., Any], rlx.Value], rlx.Value]] = {
    "while": lambda body, x: rlx.while_loop(lambda v: v.sum() < 6, body, x),
    "scan": lambda body, x: rlx.scan(lambda c, _: (body(c), None), x, x.reshape([3]))[0],
    "cond": lambda body, x: rlx.cond(x.sum() < 9, body, lambda v: v, x),
    "custom": lambda body, x: rlx.custom_fn(body)(x),
    "checkpoint": lambda body, x: rlx.checkpoint(body)(x),
}


@pytest.mark.parametrize("op", WITH_BODIES)
def test_a_body_is_a_snapshot(op: str) -> None:
    bodies: list[Graph] = []

    def body(v: rlx.Value) -> rlx.Value:
        assert v.graph is not None
        bodies.append(v.graph)
        return v + 1

    g = Graph()
    g.set_outputs(WITH_BODIES[op](body, g.input("x", [3])))
    run, feeds = rlx.Session("interpret").compile(g).run, {"x": np.ones(3, np.float32)}
    first = run(feeds)[0].tolist()
    for b in bodies:
        b.set_outputs(b.inputs[0] * 100)
    assert rlx.Session("interpret").compile(g).run(feeds)[0].tolist() == first


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_are_snapshots(seed: int) -> None:
    """All that the caller still has in hand is changed after the compile: the graph, its leaves,
    and the arrays that were given for params."""
    case = random_case(seed)
    f = rlx.Session().compile(case.graph)
    own = {name: a.copy() for name, a in case.params.items()}
    for name, a in own.items():
        f.set_param(name, a)
    before = f.run(case.feeds)
    changed(case.graph, case.graph.outputs[0])
    for a in own.values():
        a.reshape(-1).view(np.uint8)[...] = 7
    after = f.run(case.feeds)
    assert [a.tobytes() for a in before] == [a.tobytes() for a in after]
