"""Atoms of dim polynomials: symbols, and quotients, remainders, minima and maxima of dims."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rlx.errors import NameError, ShapeError, shown

if TYPE_CHECKING:
    from rlx.base.dims import Dim

__all__ = ["Atom", "Call", "Symbol", "operand"]

_NAME = re.compile(r"[A-Za-z_]\w*\Z")


class Atom:
    """An integer that is no polynomial of others. ``key`` is its text, which says all of it;
    ``is_factor`` tells whether the text is one in a product."""

    __slots__ = ("_hash", "depth", "is_factor", "key", "weight")

    def __init__(self, key: str, depth: int, weight: int, is_factor: bool) -> None:
        self.key, self.depth, self.weight, self.is_factor = key, depth, weight, is_factor
        self._hash = hash(key)

    def leaves(self) -> set[Symbol]:
        """The symbols in it."""
        raise AssertionError(type(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.key == other.key

    def __lt__(self, other: Atom) -> bool:
        return self.key < other.key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.key


class Symbol(Atom):
    """A name for a size from ``least`` to ``most``; None is no limit. A name with a range is not
    the symbol that the name alone is."""

    __slots__ = ("least", "most", "name")

    def __init__(self, name: str, least: int = 0, most: int | None = None) -> None:
        if not isinstance(name, str) or not _NAME.match(name):
            raise NameError(f"{name!r} is no name for a dim; use letters, digits and underscores")
        _check_range(name, least, most)
        self.name, self.least, self.most = name, least, most
        within = f"[{least}..{'' if most is None else most}]"
        super().__init__(name if within == "[0..]" else name + within, 0, 1, True)

    @staticmethod
    def inner(name: str) -> Symbol:
        """A symbol of the compiler's own, whose name no user's dim can have."""
        found = Symbol("inner")
        found.name = name
        Atom.__init__(found, name, 0, 1, True)
        return found

    @property
    def has_range(self) -> bool:
        """Whether it was declared with a range."""
        return self.key != self.name

    def leaves(self) -> set[Symbol]:
        return {self}

    def admits(self, size: int) -> bool:
        """Whether a size is in the range."""
        return self.least <= size and (self.most is None or size <= self.most)

    def checked(self, size: Any) -> Any:
        """A size, if it is one that the symbol may have; ShapeError if not."""
        if isinstance(size, int) and (
            size < self.least or (self.most is not None and size > self.most)
        ):
            least, most = self.least, self.most
            within = f"{least} or more" if most is None else f"from {least} to {most}"
            raise ShapeError(f"the dim {self.name!r} is {within}, found {size}")
        return size


def _check_range(name: str, least: Any, most: Any) -> None:
    numbers = (least,) if most is None else (least, most)
    if any(isinstance(n, bool) or not isinstance(n, int) for n in numbers) or not (
        0 <= least <= (least if most is None else most) < 1 << 63
    ):
        raise ShapeError(
            f"the range of the dim {name!r} is from an int >= 0 to one that is no less, found"
            f" {shown(least)} to {shown(most)}"
        )


class Call(Atom):
    """A quotient rounded down ("//"), a minimum or a maximum ("min", "max") of dims, in normal
    form: ``rlx.base.dims`` alone makes it."""

    __slots__ = ("args", "kind")

    def __init__(self, kind: str, args: tuple[Dim, ...], depth: int, weight: int) -> None:
        self.kind, self.args = kind, args
        if kind == "//":
            key = "//".join(map(operand, args))
        else:
            key = f"{kind}({','.join(map(str, args))})"
        super().__init__(key, depth, weight, kind != "//")

    def leaves(self) -> set[Symbol]:
        return {s for a in self.args if not isinstance(a, int) for s in a.leaves()}


def operand(d: Dim) -> str:
    """A dim as an operand of a division."""
    if isinstance(d, int):
        return str(d) if d >= 0 else f"({d})"
    alone = len(d.terms) == 1 and d.terms[0][1] == 1 and len(d.terms[0][0]) == 1
    return str(d) if alone and d.terms[0][0][0].is_factor else f"({d})"
