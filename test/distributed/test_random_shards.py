"""Random graphs with random specs on ranks give what one rank does."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
import pytest

import rlx
from rlx import P
from rlx.ir.value import Value
from support.random_graphs import random_case
from support.random_runs import difference
from support.sweeps import seeds

MESHES = (rlx.Mesh(a=2), rlx.Mesh(a=2, b=2), rlx.Mesh(a=3), rlx.Mesh(a=4, b=2))
ROUNDINGS = 4
"""Tolerances of one rank that many have: sums are taken in another order."""


def random_specs(rng: np.random.Generator, mesh: rlx.Mesh, values: Iterable[Value]) -> list[P]:
    found: list[P] = []
    for v in values:
        axes: list[str | None] = []
        for size in v.type.static_shape:
            ok = [a for a, n in mesh.shape.items() if a not in axes and size and size % n == 0]
            axes.append(ok[int(rng.integers(len(ok)))] if ok and rng.random() < 0.6 else None)
        found.append(P(*axes))
    return found


@pytest.mark.parametrize("seed", seeds(16, 40))
def test_random_graphs_on_ranks(seed: int) -> None:
    case = random_case(seed)
    graph, mesh, rng = case.graph, MESHES[seed % 4], np.random.default_rng(seed)
    if any(op.meets or op.short == "vary" for op in graph.nodes()):
        return
    leaves = [v for v in (*graph.inputs, *graph.params) if rng.random() < 0.75]
    specs = zip(leaves, random_specs(rng, mesh, leaves), strict=True)
    out = random_specs(rng, mesh, graph.outputs)
    sharded = rlx.shard(graph, mesh, {str(v.name): s for v, s in specs}, out=out)
    feeds, params = (
        [sharded.parts(arrays, rank) for rank in range(mesh.size)]
        for arrays in (case.feeds, case.params)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = rlx.distributed.interpret(sharded.graph, mesh, feeds, params)
    for found in results:
        for a, b, near in zip(found, case.expected, case.allowed, strict=True):
            said = difference(a, b, near * ROUNDINGS)
            assert said is None, f"seed {seed} on {mesh}: {said}\n{sharded.report}"
