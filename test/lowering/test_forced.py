"""Ops that are forced to the common way, or to a kernel family, whatever the dispatch is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError, UnsupportedError
from rlx.ir.interpreter import interpret
from support.tolerances import assert_close


def graph() -> rlx.Graph:
    g = rlx.Graph("g")
    x = g.input("x", [4, 16])
    rows = (x * 2.0).gelu().softmax(axis=-1)
    g.set_outputs([rows.transpose([1, 0]) + 1.0, g.topk(x, k=2)[0]])
    return g


def ways(**options: Any) -> Any:
    return rlx.dispatch_report_for_device(graph(), "cpu", **options)


def agrees(**options: Any) -> None:
    g = graph()
    feeds = {"x": np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)}
    for a, b in zip(
        rlx.Session("cpu").compile(g, **options).run(feeds), interpret(g, feeds), strict=True
    ):
        assert_close(a, b)


def test_ops_that_are_forced_common_stay_apart() -> None:
    plain, forced = ways(), ways(force_common=("gelu", "mir.softmax", "transpose"))
    assert not any("gelu" in label for label in plain.common)
    assert forced.common["common: gelu"] == forced.common["common: transpose"] == 1
    assert forced.rewritten["softmax"] == 1
    assert "elementwise: mul" in forced.native, "the others go as before"
    agrees(force_common=("gelu", "softmax", "transpose"))


def test_what_a_region_would_copy_in_can_be_forced() -> None:
    g = rlx.Graph("g")
    x, row = g.input("x", [4, 16]), g.input("row", [16])
    g.set_outputs((x.exp() + row.expand([4, 16])).tanh())
    found = rlx.dispatch_report_for_device(g, "cpu", force_common=("expand",))
    assert found.common["common: expand"] == 1 and "elementwise: exp+add+tanh" in found.native


def test_ops_that_are_forced_native_are_so_where_the_rest_is_common() -> None:
    found = ways(dispatch="common", force_native=("gelu", "softmax"))
    assert found.native["elementwise: gelu"] == 1 and found.native["rowwise: softmax"] == 1
    assert found.common["common: mul"] == 1
    agrees(dispatch="common", force_native=("gelu", "softmax"))


@pytest.mark.parametrize("dispatch", ["native", "common"])
def test_an_op_that_no_family_runs_cannot_be_forced_native(dispatch: str) -> None:
    with pytest.raises(
        UnsupportedError, match=r"test_forced\.py:\d+: force_native names mir\.topk, which no"
        r" kernel family of cpu runs here \(.*elementwise: .*\)",
    ):  # fmt: skip
        ways(dispatch=dispatch, force_native=("topk",))


def test_a_composite_that_no_family_runs_cannot_be_forced_native() -> None:
    g = rlx.Graph("g")
    g.set_outputs(g.inv(g.input("x", [3, 3])))
    with pytest.raises(UnsupportedError, match=r"force_native names mir\.inv"):
        rlx.dispatch_report_for_device(g, "cpu", force_native=("inv",))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"force_common": "gelu"}, "force_common is a sequence of names of ops, found 'gelu'"),
        ({"force_native": (1,)}, "force_native is a sequence of names of ops"),
        ({"force_common": ("gelo",)}, "force_common: 'mir.gelo' is no op of mir; did you mean"),
        ({"force_common": ("hir.linear",)}, "'hir.linear' is no op of mir.*blocks have expanded"),
        (
            {"force_common": ("gelu",), "force_native": ("mir.gelu",)},
            "force_common and force_native both name mir.gelu",
        ),
    ],
)
def test_wrong_names_are_refused(options: Any, match: str) -> None:
    with pytest.raises(GraphError, match=match):
        rlx.Session("cpu").compile(graph(), **options)


def test_what_is_forced_is_a_part_of_the_key() -> None:
    names = ("force_common", "force_native")
    assert all(f"{getattr(rlx.CompileOptions(), name)}" == "()" for name in names)
    assert rlx.CompileOptions(force_common=("gelu", "add")) == rlx.CompileOptions(
        force_common=("mir.add", "gelu")
    )


def test_a_graph_without_inputs_has_a_report_too() -> None:
    g = rlx.Graph("g")
    g.set_outputs(g.iota([4], dtype="f32").exp())
    assert "exp" in str(rlx.dispatch_report_for_device(g, "cpu"))
