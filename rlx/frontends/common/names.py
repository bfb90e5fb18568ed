"""Names of a model as names of ours."""

from __future__ import annotations

import re
from collections.abc import Collection

from rlx.base.dim_text import parse_dim
from rlx.base.dims import Dim, SymDim
from rlx.errors import NameError

__all__ = ["dim_named", "word"]


def word(name: str) -> str:
    """The identifier that is nearest to a name."""
    found = re.sub(r"\W", "_", name)
    return found if re.match(r"[A-Za-z_]", found) else f"_{found}"


def dim_named(name: str, taken: Collection[Dim]) -> Dim:
    """A dim of that name, or of the nearest name that is one and that no dim has yet."""
    try:
        return parse_dim(name)
    except NameError:
        nearest = word(name)
        while SymDim.symbol(nearest) in taken:
            nearest += "_"
        return SymDim.symbol(nearest)
