"""Builder methods: every op of the library as a method of Graph and of Value.

The methods are looked up in ``rlx.ops.BUILDERS`` on first use, which loads the op's family. Their
signatures are in the generated stub ``builders.pyi`` (``tools/make_stubs.py``; a test keeps it in
step).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import cache, wraps
from types import MethodType
from typing import Any, TypeVar, cast

from rlx.errors import GraphError, RlxError, UnknownOpError
from rlx.ir.location import caller

__all__ = ["GraphOps", "ValueOps", "builder", "located", "public"]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


@cache
def builder(method: str) -> Callable[..., Any] | None:
    """The function behind a builder method, or None if there is no such method."""
    from rlx.ir.op import op_class
    from rlx.ir.signatures import describe
    from rlx.ops import BUILDERS

    target = BUILDERS.get(method)
    if target is None:
        return None
    cls = None if ":" in target else op_class(target)
    if cls is None:
        module, _, name = target.partition(":")
        function = located(getattr(importlib.import_module(module), name), method)
    else:
        function = located(cls.build, method)
    describe(function, method, cls)
    return function


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
                raise e.at(caller()) from None
            raise
        except Exception as e:
            from rlx.ir.arguments import wrong_argument

            wrong = wrong_argument(method or function.__name__, function, args, kwargs, e)
            if wrong is None:
                raise
            raise GraphError(wrong, caller()) from e

    call.__checked__ = True  # pyright: ignore[reportAttributeAccessIssue]
    return cast(F, call)


_SPECIAL = ("__init__", "__call__", "__getitem__", "__contains__")


def public(cls: C) -> C:
    """A class whose methods users call, each of them as ``located`` makes it.

    A method that may not take longer, such as a run, is listed in the class's ``UNCHECKED``, and
    sees to its arguments itself.
    """
    left = vars(cls).get("UNCHECKED", ())
    _ = cls.__init__  # a dataclass compiles it when it is first asked for
    for name, found in list(vars(cls).items()):
        if name in left or (name.startswith("_") and name not in _SPECIAL):
            continue
        kind = type(found) if isinstance(found, staticmethod | classmethod) else None
        function = found.__func__ if kind else found
        if not inspect.isfunction(function) or hasattr(function, "__checked__"):
            continue
        shown = cls.__name__ if name in ("__init__", "__call__") else name
        checked = located(function, shown)
        setattr(cls, name, kind(checked) if kind else checked)
    return cls


def _missing(owner: object, method: str) -> AttributeError:
    """The error of an attribute that there is not; Python itself asks for many with underscores."""
    kind = type(owner).__name__
    if method.startswith("_"):
        return AttributeError(f"{kind} has no attribute {method!r}")
    from rlx.ir.spellings import OBJECTS, method_hint
    from rlx.ops import BUILDERS

    if meant := OBJECTS.get(kind, {}).get(method):
        return UnknownOpError(f"{kind} has no op or attribute {method!r}; write {meant}", caller())
    known = [*BUILDERS, *(n for n in dir(type(owner)) if not n.startswith("_"))]
    hint = method_hint(method, known, BUILDERS)
    return UnknownOpError(f"{kind} has no op or attribute {method!r}{hint}", caller())


class GraphOps:
    """``graph.gelu(x)``: ops as methods that take their operands."""

    __slots__ = ()

    def __getattr__(self, method: str) -> Any:
        function = None if method.startswith("_") else builder(method)
        if function is None:
            raise _missing(self, method)
        return function

    def __dir__(self) -> list[str]:
        from rlx.ops import BUILDERS

        return sorted({*object.__dir__(self), *BUILDERS})


class ValueOps:
    """``x.gelu()``: ops as methods whose first operand is the value."""

    __slots__ = ()

    def __getattr__(self, method: str) -> Any:
        function = None if method.startswith("_") else builder(method)
        if function is None:
            raise _missing(self, method)
        return MethodType(function, self)

    def __dir__(self) -> list[str]:
        from rlx.ops import BUILDERS, WITHOUT_VALUE

        return sorted({*object.__dir__(self), *BUILDERS} - {*WITHOUT_VALUE})
