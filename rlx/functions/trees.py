"""Trees of arrays: what a function takes and gives, as its structure and its arrays in a row.

A dict, list, tuple, named tuple or dataclass holds others. A leaf is an array: whatever has
``shape`` and ``dtype``. The rest is static: it belongs to the structure, and is compared by value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError, shown

__all__ = ["ARRAY", "Branch", "Leaf", "Static", "Tree", "flatten", "is_array", "rebuild", "taker"]

MAX_DEPTH = 200


def is_array(x: Any) -> bool:
    """Whether it is a leaf: an array of any library, a Value, or what stands for one."""
    return hasattr(x, "shape") and hasattr(x, "dtype") and not isinstance(x, type)


class Leaf:
    """The place of an array. There is one object of the class."""

    __slots__ = ()
    count = 1

    def paths(self, path: str) -> Iterator[str]:
        """The names of the leaves, from that of this place."""
        yield path


ARRAY = Leaf()


class Static:
    """What is no array. Equal are values of one type that are equal and, if they are numbers, of
    one sign: ``1``, ``1.0`` and ``True`` differ, as do ``0.0`` and ``-0.0``, in tuples, frozen sets
    and dataclasses too. Objects of other classes are equal as their ``==`` says."""

    __slots__ = ("key", "value")
    count = 0

    def __init__(self, value: Any) -> None:
        self.value, self.key = value, _key(value)

    def __eq__(self, other: object) -> bool:
        return type(other) is Static and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def is_value(self, x: Any) -> bool:
        """Whether ``x`` is this value."""
        return x is self.value or (type(x) is type(self.value) and _key(x) == self.key)

    def paths(self, path: str) -> Iterator[str]:
        """None."""
        return iter(())


def _key(value: Any) -> tuple[Any, ...]:
    """What is equal for values that are the same. Python takes 1, 1.0 and True for equal."""
    kind = type(value)
    if isinstance(value, np.generic):
        return (kind, value.tobytes())
    if isinstance(value, float):
        return (kind, float.hex(value))
    if isinstance(value, complex):
        return (kind, value.real.hex(), value.imag.hex())
    if isinstance(value, tuple):
        return (kind, *map(_key, value))
    if isinstance(value, frozenset):
        return (kind, frozenset(map(_key, value)))
    said = getattr(kind, "__dataclass_params__", None)
    if said is not None and said.eq and said.frozen:
        fields = [f for f in dataclasses.fields(kind) if f.compare]
        return (kind, *[_key(getattr(value, f.name)) for f in fields])
    return (kind, value)


class Branch:
    """A dict, list, tuple, named tuple or dataclass with the trees in it, by names: keys, positions
    or fields."""

    __slots__ = ("_hash", "children", "count", "keys", "kind", "names")

    def __init__(self, kind: type, names: tuple[Any, ...], children: tuple[Tree, ...]) -> None:
        self.kind, self.names, self.children = kind, names, children
        self.count = sum(c.count for c in children)
        plain = kind is not dict or all(type(name) is str for name in names)
        self.keys = None if plain else frozenset(map(_key, names))
        self._hash = hash((kind, names, children))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            type(other) is Branch
            and self._hash == other._hash
            and self.kind is other.kind
            and self.names == other.names
            and self.keys == other.keys
            and self.children == other.children
        )

    def __hash__(self) -> int:
        return self._hash

    def has_keys_of(self, x: dict[Any, Any]) -> bool:
        """Whether a dict's keys are these, of which 1, 1.0 and True are three."""
        return frozenset(map(_key, x)) == self.keys

    def paths(self, path: str) -> Iterator[str]:
        """The names of the leaves: ``params.w``, ``params.0``."""
        for name, child in zip(self.names, self.children, strict=True):
            yield from child.paths(f"{path}.{name}" if path else str(name))


Tree = Leaf | Static | Branch

Taker = Callable[[Sequence[Any], dict[str, Any]], list[Any] | None]


def taker(by_position: Sequence[Tree], by_name: Sequence[tuple[str, Tree]]) -> Taker:
    """A function of the arguments of a call to their leaves in a row. It gives None for arguments
    of another structure, or raises AttributeError, KeyError or TypeError; whether leaves are arrays
    is not asked. It is Python written for the structure, since a walk along it takes longer than a
    small graph runs."""
    writer = _Taker()
    places = [writer.variable() for _ in by_position]
    writer.check(f"len(args) != {len(places)} or len(kwargs) != {len(by_name)}")
    if places:
        writer.lines.append(f"{', '.join(places)}, = args")
    for place, tree in zip(places, by_position, strict=True):
        writer.visit(tree, place)
    for name, tree in by_name:
        writer.visit(tree, f"kwargs[{writer.constant(name)}]")
    return writer.function()


