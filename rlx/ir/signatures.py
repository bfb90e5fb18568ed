"""What a builder method is called with, and what it says of itself, for ``help`` and editors: those
of an op that keeps the common ``build`` follow from its operands and attributes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rlx.ir.op import REQUIRED, Op

__all__ = ["describe", "has_own_build"]

_GIVEN = {
    "tuple[int, ...]": "Sequence[int]",
    "tuple[Dim, ...]": "Sequence[DimLike]",
    "DType": "DType | str",
}
"""What a caller may give for a kind of attribute, where that is more than the kind."""


def describe(function: Callable[..., Any], method: str, cls: type[Op] | None) -> None:
    """Give the function behind a builder method its name, and that of an op its text and its
    signature."""
    f: Any = function
    f.__name__ = f.__qualname__ = method
    if cls is None:
        return
    f.__doc__ = _text(cls)
    if not has_own_build(cls):
        f.__signature__ = _signature(cls)


def has_own_build(cls: type[Op]) -> bool:
    """Whether an op makes its node in a way of its own."""
    own: Any = cls.build
    return own.__func__ is not vars(Op)["build"].__func__


def _text(cls: type[Op]) -> str:
    """The docstring of an op, and what its operands and attributes are."""
    fields = [f for f in (*cls.operand_fields, *cls.attr_fields) if f.doc]
    listed = "\n".join(f"{f.name}: {f.doc}" for f in fields)
    own = inspect.getdoc(cls.build) if has_own_build(cls) else None
    common = inspect.getdoc(Op.build)
    parts = [inspect.getdoc(cls) or "", own if own != common else "", listed]
    return "\n\n".join(p for p in parts if p)


def _signature(cls: type[Op]) -> inspect.Signature:
    found: list[inspect.Parameter] = []
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    may_lack = False
    last = max((f.index for f in cls.operand_fields if not f.optional), default=-1)
    for f in cls.operand_fields:
        if f.variadic:
            found.append(_parameter(f.name, inspect.Parameter.VAR_POSITIONAL, "Value"))
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        may_lack = may_lack or f.optional
        # One that may be absent is still given, as None, in front of one that must be there.
        default = None if f.optional and f.index > last else inspect.Parameter.empty
        found.append(_parameter(f.name, kind, "Value | None" if f.optional else "Value", default))
    for a in cls.attr_fields:
        # What must be given and follows what may be left out can only be given by name.
        if a.default is REQUIRED and may_lack:
            kind = inspect.Parameter.KEYWORD_ONLY
        may_lack = may_lack or a.default is not REQUIRED
        default = inspect.Parameter.empty if a.default is REQUIRED else a.default
        found.append(_parameter(a.name, kind, _GIVEN.get(a.kind, a.kind), default))
    many = ", ".join(["Value"] * cls.result_count)
    returns = "Value" if cls.result_count == 1 else f"tuple[{many}]"
    return inspect.Signature(found, return_annotation=returns)


def _parameter(
    name: str, kind: Any, annotation: str, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    return inspect.Parameter(name, kind, annotation=annotation, default=default)
