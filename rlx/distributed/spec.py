"""Specs: how a tensor lies on a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.base.mesh import Mesh
from rlx.errors import GraphError, NameError, ShapeError, did_you_mean, shown
from rlx.ir.graph import Graph

__all__ = ["Array", "P", "checked"]

Array = np.ndarray[Any, Any]


class P(tuple[str | None, ...]):
    """How a tensor lies on a mesh: for each dim the axis along which it is cut, or None.

    ``P("data", None)`` cuts rows in as many blocks as there are ranks along ``data``. Dims that are
    left out at the end are whole, and so is a tensor of ``P()``. GraphError for an axis that is
    named twice.
    """

    __slots__ = ()

    def __new__(cls, *axes: str | None) -> P:
        named = [a for a in axes if a is not None]
        for a in named:
            if not isinstance(a, str):
                raise GraphError(f"P takes names of axes, or None, found {shown(a)}")
        if len(set(named)) < len(named):
            raise GraphError(f"P names an axis twice in {tuple(axes)}; an axis cuts one dim")
        return super().__new__(cls, axes)

    def cuts(self, mesh: Mesh, rank: int, what: str) -> list[tuple[int, str, int]]:
        """The dims that are cut for a tensor of so many dims: each with its axis and the ranks
        along it. ShapeError if there are fewer, NameError for an axis that the mesh has not."""
        if len(self) > rank:
            raise ShapeError(f"{what} has {rank} dims, and {self!r} is for {len(self)}")
        return [(d, a, mesh[a].ranks) for d, a in enumerate(self) if a is not None]

    def part(self, array: Any, mesh: Mesh, rank: int) -> Array:
        """What a rank has of a whole array. ShapeError for a dim that cannot be cut evenly."""
        found = np.asarray(array)
        at = mesh.coordinates(rank)
        for dim, axis, ranks in self.cuts(mesh, found.ndim, "an array"):
            length = found.shape[dim]
            if length % ranks:
                raise ShapeError(
                    f"dim {dim} of an array of {list(found.shape)} is no multiple of {ranks}, the"
                    f" ranks along {axis!r}"
                )
            each = length // ranks
            found = found.take(range(at[axis] * each, (at[axis] + 1) * each), dim)
        return np.ascontiguousarray(found)

    def __repr__(self) -> str:
        return f"P({', '.join(map(repr, self))})"


def checked(graph: Graph, mesh: Mesh, specs: Mapping[str, P]) -> dict[str, P]:
    """The specs that a user gave for inputs and params, once they fit; see ``P.cuts``."""
    leaves = {str(v.name): v for v in (*graph.inputs, *graph.params)}
    for name, spec in specs.items():
        if name not in leaves:
            hint = did_you_mean(name, leaves)
            raise NameError(f"shard: no input or param is called {shown(name)}{hint}")
        if not isinstance(spec, P):
            raise GraphError(f"shard: the spec of {name!r} is {shown(spec)}, expected a P")
        spec.cuts(mesh, leaves[name].rank, repr(name))
    return dict(specs)
