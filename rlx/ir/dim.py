"""A dim as users declare it, with the range of its sizes."""

from __future__ import annotations

from rlx.base.dim_atoms import Symbol
from rlx.base.dims import SymDim
from rlx.ir.builders import public

__all__ = ["Dim"]


@public
class Dim(SymDim):
    """A named size that is known only when the graph is compiled or called.

        batch = rlx.Dim("batch", 1, 64)
        ids = g.input("ids", [batch, "tokens"], "i64")

    It is from ``least`` to ``most``, both included; without ``most`` it has no upper limit. A
    compile may rely on the range, and a call with another size is a ShapeError. Dims are added,
    subtracted, multiplied and divided (``//``, ``%``), with dims and with ints. A string is the dim
    of that name: with the range that the graph's inputs and params before it say, else without one.
    Raises NameError for a name that is no identifier, ShapeError for a range that is none.
    """

    __slots__ = ()

    def __init__(self, name: str, least: int = 0, most: int | None = None) -> None:
        super().__init__({(Symbol(name, least, most),): 1})
