"""The arguments of a function as a tree, and the types of its leaves."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rlx.errors import DTypeError, GraphError, ShapeError, a_type, did_you_mean
from rlx.functions.trees import ARRAY, Branch, Static, Tree, flatten
from rlx.types import DType, TensorType
from rlx.types import dtype as as_dtype

__all__ = ["Signature", "type_of"]


class Signature:
    """The parameters of a function: which of them are ``static``, and which have symbolic dims by
    their annotations, ``Annotated[Array, ("batch", 64)]``."""

    def __init__(self, function: Callable[..., Any], static: str | Iterable[str]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        try:
            self.own = inspect.signature(function)
        except (TypeError, ValueError):
            raise GraphError(
                f"jit: the parameters of {self.name!r} cannot be told; wrap it in a function that"
                " names them"
            ) from None
        self.static = frozenset([static] if isinstance(static, str) else static)
        for name in self.static - self.own.parameters.keys():
            listed = ", ".join(map(repr, self.own.parameters)) or "none"
            hint = did_you_mean(name, self.own.parameters)
            raise GraphError(f"jit: static names no parameter: {name!r}{hint}; there are {listed}")
        self.dims = _annotated(function, self.name)

    def tree(self, args: Sequence[Any], kwargs: Mapping[str, Any], leaves: list[Any]) -> Branch:
        """The arguments of a call by the names of the parameters, in their order; arrays are put
        into ``leaves``. GraphError for what the function does not take."""
        try:
            bound = self.own.bind(*args, **kwargs).arguments
        except TypeError as e:
            raise GraphError(f"{self.name}: {e}; it takes {self.own}") from None
        return Branch(dict, tuple(bound), tuple(
            Static(_hashed(value, name)) if name in self.static else flatten(value, leaves, name)
            for name, value in bound.items()
        ))  # fmt: skip

    def apply(self, function: Callable[..., Any], bound: Mapping[str, Any]) -> Any:
        """Call the function on arguments by the names of its parameters."""
        found = inspect.BoundArguments(self.own, dict(bound))  # pyright: ignore[reportArgumentType]
        return function(*found.args, **found.kwargs)

    def spelled(self, tree: Branch) -> list[tuple[str, Tree]]:
        """The arguments one by one, those of ``*args`` and ``**kwargs`` among them."""
        found: list[tuple[str, Tree]] = []
        for name, child in zip(tree.names, tree.children, strict=True):
            kind = self.own.parameters[name].kind
            if isinstance(child, Branch) and kind in (
                inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD,
            ):  # fmt: skip
                found += zip(map(str, child.names), child.children, strict=True)
            else:
                found.append((name, child))
        return found

    def types(self, tree: Branch, leaves: Sequence[Any]) -> tuple[TensorType, ...]:
        """The types of the leaves, with the dims of annotations."""
        found = [type_of(a, name) for a, name in zip(leaves, tree.paths(""), strict=True)]
        at = 0
        for name, child in zip(tree.names, tree.children, strict=True):
            if name in self.dims:
                if child is not ARRAY:
                    raise GraphError(
                        f"{self.name}: {name!r} is annotated with dims and is no array"
                    )
                found[at] = _with_dims(name, found[at], self.dims[name])
            at += child.count
        return tuple(found)


def type_of(spec: Any, name: str) -> TensorType:
    """The type of an array, or of whatever has ``shape`` and ``dtype``. DTypeError for an element
    type that RLX does not have."""
    if isinstance(spec, TensorType):
        return spec
    return TensorType.of(spec.shape, _dtype(spec.dtype, name))


def _dtype(found: Any, name: str) -> DType:
    try:
        return as_dtype(found)
    except DTypeError as e:
        try:
            return as_dtype(str(found).rpartition(".")[2])  # such as torch.float32
        except DTypeError:
            raise DTypeError(f"{name}: {e.message}") from None


def _hashed(value: Any, name: str) -> Any:
    try:
        hash(value)
    except TypeError:
        kind = a_type(value)
        raise GraphError(
            f"the static argument {name!r} is {kind}, which has no hash; give a tuple, or another"
            " value by which it can be known again"
        ) from None
    return value


def _annotated(function: Callable[..., Any], name: str) -> dict[str, tuple[Any, ...]]:
    """The dims that annotations say, by parameter."""
    raw = getattr(function, "__annotations__", {})
    if not any("Annotated" in str(a) for a in raw.values()):
        return {}
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as e:  # whatever the evaluation of another's annotation raises
        raise GraphError(
            f"jit: the annotations of {name!r} cannot be read: {e}; Annotated needs names that are"
            " there when the function is called"
        ) from None
    found: dict[str, tuple[Any, ...]] = {}
    for parameter, hint in hints.items():
        for said in getattr(hint, "__metadata__", ()):
            if isinstance(said, tuple | list):
                found[parameter] = tuple(said)  # pyright: ignore[reportUnknownArgumentType]
    found.pop("return", None)
    return found


def _with_dims(name: str, t: TensorType, dims: tuple[Any, ...]) -> TensorType:
    if len(dims) != t.rank:
        raise ShapeError(
            f"{name!r} is annotated {list(dims)}, found an array of shape {list(t.shape)}"
        )
    pairs = zip(dims, t.shape, strict=True)
    return TensorType.of([n if d is None else d for d, n in pairs], t.dtype)
