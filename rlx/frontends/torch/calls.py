"""An ATen op's arguments, by its schema, as the parameters of a row."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rlx.errors import UnsupportedError
from rlx.frontends.torch.node import Node, Row
from rlx.frontends.torch.rows import ROWS
from rlx.ir.value import Value

__all__ = ["call", "name_of", "row_of"]

PLACEMENT = frozenset({
    "dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format", "implicit", "copy",
    "sparse_grad", "stable", "sorted", "check_errors", "allow_tf32", "cudnn_enable",
})  # fmt: skip
"""Arguments that say where a result lies, or what its type says too."""


def name_of(target: Any) -> str:
    """The name of what a node calls: ``add.Tensor`` for an overload of ATen's, with its namespace
    for any other."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return str(getattr(target, "__name__", target))
    space, _, name = schema.name.partition("::")
    name = name if space == "aten" else f"{space}.{name}"
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


def row_of(target: Any) -> Row | None:
    """The row of an op of torch's: that of its overload, else that of all its overloads. Functions
    of Python that compute with sizes have the names of some, and no row."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return None
    name = name_of(target)
    found = ROWS.get(name)
    if found is None and schema.overload_name:
        found = ROWS.get(name.removesuffix(f".{schema.overload_name}"))
    return found


@cache
def _parameters(row: Row) -> tuple[int, bool, frozenset[str], bool]:
    """How many arguments a row takes by position, whether it takes any number; which names, and
    whether it takes any."""
    kinds = inspect.Parameter
    found = list(inspect.signature(row).parameters.values())[1:]
    by_place = [p for p in found if p.kind is kinds.POSITIONAL_OR_KEYWORD]
    names = {p.name for p in found if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)}
    return (
        len(by_place),
        any(p.kind is kinds.VAR_POSITIONAL for p in found),
        frozenset(names),
        any(p.kind is kinds.VAR_KEYWORD for p in found),
    )


def call(row: Row, n: Node, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The results of a row; UnsupportedError for an argument that it takes no parameter for, and
    that is not the schema's default."""
    most, any_place, names, any_name = _parameters(row)
    by_place: list[Any] = []
    by_name: dict[str, Any] = {}
    for i, declared in enumerate(target._schema.arguments):
        given = i < len(args) or declared.name in kwargs
        value = args[i] if i < len(args) else kwargs.get(declared.name, declared.default_value)
        if not declared.kwarg_only and (len(by_place) < most or any_place):
            by_place.append(value)
        elif declared.name in names or (any_name and declared.name not in PLACEMENT):
            if given:
                by_name[declared.name] = value
        elif given and declared.name not in PLACEMENT and not _is_default(declared, value):
            raise UnsupportedError(
                f"its argument {declared.name}={_shown(value)} is not taken into account here"
            )
    return row(n, *by_place, **by_name)


def _is_default(declared: Any, value: Any) -> bool:
    if isinstance(value, Value):
        return False
    return value is None or (declared.has_default_value() and declared.default_value == value)


def _shown(value: Any) -> str:
    return str(value.type) if isinstance(value, Value) else repr(value)
