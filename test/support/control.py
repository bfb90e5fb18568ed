"""Graphs with control flow, run in every way that there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import rlx
from rlx.compiler.driver import compile_graph
from rlx.runtime.executable import Executable
from rlx.targets import find_target

__all__ = ["Build", "check", "outcomes"]

Build = Callable[[rlx.Graph], Any]
Array = np.ndarray[Any, Any]


def outcomes(build: Build, feeds: dict[str, Any]) -> list[list[Array]]:
    """What a graph gives by the interpreter, by kernel families, by loop nests alone, and with
    every loop as steps of the schedule."""
    g = rlx.Graph("control")
    out = build(g)
    g.set_outputs(out if isinstance(out, rlx.Value) else list(out))
    results = [rlx.interpret(g, feeds)]
    for dispatch in ("native", "common"):
        compiled = rlx.Session().compile(g, dispatch=dispatch)
        results.append(compiled.run(feeds))
    return [*results, _by_steps(g, feeds)]


def _by_steps(g: rlx.Graph, feeds: dict[str, Any]) -> list[Array]:
    # No value is small enough for a loop's kernel, or to stay in a loop that does not change it.
    with mock.patch("rlx.lowering.select.loop_kernels.ELEMENTS", 0):
        executable = Executable(compile_graph(g, find_target("cpu"))[0])
    for name, value in g.param_values.items():
        executable.weights.set_param(name, value)
    inputs = [np.asarray(feeds[str(v.name)], v.dtype.numpy) for v in g.inputs]
    return list(executable.run_slots(*inputs))


def check(build: Build, feeds: dict[str, Any], *expected: Any) -> None:
    """Hold every outcome to what is expected."""
    for found in outcomes(build, feeds):
        for a, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-6)
