"""What an artifact holds, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlx.base.dim_text import without_ranges
from rlx.runtime.container import MAGIC
from rlx.runtime.encoding import places_of
from rlx.runtime.sized_variant import conditions_of

if TYPE_CHECKING:
    from rlx.base.dim_atoms import Symbol
    from rlx.runtime.artifact import Artifact
    from rlx.schedule.plan import Signature

__all__ = ["is_artifact", "lines_of"]


def is_artifact(path: str) -> bool:
    """Whether a file begins as an artifact does."""
    try:
        with open(path, "rb") as f:
            return f.read(len(MAGIC)) == MAGIC
    except OSError:
        return False  # whoever reads it says why


def lines_of(name: str, artifact: Artifact) -> list[str]:
    """The lines of ``rlx inspect``: the signature, the dims, and the variants with their guards."""
    return list(_lines(name, artifact))


def _lines(name: str, artifact: Artifact) -> Iterator[str]:
    carried = f"{len(artifact.values)} of {len(artifact.params)} params"
    yield f"{name}: an artifact for {artifact.target}; carries {carried}"
    for kind, signatures in (("input", artifact.inputs), ("output", artifact.outputs)):
        for s in signatures:
            yield f"  {kind} {_type(s)}"
    for symbol, (at, axis, factor, number) in places_of(artifact.inputs).items():
        told = f"that of axis {axis} of {artifact.inputs[at][0]}"
        if (factor, number) != (1, 0):
            told += f", which is {factor} * {symbol.name} + {number}"
        yield f"  dim {symbol.name}: {_range(symbol)}, {told}"
    for n, v in enumerate(artifact.variants):
        yield f"  variant {n}: {v.features}: {_variant(v)}"


def _type(s: Signature) -> str:
    name, dt, shape = s
    dims: Sequence[Any] = shape
    return f"{name}: {dt}[{', '.join(_plain(d) for d in dims)}]"


def _plain(d: Any) -> str:
    return without_ranges(str(d))


def _range(symbol: Symbol) -> str:
    return f"{symbol.least} on" if symbol.most is None else f"{symbol.least} to {symbol.most}"


def _variant(v: Any) -> str:
    sizes = getattr(v, "sizes", None)
    code = f"{len(v.kernels)} kernels" if hasattr(v, "kernels") else "a program"
    return f"{code}, for {conditions_of(sizes)}" if sizes is not None else code
