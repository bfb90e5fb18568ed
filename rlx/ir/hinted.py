"""Objects that say of an attribute which they do not have what was probably meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Hinted"]


class Hinted:
    """A base whose AttributeError has a hint: a row of ``OBJECTS`` in ``rlx/ir/spellings.py``, or
    the nearest name."""

    __slots__ = ()

    if not TYPE_CHECKING:  # it would hide misspelt names from type checkers

        def __getattr__(self, name: str) -> object:
            kind, hint = type(self).__name__, ""
            if not name.startswith("_"):
                from rlx.ir.spellings import attribute_hint

                known = [n for n in dir(type(self)) if not n.startswith("_")]
                hint = attribute_hint(kind, name, known)
            raise AttributeError(f"{kind} has no attribute {name!r}{hint}", name=name, obj=self)
