"""Control flow by the host: which graphs run, how often, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import FaultError, GraphError, NameError

TWO = {"x": np.float32([1, 2]), "n": np.int64(40)}


def graph(build: Any, **inputs: Any) -> rlx.Graph:
    g = rlx.Graph()
    g.set_outputs(build(*[g.input(k, *kind) for k, kind in inputs.items()]))
    return g


DOUBLE = graph(lambda x: x * 2, x=([2],))
NEGATIVE = graph(lambda x: -x, x=([2],))
SMALL = graph(lambda x, n: x.sum() < n.cast("f32"), x=([2],), n=([], "i64"))


def test_run_if_runs_the_chosen_graph_alone() -> None:
    cache, session = rlx.SubgraphCache(), rlx.Session()
    for pred, expected in ((SMALL, [2, 4]), (True, [2, 4]), (np.bool_(False), [-1, -2])):
        (found,) = rlx.run_if(cache, session, pred, DOUBLE, NEGATIVE, TWO)
        assert found.tolist() == expected
    assert len(cache) == 3
    fresh = rlx.SubgraphCache()
    rlx.run_if(fresh, session, True, DOUBLE, NEGATIVE, TWO)
    assert len(fresh) == 1, "the other branch is not compiled"


def test_run_while_compiles_each_graph_once() -> None:
    cache, session = rlx.SubgraphCache(), rlx.Session()
    (found,) = rlx.run_while(cache, session, SMALL, DOUBLE, TWO)
    assert found.tolist() == [16, 32]
    assert (cache.misses, cache.hits) == (2, 7)
    (same,) = rlx.run_while(cache, session, SMALL, DOUBLE, TWO, max_iterations=4)
    assert same.tolist() == [16, 32]


def test_names_say_what_outputs_replace() -> None:
    swap = graph(lambda a, b: (b, a + b), a=([], "i64"), b=([], "i64"))
    below = graph(lambda b: b < 50, b=([], "i64"))
    start = {"a": np.int64(0), "b": np.int64(1)}
    run = rlx.run_while(rlx.SubgraphCache(), rlx.Session(), below, swap, start)
    assert [int(v) for v in run] == [34, 55]
    turned = graph(lambda a, b: (a + b, b), a=([], "i64"), b=([], "i64"))
    run = rlx.run_while(rlx.SubgraphCache(), rlx.Session(), below, turned, start, ["b", "a"])
    assert [int(v) for v in run] == [55, 34]


def test_what_does_not_fit_is_refused() -> None:
    cache, session = rlx.SubgraphCache(), rlx.Session()
    with pytest.raises(FaultError, match=r"test_subgraphs.py:\d+: .*still true after 3 rounds"):
        rlx.run_while(cache, session, SMALL, DOUBLE, TWO, max_iterations=3)
    with pytest.raises(GraphError, match="2 names for 1 outputs of the body"):
        rlx.run_while(cache, session, SMALL, DOUBLE, TWO, ["x", "n"])
    with pytest.raises(NameError, match="nothing was given for 'y', which the body replaces"):
        rlx.run_while(cache, session, SMALL, DOUBLE, TWO, ["y"])
    with pytest.raises(GraphError, match=r"test gives float32\[2\], expected one bool"):
        rlx.run_while(cache, session, NEGATIVE, DOUBLE, TWO)
    with pytest.raises(GraphError, match=r"pred gives float32\[2\], expected one bool"):
        rlx.run_if(cache, session, NEGATIVE, DOUBLE, NEGATIVE, TWO)
    with pytest.raises(NameError, match="'x'"):
        rlx.run_if(cache, session, True, DOUBLE, NEGATIVE, {})
    with pytest.raises(GraphError, match="compile takes a Graph, found a function"):
        rlx.run_if(cache, session, True, lambda: 3, NEGATIVE, TWO)  # type: ignore[arg-type]
