"""Builder methods: every op of the library as a method of Graph and of Value.

The methods are looked up in ``rlx.ops.BUILDERS`` on first use, which loads the op's family. Their
signatures are in the generated stub ``builders.pyi`` (``tools/make_stubs.py``; a test keeps it in
step).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar, cast

from rlx.errors import GraphError, RlxError, UnknownOpError, did_you_mean
from rlx.ops.location import caller

__all__ = ["GraphOps", "ValueOps", "builder", "located"]

F = TypeVar("F", bound=Callable[..., Any])


@cache
def builder(method: str) -> Callable[..., Any] | None:
    """The function behind a builder method, or None if there is no such method."""
    from rlx.ops import BUILDERS
    from rlx.ops.base import op_class

    target = BUILDERS.get(method)
    if target is None:
        return None
    if ":" in target:
        module, function = target.split(":")
        return located(getattr(importlib.import_module(module), function), method)
    return located(op_class(target).build, method)


def located(function: F, method: str = "") -> F:
    """A function that a user calls, with errors of ours alone.

    They say where the user called it, also those raised before a node is. An error of Python's own
    becomes one that names the argument which does not fit; if all of them fit, it is a defect and
    stays what it is.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RlxError as e:
            if e.location is None:
                raise type(e)(e.message, caller()) from None
            raise
        except Exception as e:
            from rlx.ops.arguments import wrong_argument

            wrong = wrong_argument(method or function.__name__, function, args, kwargs)
            if wrong is None:
                raise
            raise GraphError(wrong, caller()) from e

    return cast(F, call)


def _missing(owner: object, method: str) -> AttributeError:
    """The error of an attribute that there is not; Python itself asks for many with underscores."""
    kind = type(owner).__name__
    if method.startswith("_"):
        return AttributeError(f"{kind} has no attribute {method!r}")
    from rlx.ops import BUILDERS

    known = [*BUILDERS, *(n for n in dir(type(owner)) if not n.startswith("_"))]
    hint = did_you_mean(method, known)
    return UnknownOpError(f"{kind} has no op or attribute {method!r}{hint}", caller())


class GraphOps:
    """``graph.gelu(x)``: ops as methods that take their operands."""

    __slots__ = ()

    def __getattr__(self, method: str) -> Any:
        function = None if method.startswith("_") else builder(method)
        if function is None:
            raise _missing(self, method)
        return function


class ValueOps:
    """``x.gelu()``: ops as methods whose first operand is the value."""

    __slots__ = ()

    def __getattr__(self, method: str) -> Any:
        function = None if method.startswith("_") else builder(method)
        if function is None:
            raise _missing(self, method)
        return lambda *args, **kwargs: function(self, *args, **kwargs)
