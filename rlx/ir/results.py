"""The results of a run, by position and by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from rlx.errors import NameError, among
from rlx.ir.location import caller

__all__ = ["Results", "by_name"]

T = TypeVar("T")


class Results(list[T]):
    """The outputs of a run in order, as a list, and by name: ``results[0]``, ``results["y"]``.

    ``names`` are those of its elements; ``by_name`` makes one.
    """

    __slots__ = ("names",)

    names: tuple[str, ...]

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> list[T]: ...
    def __getitem__(self, key: Any) -> Any:
        """By position or name; NameError for a name that no output has."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self.names:
            raise NameError(f"no output is called {key!r}{among(key, self.names)}", caller())
        return super().__getitem__(self.names.index(key))

    if not TYPE_CHECKING:  # it would hide misspelt names from type checkers

        def __getattr__(self, name: str) -> object:
            hint = (
                f"; write results[{name!r}]"
                if name in object.__getattribute__(self, "names")
                else ""
            )
            raise AttributeError(f"Results has no attribute {name!r}{hint}", name=name, obj=self)


def by_name(values: list[T], names: tuple[str, ...]) -> list[T]:
    """Values in a list, by the names of their outputs too where these have any."""
    if not names:
        return values
    found = Results(values)  # a constructor of ours would cost more than the list
    found.names = names
    return found
