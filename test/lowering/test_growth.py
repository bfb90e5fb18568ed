"""Regions of long graphs: what it costs to find them, which they are, and how long one gets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, TypeAlias

import pytest

import rlx
from rlx._mlir import ir
from rlx.inspect import inspect_pipeline
from rlx.lowering.passes import fuse
from rlx.lowering.passes import grow as growth
from rlx.lowering.passes.grow import Group, Growth
from support.compiled import agrees
from support.random_graphs import random_case
from support.sweeps import seeds

Build: TypeAlias = Callable[[rlx.Graph, int], "rlx.Value | list[rlx.Value]"]

# -- what it costs ----------------------------------------------------------------------------


def chain(g: rlx.Graph, x: rlx.Value, n: int) -> rlx.Value:
    y = g.input(f"y{n}", x.shape)
    for i in range(n):
        x = [x + y, x * y, x.tanh(), x.maximum(y)][i % 4]
    return x


def products(g: rlx.Graph, n: int) -> rlx.Value:
    terms = [g.input(f"a{i}", [4, 6]) * g.input(f"b{i}", [4, 6]) for i in range(n)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def layers(g: rlx.Graph, n: int) -> rlx.Value:
    x = g.input("x", [4, 6])
    for i in range(n):
        x = ((x @ g.param(f"w{i}", [6, 6]) + g.param(f"b{i}", [6])).gelu() + x).softmax(-1)
    return x


def shared(g: rlx.Graph, n: int) -> rlx.Value:
    """Values with several uses, all of which one region can have, and a few that it can't."""
    values = [g.input("x", [4, 6]), g.input("y", [4, 6])]
    for i in range(n):
        values.append([values[-1] + values[-2], values[-1] * values[-3 % len(values)]][i % 2])
    return values[-1]


def refused(g: rlx.Graph, n: int) -> rlx.Value:
    """Rows, at every op of which there is one that rows cannot have in them."""
    x = g.input("x", [4, 6])
    for i in range(n):
        x = x + g.input(f"b{i}", [6]).exp()
    return x.softmax(-1)


def hub(g: rlx.Graph, n: int) -> list[rlx.Value]:
    """One value that many regions read."""
    x = g.input("x", [4, 6]).exp()
    return [(x * float(i + 2)).tanh() for i in range(n)]


SHAPES: dict[str, Build] = {
    "chain": lambda g, n: chain(g, g.input("x", [4, 6]), n),
    "products": products,
    "layers": lambda g, n: layers(g, n // 4),
    "shared": shared,
    "refused": refused,
    "hub": hub,
    "before and after rows": lambda g, n: chain(
        g, chain(g, g.input("x", [4, 6]), n).softmax(-1), n // 2
    ),
    "epilogue": lambda g, n: chain(g, g.input("x", [4, 6]) @ g.param("w", [6, 6]), n),
}


def calls(build: Build, n: int) -> int:
    """How many calls of Python functions it takes to build a graph and compile it to lir."""
    count = 0

    def seen(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        g = rlx.Graph("long")
        g.set_outputs(build(g, n))
        inspect_pipeline(g)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_as_many_ops_take_about_twice_the_work(shape: str) -> None:
    calls(SHAPES[shape], 4)  # what is made once for all
    few, many = calls(SHAPES[shape], 80), calls(SHAPES[shape], 160)
    assert many < 2.4 * few


# -- which regions there are ------------------------------------------------------------------


def one_by_one(
    group: Group,
    start: Iterable[ir.Value],
    neighbour: Callable[[ir.Value], ir.Operation | None],
    onward: Callable[[ir.Operation], Iterable[ir.Value]],
    refusal: Callable[[Group], str | None],
) -> Growth:
    """What ``extend`` does, with a claim for every op."""
    found, todo = Growth(), list(start)
    while todo:
        op = neighbour(todo.pop(0))
        if op is None:
            continue
        group.add(op)
        reason = refusal(group)
        if reason is None:
            todo += onward(op)
        else:
            found.refused.append((op, reason))
            group.cut(len(group.ops) - 1)
    return found


@pytest.mark.parametrize("seed", seeds(12, 40))
def test_ops_that_join_many_at_a_time_are_those_that_join_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = random_case(seed, 12).graph
    found = inspect_pipeline(g)
    monkeypatch.setattr(fuse, "extend", one_by_one)
    assert inspect_pipeline(g).fused == found.fused


# -- how long a region gets -------------------------------------------------------------------


@pytest.fixture
def at_most_six(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse, "LONGEST", 6)
    monkeypatch.setattr(growth, "LONGEST", 6)


@pytest.mark.usefixtures("at_most_six")
def test_a_long_chain_is_cut_and_the_report_says_so() -> None:
    g = rlx.Graph("cut")
    g.set_outputs(chain(g, g.input("x", [4, 6]), 15))
    report = inspect_pipeline(g).fusion
    assert report.count("the region has 6 ops, as many as one may have") == 2
    assert report.count("fused 1 x elementwise") == 3
    agrees(g)


@pytest.mark.usefixtures("at_most_six")
@pytest.mark.parametrize("end", ["rows", "epilogue"])
def test_what_stands_around_rows_and_behind_a_product_is_cut_too(end: str) -> None:
    g = rlx.Graph("cut")
    x = g.input("x", [4, 6])
    x = chain(g, x, 9).softmax(-1) if end == "rows" else x @ g.param("w", [6, 6])
    g.set_outputs(chain(g, x, 10))
    assert "the region has 6 ops, as many as one may have" in inspect_pipeline(g).fusion
    agrees(g)


@pytest.mark.usefixtures("at_most_six")
@pytest.mark.parametrize("first", ["sum", "term"])
def test_a_region_that_is_cut_leaves_few_values(first: str) -> None:
    """A term of a sum belongs to the addition of it, whichever operand it is."""
    g = rlx.Graph("sum")
    total = g.input("x", [4, 6])
    for i in range(12):
        term = (g.input(f"a{i}", [4, 6]) * g.input(f"b{i}", [4, 6])).tanh()
        total = total + term if first == "sum" else term + total
    g.set_outputs(total)
    assert inspect_pipeline(g).fused.count("mir.fused") == 6
    agrees(g)
