"""What is wrong with the arguments of a builder method that Python itself has refused.

A method says by its annotations what it takes. They are not looked at before a call, which would
take longer than most calls, but after one that has failed with an error that is not ours.
"""

from __future__ import annotations

import inspect
import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.dims import SymDim

__all__ = ["wrong_argument"]


def wrong_argument(
    method: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """The first argument that does not fit its annotation, in words; None if all of them do."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as e:
        takes = ", ".join(n for n in signature.parameters if n != "self")
        return f"{method}: {e}; it takes ({takes})"
    for name, value in bound.arguments.items():
        p = signature.parameters[name]
        named = p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        if named and isinstance(p.annotation, str) and not _fits(value, p.annotation):
            return f"{method}: {name!r} is {_shown(value)}, expected {p.annotation}"
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


def _is_value(v: Any) -> bool:
    from rlx.ops.value import Value

    return isinstance(v, Value)


def _is_int(v: Any) -> bool:
    return isinstance(v, numbers.Integral) and not isinstance(v, bool)


def _is_number(v: Any) -> bool:
    return isinstance(v, numbers.Real | np.generic)


_KINDS: dict[str, Callable[[Any], bool]] = {
    "None": lambda v: v is None,
    "Value": _is_value,
    "bool": lambda v: isinstance(v, bool | np.bool_),
    "int": _is_int,
    "float": _is_number,
    "Number": _is_number,
    "Callable[..., Any]": callable,
    "str": lambda v: isinstance(v, str),
    "DimLike": lambda v: _is_int(v) or isinstance(v, str | SymDim),
    "Array": lambda v: isinstance(v, np.ndarray | np.generic | list | tuple | numbers.Real),
}
"""The annotations that are understood; any other fits everything."""


def _fits(value: Any, annotation: str) -> bool:
    return any(_fits_one(value, a) for a in re.split(r" \| (?![^[]*\])", annotation))


def _fits_one(value: Any, annotation: str) -> bool:
    many = re.fullmatch(r"(?:Sequence|Iterable)\[(.*)\]", annotation)
    if many is None:
        return _KINDS.get(annotation, lambda v: True)(value)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return False
    return all(_fits(v, many[1]) for v in value)
