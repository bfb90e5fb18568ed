"""Adjoints whose windows lie side by side: a convolution of one tap, and then windows."""

from __future__ import annotations

import re

import pytest

import rlx
from rlx.lowering.select.conv import select
from support.compiled import agrees, arrays


def graph(dt: str) -> rlx.Graph:
    """Adjoints of every rank, with windows of one to three columns, in groups, with epilogues."""
    g = rlx.Graph()
    a, b = g.input("a", [2, 4, 35], dt), g.input("b", [1, 4, 2, 3, 5], dt)
    c = g.input("c", [2, 6, 7, 33], dt)
    bias = g.param("bias", [5], dt)
    g.set_outputs([
        a.conv_transpose1d(g.param("u", [4, 3, 3], dt), None, 3, groups=2).relu(),
        b.conv_transpose3d(g.param("v", [4, 5, 2, 1, 2], dt), bias, (2, 1, 2)),
        c.conv_transpose2d(g.param("w", [6, 5, 2, 2], dt), bias, 2).relu(),
        c.conv_transpose2d(g.input("t", [6, 2, 2, 1], dt), None, (2, 1), groups=3),
    ])  # fmt: skip
    return g


@pytest.mark.parametrize("dt", ["f32", "f64", "bf16"])
def test_windows_side_by_side(dt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the bits of what runs over an input with zeros between the elements."""
    g = graph(dt)
    found = agrees(g)
    lir = rlx.inspect_pipeline(g, "cpu").lir
    assert len(re.findall(r"call @conv_\d+\(", lir)) == 4
    monkeypatch.setattr(select, "side_by_side", lambda node: False)
    monkeypatch.setenv("RLX_CACHE", "0")
    f = rlx.Session("cpu").compile(g)
    values = arrays(g)
    for v in g.params:
        f.set_param(str(v.name), values[str(v.name)])
    assert rlx.inspect_pipeline(g, "cpu").lir != lir
    again = f.run({str(v.name): values[str(v.name)] for v in g.inputs})
    for x, y in zip(found, again, strict=True):
        assert (x == y).all()


def test_what_is_spread() -> None:
    """Windows that overlap or are cut off, and sums with what has the result's shape, or lacks its
    first axis."""
    g = rlx.Graph()
    x, r = g.input("x", [1, 3, 5, 6]), g.input("r", [1, 4, 10, 12])
    w = g.param("w", [3, 4, 2, 2])
    g.set_outputs([
        x.conv_transpose2d(g.param("v", [3, 4, 3, 3]), None, 2, 1, 1),
        x.conv_transpose2d(w, None, 2, (1, 0)),
        x.conv_transpose2d(w, None, 2, 0, 1),
        x.conv_transpose2d(w, None, 2) + r,
        x.conv_transpose2d(w, None, 2) + g.input("s", [4, 10, 12]),
    ])  # fmt: skip
    agrees(g)
