"""Names and arrays that a caller gives for the leaves of a graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from rlx.errors import NameError, among
from rlx.ir.arrays import typed_array
from rlx.ir.graph import Graph, check_param
from rlx.ir.location import caller

__all__ = ["check_known", "param_arrays", "unknown"]


def unknown(name: str, known: Collection[str], what: str) -> NameError:
    """The error for a name that nothing has."""
    return NameError(f"no {what} is called {name!r}{among(name, known)}", caller())


def check_known(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """NameError for a name that is not among those that are known."""
    for name in given:
        if name not in known:
            raise unknown(name, known, what)


def param_arrays(graph: Graph, given: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The values that were given for params of a graph, as arrays of their declared types and
    shapes. NameError, DTypeError and ShapeError for those that do not fit."""
    types = {str(v.name): v.type for v in graph.params}
    check_known("param", given, types)
    return {
        name: check_param(name, typed_array(v, name, types[name].dtype.name, "param"), types[name])
        for name, v in given.items()
    }
