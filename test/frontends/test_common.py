"""What the front ends share."""

from __future__ import annotations

import pytest

import rlx
from rlx.base.dims import SymDim
from rlx.errors import NameError, UnsupportedError
from rlx.frontends.common.leaves import drop_unused_params
from rlx.frontends.common.missing import MissingOps
from rlx.frontends.common.names import check_known, dim_named


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


def test_names_that_a_model_lacks() -> None:
    check_known("input", ["x"], {"x"})
    with pytest.raises(NameError, match=r"no input is called 'y'.*there are 'x'"):
        check_known("input", ["y"], {"x"})


def test_params_that_nothing_reads_are_dropped() -> None:
    g = rlx.Graph()
    x, w = g.input("x", [2]), g.param("w", [2])
    g.param("v", value=[1.0])
    g.set_outputs(x + w)
    drop_unused_params(g)
    assert [p.name for p in g.params] == ["w"]
    assert not g.param_values
    g.param("v", [3])
