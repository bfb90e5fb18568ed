"""What the front ends share."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import rlx
from rlx.base.dims import SymDim
from rlx.errors import ModelError, ToolchainError, UnsupportedError
from rlx.frontends.common.check import check_results
from rlx.frontends.common.leaves import drop_unused_params
from rlx.frontends.common.missing import MissingOps
from rlx.frontends.common.names import dim_named


def test_missing_ops_are_listed_at_once_with_counts_and_places() -> None:
    missing = MissingOps("ops of the model", "see the docs")
    missing.refuse()
    missing.add("rare", "model.py:3")
    for line in range(5):
        missing.add("often", f"model.py:{line}")
    missing.add("often", "model.py:0", times=2)
    with pytest.raises(UnsupportedError) as e:
        missing.refuse()
    assert e.value.message == (
        "these ops of the model are not there yet: often x 7 (model.py:0, model.py:1, model.py:2,"
        " 2 more places), rare x 1 (model.py:3); see the docs"
    )


def test_dims_have_the_nearest_name() -> None:
    assert dim_named("2*n+1", []) == SymDim.symbol("n") * 2 + 1
    first = dim_named("batch size", [])
    assert [str(first), str(dim_named("batch size", [first])), str(dim_named("3d!", []))] == [
        "batch_size", "batch_size_", "_3d_",
    ]  # fmt: skip


def test_params_that_nothing_reads_are_dropped() -> None:
    g = rlx.Graph()
    x, w = g.input("x", [2]), g.param("w", [2])
    g.param("v", value=[1.0])
    g.set_outputs(x + w)
    drop_unused_params(g)
    assert [p.name for p in g.params] == ["w"]
    assert not g.param_values
    g.param("v", [3])


def test_a_graph_that_differs_is_refused() -> None:
    a = np.ones((2, 2), np.float32)
    check_results({"y": a}, {"y": a}, 1e-4)
    with pytest.raises(ModelError, match="in the output 'y': the largest error is 1 of"):
        check_results({"y": a}, {"y": a * 0.5}, 1e-4)
    with pytest.raises(ModelError, match=r"it is float32\[2, 2\], expected float32\[2\]"):
        check_results({"y": a}, {"y": a[0]}, 1e-4)
    with pytest.raises(ModelError, match="error is inf"):
        check_results({"y": a}, {"y": a * np.nan}, 1e-4)


def test_torch_is_asked_for_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match=r"needs PyTorch: pip install 'rlx\[torch\]'"):
        rlx.from_torch(None)
