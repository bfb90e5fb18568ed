"""The dims of ops' operands that must be numbers: those of which ``infer`` makes no symbol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from rlx.base.dims import Dim, SymDim
from rlx.errors import RlxError
from rlx.ir.graph import Graph
from support.samples import Case

__all__ = ["HEAD", "rows"]

_MOST = 10
"""The most dims of one size of a sample, of which every set is tried as one symbol."""

_LISTED = 6
"""The most dims of an op that are named."""

Place = tuple[int, int]
"""An operand, and one of its axes."""


HEAD = "| op | dims | why, in an example with a symbol n |\n|---|---|---|"
"""The first lines of the table."""


def rows(cases: Iterable[Case]) -> list[str]:
    """The rows of the table: one for each op with such dims, and the reason that its first sample
    with one gives."""
    found: dict[str, tuple[set[str], str]] = {}
    seen = set[tuple[str, int]]()
    for case in cases:
        if (case.op.name, case.number) in seen:
            continue  # on another element type
        seen.add((case.op.name, case.number))
        for place, why in _refused(case):
            found.setdefault(case.op.name, (set(), why))[0].add(_named(case, place))
    return [f"| `{op}` | {_listed(dims)} | {why} |" for op, (dims, why) in sorted(found.items())]


def _listed(dims: set[str]) -> str:
    listed = [f"`{d}`" for d in sorted(dims)]
    more = len(listed) - _LISTED
    return ", ".join(listed[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _named(case: Case, place: Place) -> str:
    """The operand, and the axis counted from the end: ranks differ."""
    operand, axis = place
    t = case.types[operand]
    assert t is not None, "it has dims"
    names = [f.name for f in case.op.operand_fields]
    name = names[operand] if operand < len(names) else f"{names[-1]}..."
    return f"{name}[{axis - t.rank}]"


def _refused(case: Case) -> Iterator[tuple[Place, str]]:
    """The places of a sample that no set of places with it makes a symbol of, and why not."""
    places: dict[Dim, list[Place]] = {}
    for operand, t in enumerate(case.types):
        for axis, d in enumerate(() if t is None else t.shape):
            if isinstance(d, int) and d > 1:
                places.setdefault(d, []).append((operand, axis))
    for size, equal in places.items():
        left, why = set(equal if len(equal) <= _MOST else ()), ""
        for chosen in _sets(equal):
            if left.isdisjoint(chosen):
                continue
            said = _said(case, chosen, size)
            if said is None:
                left -= chosen
            why = why or said or ""
        yield from ((place, why) for place in equal if place in left)


def _sets(places: list[Place]) -> Iterator[set[Place]]:
    """Sets of places, all of them first."""
    for count in range(len(places), 0, -1):
        yield from map(set, combinations(places, count))


def _said(case: Case, chosen: set[Place], size: Dim) -> str | None:
    """What an op says of a symbol at places; None if it takes it. Its attributes have the size or
    the symbol, whichever it takes."""
    symbol, said = SymDim.symbol("n"), None
    for attr in (size, symbol):
        g = Graph(case.op.name)
        leaves = [
            None if t is None else g.input(
                f"x{i}",
                tuple(symbol if (i, a) in chosen else d for a, d in enumerate(t.shape)),
                t.dtype,
            )
            for i, t in enumerate(case.types)
        ]  # fmt: skip
        kinds = {a.name for a in case.op.attr_fields if a.kind == "tuple[Dim, ...]"}
        attrs = {
            name: tuple(attr if d == size else d for d in value) if name in kinds else value
            for name, value in case.sample.attrs.items()
        }
        try:
            case.op(*leaves, **attrs)
        except RlxError as e:
            said = said or e.message
        else:
            return None
    return said
