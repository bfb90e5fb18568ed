"""Row-wise regions as programs get them: operands of every layout, one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.interpreter import interpret
from rlx.ir.value import Value
from support.tolerances import assert_close

Shapes = list[tuple[int, ...]]

CASES: dict[str, tuple[Callable[..., Value], Shapes, str]] = {
    "one value a row beside another, of as many rows as columns": (
        lambda x, b: x.sum(axes=-1) + b,
        [(5, 5), (5,)],
        "f32",
    ),
    "two axes, of which the operand is turned": (
        lambda x, y: (x.transpose((2, 1, 0)) * y).sum(axes=(1, 2)),
        [(4, 5, 6), (5, 4)],
        "f32",
    ),
    "two axes, kept": (
        lambda x: x.exp().mean(axes=(-1, -2), keepdims=True),
        [(4, 5, 6)],
        "f32",
    ),
    "halves with factors": (
        lambda x, g, b: x.layer_norm(g, b),
        [(4, 5, 37), (37,), (37,)],
        "f16",
    ),
    "rows of a slice": (
        lambda x, m: (x.slice((0, 3), (4, 20), (1, 2)) + m).softmax(),
        [(4, 50), (1, 20)],
        "bf16",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_is_one_region(name: str) -> None:
    build, shapes, dt = CASES[name]
    g = rlx.Graph()
    g.set_outputs([build(*(g.input(f"x{i}", s, dt) for i, s in enumerate(shapes)))])
    rng = np.random.default_rng(0)
    kind = rlx.types.DTYPES[dt].numpy
    feeds: dict[str, Any] = {
        f"x{i}": rng.standard_normal(s).astype(kind) for i, s in enumerate(shapes)
    }
    compiled = rlx.Session("cpu").compile(g)
    (found,) = compiled.run(feeds)
    assert_close(found, interpret(g, feeds)[0])
    report = compiled.reports[0].compilation.dispatch
    work = [n for n in report.native if not n.startswith("copy")]
    assert not report.common and len(work) == 1 and work[0].startswith("rowwise"), report


def test_a_reduction_of_a_literal_that_is_no_constant() -> None:
    """Beyond some size a spread literal is not folded, and its rows are those of the expand."""
    g = rlx.Graph("ones")
    x = g.input("x", [1])
    many = 1 << 27
    ones = g.constant(np.ones((), np.float32)).expand([many])
    g.set_outputs(ones.sum().reshape([1]) + x)
    (found,) = rlx.Session("cpu").compile(g).run({"x": np.zeros(1, np.float32)})
    assert found == many
