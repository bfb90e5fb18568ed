"""What makes a function of the namespace: on Values it makes ops, on arrays it runs compiled.

A function is written once, on Values. Called with arrays it is traced into a graph of its own,
which is compiled once for arrays of these types and these other arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.errors import GraphError, RlxError, shown
from rlx.functions import Function
from rlx.functions.function import tracing
from rlx.functions.trees import is_array
from rlx.ir.arguments import wrong_argument
from rlx.ir.builders import located
from rlx.ir.interpreter import interpret
from rlx.ir.location import caller
from rlx.ir.value import Value
from rlx.types import TensorType
from rlx.types import dtype as as_dtype

__all__ = ["Operand", "Term", "check_device", "creation", "function", "numpy_type", "refused"]

if TYPE_CHECKING:
    Operand = Any
    Term = Any
else:
    Operand = Value | np.ndarray | np.generic
    """An array, as annotations say it to what checks arguments."""
    Term = Operand | bool | int | float | complex
    """An array or a number."""


def function(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays, from one that is written on Values."""
    eager = Function(f)
    traced = located(f)

    @wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _has_value(args) or _has_value(kwargs.values()):
            return traced(*args, **kwargs)
        try:
            if _has_array(args) or _has_array(kwargs.values()):
                return eager(*args, **kwargs)
            wrong = wrong_argument(f.__name__, f, args, kwargs) or _no_array(f.__name__)
        except RlxError:
            raise
        except Exception as e:
            wrong = wrong_argument(f.__name__, f, args, kwargs, e)
            if wrong is None:
                raise
            raise GraphError(wrong, caller()) from e
        raise GraphError(wrong, caller())

    call.__checked__ = True  # pyright: ignore[reportAttributeAccessIssue]
    return call


def _no_array(name: str) -> str:
    return f"xp.{name} takes arrays, and was given none; make one with xp.asarray"


def creation(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes an array of no other: within a trace a Value, else an array."""
    traced = located(f)

    @wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        if tracing():
            return traced(*args, **kwargs)
        if _has_value(args) or _has_value(kwargs.values()):
            return traced(*args, **kwargs)  # which refuses it
        # It is exact: what the ops mean is what they would give compiled.
        graph = Function(lambda: traced(*args, **kwargs)).graph()
        return np.asarray(interpret(graph, {})[0])

    call.__checked__ = True  # pyright: ignore[reportAttributeAccessIssue]
    return call


def _has_value(given: Iterable[Any]) -> bool:
    """Whether a Value is among arguments, or in a list of them."""
    return any(
        isinstance(x, Value) or (isinstance(x, tuple | list) and any(map(_is_value, x)))
        for x in given
    )


def _is_value(x: Any) -> bool:
    return isinstance(x, Value)


def _has_array(given: Iterable[Any]) -> bool:
    """Whether an array is among arguments, or in a list of them."""
    return any(
        _is_operand(x) or (isinstance(x, tuple | list) and any(map(_is_operand, x))) for x in given
    )


def _is_operand(x: Any) -> bool:
    return is_array(x) and not isinstance(x, TensorType)


def refused(name: str, instead: str) -> Callable[..., Any]:
    """A function whose result has a shape that depends on the elements: it is refused."""

    def call(*args: Any, **kwargs: Any) -> Any:
        raise GraphError(
            f"xp.{name} gives an array whose shape depends on the elements, which a graph cannot"
            f" have; {instead}"
        )

    call.__name__, call.__doc__ = name, f"Refused: its shape depends on the elements; {instead}."
    return located(call, name)


def numpy_type(dtype: Any) -> np.dtype[Any]:
    """NumPy's type of an element type, however it is named."""
    return as_dtype(dtype).numpy


def check_device(device: Any) -> None:
    """GraphError for a device other than the host, where eager arrays are."""
    if device is None or (isinstance(device, str) and device == "cpu"):
        return
    raise GraphError(
        f"arrays of this namespace are on the device 'cpu', found {shown(device)}; a function runs"
        " elsewhere by rlx.jit(device=...)"
    )