class _Taker:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leaves: list[str] = []
        self.constants: dict[str, Any] = {}
        self._count = 0

    def variable(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def constant(self, value: Any) -> str:
        """A name for it."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def check(self, condition: str) -> None:
        self.lines.append(f"if {condition}: return None")

    def visit(self, tree: Tree, place: str) -> None:
        """What takes the leaves of what an expression gives."""
        if isinstance(tree, Leaf):
            self.leaves.append(place)
            return
        if isinstance(tree, Static):
            self.check(f"not {self.constant(tree.is_value)}({place})")
            return
        x, kind = self.variable(), tree.kind
        self.lines.append(f"{x} = {place}")
        other = f"type({x}) is not {self.constant(kind)}"
        if not issubclass(kind, dict | tuple | list):
            self.check(other)
            places = [f"{x}.{name}" for name in tree.names]
        else:
            self.check(f"{other} or len({x}) != {len(tree.names)}")
            if kind is dict:
                if tree.keys is not None:
                    self.check(f"not {self.constant(tree.has_keys_of)}({x})")
                places = [f"{x}[{self.constant(name)}]" for name in tree.names]
            else:
                places = [self.variable() for _ in tree.names]
                if places:
                    self.lines.append(f"{', '.join(places)}, = {x}")
        for child, at in zip(tree.children, places, strict=True):
            self.visit(child, at)

    def function(self) -> Taker:
        body = "\n    ".join([*self.lines, f"return [{', '.join(self.leaves)}]"])
        names = dict(self.constants)
        exec(f"def take(args, kwargs):\n    {body}", names)
        return names["take"]


def flatten(
    x: Any, leaves: list[Any], where: str = "", *, sort: bool = True, depth: int = 0
) -> Tree:
    """The structure of ``x``, whose arrays are put into ``leaves``. Keys of dicts are sorted, or in
    their own order unless ``sort``. ``where`` names ``x`` in errors: GraphError for what is neither
    an array nor compared by value."""
    if is_array(x):
        leaves.append(x)
        return ARRAY
    names = _names(x, sort)
    if names is None:
        return _static(x, where)
    if depth == MAX_DEPTH:
        raise GraphError(f"{where or 'it'} is nested more than {MAX_DEPTH} deep")
    kind = type(x)
    get: Callable[[Any], Any] = (
        x.__getitem__ if isinstance(x, dict | tuple | list) else lambda name: getattr(x, name)
    )
    at = range(len(x)) if isinstance(x, tuple | list) else names
    children = tuple(
        flatten(get(i), leaves, f"{where}.{name}" if where else str(name), sort=sort,
                depth=depth + 1)
        for i, name in zip(at, names, strict=True)
    )  # fmt: skip
    return Branch(kind, tuple(names), children)


def _names(x: Any, sort: bool) -> Sequence[Any] | None:
    """The names of what a branch holds; None for what is none."""
    kind = type(x)
    if kind is dict:
        return _sorted(x) if sort else list(x)
    if isinstance(x, tuple) and hasattr(kind, "_fields"):
        return kind._fields  # pyright: ignore[reportAttributeAccessIssue]
    if kind is tuple or kind is list:
        return range(len(x))
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return [f.name for f in dataclasses.fields(x) if f.init]
    return None


def _sorted(x: dict[Any, Any]) -> list[Any]:
    try:
        return sorted(x, key=lambda k: (type(k).__name__, k))
    except TypeError:
        listed = ", ".join(sorted({type(k).__name__ for k in x}))
        raise GraphError(
            f"keys of dicts are put in order, which those of type {listed} have not; take strings"
        ) from None


def _static(x: Any, where: str) -> Static:
    try:
        found = Static(x)
        hash(found)
        return found
    except TypeError:
        what = f"{where} is {shown(x)}" if where else shown(x)
        raise GraphError(
            f"{what}, which is neither an array, nor a dict, list, tuple or dataclass of them, nor"
            " has a hash by which it could be known again as static; give an array, or a value that"
            " has one"
        ) from None


def rebuild(tree: Tree, values: Iterator[Any]) -> Any:
    """What has this structure, with the next of ``values`` in each place of an array."""
    if isinstance(tree, Leaf):
        return next(values)
    if isinstance(tree, Static):
        return tree.value
    parts = [rebuild(c, values) for c in tree.children]
    kind: Any = tree.kind
    if kind is tuple:
        return tuple(parts)
    if kind is list:
        return parts
    if issubclass(kind, tuple):
        return kind(*parts)
    named = dict(zip(tree.names, parts, strict=True))
    return named if kind is dict else kind(**named)
