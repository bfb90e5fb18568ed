"""Random graphs through artifacts: saved, loaded, given params anew, and run at other sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.compiler.aot import compile_artifact
from rlx.errors import ShapeError
from rlx.ir.graph import Graph
from rlx.runtime.artifact import Artifact
from rlx.runtime.session import CompiledGraph
from support.random_calls import Results, run, unlike
from support.random_graphs import Case
from support.symbolic import is_bound, numbers_of, with_symbols

__all__ = ["disagreement"]

SIZES = (1, 2, 5, 12, 33)


def disagreement(case: Case) -> str | None:
    """How runs of a graph's artifact differ from those of the graph compiled here, or None."""
    rng = np.random.default_rng([case.seed, 9])
    carried = {n: a for n, a in case.params.items() if rng.random() < 0.6}
    f = rlx.Session().compile(case.graph)
    loaded = _loaded(compile_artifact(case.graph, params=carried))
    given = [case.params, {n: a[::-1].copy() if a.ndim else a for n, a in case.params.items()}]
    for params in given:
        for name, a in params.items():
            f.set_param(name, a)
            if params is not given[0] or name not in carried:
                loaded.set_param(name, a)
        found = _unlike(run(loaded, case.feeds), run(f, case.feeds))
        if found is not None:
            return found
    symbolic = [s for s, _ in with_symbols(case.graph)[:1] if not _sized_params(s)]
    return next((found for s in symbolic if (found := _at_sizes(s, case.seed))), None)


def _at_sizes(graph: Graph, seed: int) -> str | None:
    loaded = _loaded(compile_artifact(graph, dims={"n": (1, 40)}))
    rng = np.random.default_rng([seed, 10])
    params = {str(v.name): numbers_of(rng, v.dtype.name, v.type.static_shape) for v in graph.params}
    for size in SIZES:
        if not is_bound(graph, {"n": size}):
            continue
        bound = graph.bind({"n": size})
        f = rlx.Session().compile(bound)
        for name, a in params.items():
            f.set_param(name, a)
            loaded.set_param(name, a)
        feeds = {str(v.name): numbers_of(rng, v.dtype.name, v.type.static_shape)
                 for v in bound.inputs}  # fmt: skip
        try:
            given = run(loaded, feeds)
        except ShapeError as e:
            if "no variant" in e.message:  # which is said, and no wrong answer
                continue
            raise
        found = _unlike(given, run(f, feeds))
        if found is not None:
            return f"at n = {size}: {found}"
    return None


def _sized_params(graph: Graph) -> bool:
    return any(not isinstance(d, int) for v in graph.params for d in v.shape)


def _loaded(artifact: Any) -> CompiledGraph:
    return rlx.Session().load(Artifact.from_bytes(bytes(artifact)))


def _unlike(found: Results, expected: Results) -> str | None:
    """As ``unlike``; of faults, whose places an artifact knows less of, only that they are ones."""
    if isinstance(found, str) and isinstance(expected, str):
        return None
    return unlike(found, expected)
