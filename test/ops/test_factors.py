"""The sharding rules of ops: parts computed on ranks are parts of the whole result."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import rlx
from rlx.distributed import interpret
from rlx.distributed.partition.build import Builder
from rlx.distributed.partition.problem import Node, Problem
from rlx.distributed.partition.whole import on_rank
from rlx.distributed.spec import P
from rlx.ir.clone import leaves_of
from rlx.ir.factors import Factor
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret as interpret_one
from rlx.ir.op import Op
from rlx.types import f32
from support.samples import Case, cases_of, op_classes

RULED = [op for op in op_classes() if hasattr(op, "factors")]


def graph_of(node: Op) -> Graph:
    g = next(v.graph for v in node.operands if v is not None and v.graph is not None)
    g.set_outputs(list(node.results))
    return g


def ways(node: Node) -> list[tuple[Factor, int]]:
    """The factors along which an op can be cut, each with a number of ranks."""
    found: list[tuple[Factor, int]] = []
    for factor in sorted(node.factors.free, key=str):
        ranks = next((n for n in (2, 3, 5) if node.factors.divides(factor, n)), None)
        if ranks is not None:
            found.append((factor, ranks))
    return found


def on_ranks(g: Graph, factor: Factor, ranks: int, feeds: dict[str, np.ndarray]) -> None:
    mesh = rlx.Mesh(d=ranks)
    problem = Problem(g, mesh, {}, [P() for _ in g.outputs])
    (node,) = problem.nodes
    node.labels["d"] = factor
    builder = Builder(problem)
    specs = {str(v.name): builder.spec(builder.leaf_state(v)) for v in g.inputs}

    rank_graph, env = leaves_of(g, lambda v: on_rank(v, specs[str(v.name)], mesh))
    rank_graph.set_outputs(builder.run(env))
    own = [{n: specs[n].part(a, mesh, r) for n, a in feeds.items()} for r in range(ranks)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = interpret_one(g, feeds)
        for found in interpret(rank_graph, mesh, own):
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", RULED, ids=lambda op: op.name)
def test_parts_of_operands_give_parts_of_results(op: type[Op]) -> None:
    for case in cases_of(op, f32) if "T" in str(op.samples) else cases_of(op):
        check(case)


def check(case: Case) -> None:
    node = case.node()
    if not any(v is not None for v in node.operands):
        return
    g = graph_of(node)
    feeds = {f"x{i}": a for i, a in enumerate(case.arrays()) if a is not None}
    for factor, ranks in ways(Node(node)):
        on_ranks(g, factor, ranks, feeds)


@pytest.mark.parametrize("op", [op for op in RULED if op.linear], ids=lambda op: op.name)
def test_parts_of_sums_give_parts_of_sums(op: type[Op]) -> None:
    """What an op says of itself as linear: of a sum of operands it gives the sum of results."""
    for case in cases_of(op, f32):
        g, one, two = graph_of(case.node()), case.arrays(), case.arrays(seed=1)
        for group in op.linear:
            moved = [two[i] if i in group else a for i, a in enumerate(one)]
            total = [
                np.asarray(a + b) if i in group and a is not None and b is not None else a
                for i, (a, b) in enumerate(zip(one, two, strict=True))
            ]
            (x, y, z) = (
                interpret_one(g, {f"x{i}": a for i, a in enumerate(arrays) if a is not None})[0]
                for arrays in (one, moved, total)
            )
            np.testing.assert_allclose(x + y, z, rtol=1e-3, atol=1e-4)
