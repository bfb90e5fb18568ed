"""Refusals of what would change a part of a graph: item assignment, in-place operators, ``out=``.

Each refusal says how to write what was meant.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn

from rlx.errors import DTypeError, GraphError
from rlx.ir.location import caller

__all__ = ["Fixed", "Pure", "Uncopied"]

_REFLECTED = {
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__",
    "floor_divide": "__rfloordiv__", "remainder": "__rmod__", "divmod": "__rdivmod__",
    "power": "__rpow__", "matmul": "__rmatmul__", "bitwise_and": "__rand__",
    "bitwise_or": "__ror__", "bitwise_xor": "__rxor__", "left_shift": "__rlshift__",
    "right_shift": "__rrshift__", "less": "__gt__", "less_equal": "__ge__", "greater": "__lt__",
    "greater_equal": "__le__", "equal": "__eq__", "not_equal": "__ne__",
}  # fmt: skip
"""What an operator between an array and a Value becomes, by the ufunc that NumPy makes of it."""


class Fixed:
    """A part of a graph. It never changes, so a copy of it is itself."""

    __slots__ = ()

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise GraphError(
            f"{self!r} is a part of a graph, and is not pickled alone; pickle the graph, or write"
            " it by rlx.save",
            caller(),
        )


class Pure(Fixed):
    """An object that stands for elements which there are in a run alone."""

    __slots__ = ()

    def __bool__(self) -> bool:
        raise GraphError(
            "a Value has no truth value while the graph is built; choose by where(condition, x, y)"
            " or rlx.cond, join comparisons by & and |, as in (a < b) & (b < c), and ask by `is`"
            " whether two names are one Value",
            caller(),
        )

    def _no_elements(self, *_: Any, **__: Any) -> Any:
        raise GraphError(
            f"a Value has no elements yet ({self!r}); run the graph, or write ops on it; a number"
            " that a traced function needs while it is traced is a Python number, which is static",
            caller(),
        )

    __float__ = __int__ = __index__ = __complex__ = __trunc__ = __array__ = _no_elements

    def __contains__(self, item: Any) -> bool:
        raise GraphError(
            "`in` asks for elements, and a Value has none yet; write (x == item).any()", caller()
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        raise GraphError(
            "a Value never changes; make another with where, concat or scatter_add", caller()
        )

    def __delitem__(self, key: Any) -> None:
        raise GraphError("a Value never changes; make another with slices and concat", caller())

    def __format__(self, spec: str) -> str:
        if spec:
            raise GraphError(
                f"a Value has no elements to format by {spec!r}; format what a run gives", caller()
            )
        return str(self)

    # Without these Python would try x[0], x[1], ... for ever in `for y in x`.
    __iter__ = None
    __reversed__ = None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """A function of NumPy's on elements, by that of ``rlx.xp``; GraphError where there is none,
        and for arguments that only arrays can have."""
        name: str = ufunc.__name__
        plain = method == "__call__" and not kwargs
        operator = _REFLECTED.get(name)
        if operator and plain and inputs[1] is self:
            return getattr(self, operator)(inputs[0])
        from rlx.xp.ufuncs import OF_FLOATS, function_of

        own = function_of(name)
        if name in OF_FLOATS and not inputs[0].dtype.is_float:
            found = inputs[0].dtype
            raise DTypeError(f"np.{name} takes floats, found {found}; cast it to f64", caller())
        if plain and own is not None:
            return getattr(import_module("rlx.xp"), own)(*inputs)
        operands = ", ".join(["x", "y"][: len(inputs)])
        spelled = f"xp.{own}({operands})" if own and method == "__call__" else "ops on it"
        name += "" if method == "__call__" else f".{method}"
        if "out" in kwargs:
            spelled = "y = x + array and so on, which makes a Value"
        raise GraphError(
            f"np.{name} computes on arrays, and a Value has no elements yet; write {spelled}",
            caller(),
        )

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """A function of NumPy's, by its row in ``rlx.xp.numpy_functions``."""
        from rlx.xp.numpy_functions import call_on_values

        return call_on_values(function, args, kwargs)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        """``rlx.xp``, the array API standard's functions."""
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise GraphError(
                f"rlx.xp has the array API of 2024.12 and before, found {api_version!r}", caller()
            )
        return import_module("rlx.xp")


class Uncopied:
    """What holds memory that a copy would share: it is neither copied nor pickled. ``instead`` says
    what to do in place of that."""

    instead = (
        "compile its graph again, which the cache makes quick, or write a file of it by"
        " rlx.compile_artifact"
    )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        kind = type(self).__name__
        raise GraphError(f"a {kind} is not copied or pickled; {self.instead}", caller())
