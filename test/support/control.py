"""Graphs with control flow, run in every way that there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx

__all__ = ["Build", "check", "outcomes"]

Build = Callable[[rlx.Graph], Any]


def outcomes(build: Build, feeds: dict[str, Any]) -> list[list[np.ndarray[Any, Any]]]:
    """What a graph gives by the interpreter, by kernel families, and by loop nests alone."""
    g = rlx.Graph("control")
    out = build(g)
    g.set_outputs(out if isinstance(out, rlx.Value) else list(out))
    results = [rlx.interpret(g, feeds)]
    for dispatch in ("native", "common"):
        compiled = rlx.Session().compile(g, dispatch=dispatch)
        results.append(compiled.run(feeds))
    return results


def check(build: Build, feeds: dict[str, Any], *expected: Any) -> None:
    """Hold every outcome to what is expected."""
    for found in outcomes(build, feeds):
        for a, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-6)
