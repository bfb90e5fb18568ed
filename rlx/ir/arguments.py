"""Messages for calls whose arguments Python itself has refused.

A function says by its annotations what it takes. They are not looked at before a call, which would
take longer than most calls, but after one that has failed with an error that is not ours.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import numbers
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any

import numpy as np

from rlx.base.dims import SymDim
from rlx.errors import a_type, shown
from rlx.ir.spellings import argument_hint

__all__ = ["wrong_argument"]


def wrong_argument(
    method: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    error: Exception | None = None,
) -> str | None:
    """The first argument that does not fit its annotation, in words; None if all of them do.

    ``error`` is what the call raised: for a number or a list that is beyond what Python or NumPy
    can hold, the argument that is such.
    """
    signature = inspect.signature(function)
    names = [n for n in signature.parameters if n not in ("self", "cls")]
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as e:
        what = str(e)
        unknown = [k for k in kwargs if k not in names]
        takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        if unknown and not takes_any and (hint := argument_hint(unknown[0], names)):
            # The cause, where Python says that another one is missing.
            what = f"got an unexpected keyword argument {unknown[0]!r}{hint}"
        return f"{method}: {what}; it takes ({', '.join(names)})"
    plain = inspect.unwrap(function)
    owner = sys.modules.get(type(args[0]).__module__) if plain.__name__ == "__init__" else None
    scope = {**(vars(owner) if owner else {}), **getattr(plain, "__globals__", {})}
    given: list[tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        p = signature.parameters[name]
        if name in ("self", "cls"):
            continue
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            given += value.items() if isinstance(value, dict) else [(name, v) for v in value]
            continue
        given.append((name, value))
        if isinstance(p.annotation, str) and not _fits(value, p.annotation, scope):
            return f"{method}: {name!r} is {shown(value)}, expected {_plain(p.annotation)}"
    return _beyond(method, given, error)


def _beyond(method: str, given: list[tuple[str, Any]], error: Exception | None) -> str | None:
    """Which argument is too large, or nested too deep, for the error that it made."""
    if isinstance(error, OverflowError | MemoryError | ValueError):
        for name, value in given:
            if any(_is_extreme(v) for v in (value, *(value if _is_short(value) else ()))):
                return f"{method}: {name!r} is {shown(value)}, which is out of range ({error})"
    if isinstance(error, RecursionError | ValueError):
        for name, value in given:
            if _depth(value) > 64:
                return f"{method}: {name!r} is {a_type(value)} nested too deep"
    return None


def _is_short(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) < 100


def _is_extreme(v: Any) -> bool:
    if isinstance(v, str | bytes):
        return "\0" in str(v)
    if isinstance(v, bool) or not isinstance(v, int | float):
        return False
    return not -(2**40) < v < 2**40  # nan too


def _depth(value: Any) -> int:
    depth = 0
    while isinstance(value, list | tuple) and value and depth < 1000:
        value, depth = value[0], depth + 1
    return depth


def _plain(annotation: str) -> str:
    text = annotation.replace("np.ndarray[Any, Any]", "Array")
    return text.replace("Callable[..., Any]", "a function")


def _is_a(name: str, value: Any) -> bool:
    """Whether a value's class, or a base of it, has this name: the class itself may be known to
    type checkers alone."""
    return any(c.__name__ == name for c in type(value).__mro__)


def _is_int(v: Any) -> bool:
    return isinstance(v, numbers.Integral) and not isinstance(v, bool)


def _is_number(v: Any) -> bool:
    return isinstance(v, numbers.Real | np.generic)


_KINDS: dict[str, Callable[[Any], bool]] = {
    "Any": lambda v: True,
    "object": lambda v: True,
    "None": lambda v: v is None,
    "bool": lambda v: isinstance(v, bool | np.bool_),
    "int": _is_int,
    "float": _is_number,
    "complex": lambda v: isinstance(v, numbers.Complex | np.generic),
    "Number": _is_number,
    "Callable": callable,
    "type": lambda v: isinstance(v, type),
    "DimLike": lambda v: _is_int(v) or isinstance(v, str | SymDim),
    "Array": lambda v: isinstance(v, np.ndarray | np.generic | list | tuple | numbers.Real),
    "ndarray": lambda v: isinstance(v, np.ndarray | np.generic),
}
"""What the names of annotations mean, where that is more or less than being of the class."""

_MANY = ("Sequence", "Iterable", "Collection", "list", "tuple", "set", "frozenset", "Iterator")
_BY_NAME = ("Mapping", "dict")


@cache
def _parsed(annotation: str) -> ast.expr:
    return ast.parse(annotation, mode="eval").body


def _fits(value: Any, annotation: str, scope: Mapping[str, Any]) -> bool:
    return _fits_node(value, _parsed(annotation), scope)


def _fits_node(value: Any, node: ast.expr, scope: Mapping[str, Any]) -> bool:
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _fits_node(value, left, scope) or _fits_node(value, right, scope)
        case ast.Constant(value=None):
            return value is None
        case ast.Constant(value=str() as text):
            return _fits(value, text, scope)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return _fits_name(value, name, scope)
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            return _fits_many(value, name, inner, scope)
        case _:
            return True


def _fits_name(value: Any, name: str, scope: Mapping[str, Any]) -> bool:
    if name in _KINDS:
        return _KINDS[name](value)
    found = scope.get(name, getattr(builtins, name, None))
    if found is None:
        return _is_a(name, value)
    if isinstance(found, UnionType):
        return any(_fits_type(value, part) for part in found.__args__)
    return _fits_type(value, found)


def _fits_type(value: Any, found: Any) -> bool:
    if getattr(found, "_is_protocol", False):
        wanted = [n for n in vars(found) if n not in _PROTOCOL and callable(vars(found)[n])]
        return all(hasattr(value, n) for n in wanted)
    if found is float:
        return _is_number(value)
    origin = getattr(found, "__origin__", found)
    if not isinstance(origin, type):
        return True
    if origin in (list, tuple, Iterable, Sequence, Collection) and isinstance(value, str | bytes):
        return False
    return isinstance(value, origin)


_PROTOCOL = ("__init__", "__subclasshook__", "__class_getitem__", "_is_protocol")


def _fits_many(value: Any, name: str, inner: ast.expr, scope: Mapping[str, Any]) -> bool:
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name in _BY_NAME:
        return isinstance(value, Mapping) and all(
            _fits_node(k, parts[0], scope) and _fits_node(v, parts[-1], scope)
            for k, v in value.items()
        )
    if name == "Literal":
        known = [p.value for p in parts if isinstance(p, ast.Constant)]
        return isinstance(value, str | int) and value in known
    if name not in _MANY:
        return _fits_name(value, name, scope)
    scalar = isinstance(value, np.ndarray) and not value.ndim
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable) or scalar:
        return False
    if isinstance(value, Iterator):  # looking would use it up
        return name in ("Iterable", "Iterator")
    if name == "tuple" and not isinstance(parts[-1], ast.Constant):
        pairs = list(zip(value, parts, strict=False))
        return len(pairs) == len(parts) and all(_fits_node(v, p, scope) for v, p in pairs)
    return all(_fits_node(v, parts[0], scope) for v in value)
