"""Dataclasses that are declared in a fifth of the time.

``dataclasses`` compiles six functions for every frozen class, 0.35 ms: 50 ms of a process that
compiles, which loads 150 of them, and a tenth of the imports of one that finds its graph compiled.
Here one is compiled, the initialiser, once it is called; the other methods are closures over the
fields. ``fields``, ``replace``, ``field`` and ``is_dataclass`` work as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

__all__ = ["frozen", "record"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """``@dataclass(frozen=True)``. What the class itself defines of ``__repr__``, ``__eq__`` and
    ``__hash__`` stays."""
    own = dict(cls.__dict__)
    made, found = _declared(cls, own)
    if own.get("__hash__") is None:
        hashed = [f.name for f in found if (f.compare if f.hash is None else f.hash)]
        _put(made, "__hash__", _hash(_getter(hashed)))
    names = frozenset(f.name for f in found)
    for name, doing in (("__setattr__", "assign to"), ("__delattr__", "delete")):
        _put(made, name, _refusal(made, names, doing, getattr(object, name)))
    return made


@dataclass_transform(field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """``@dataclass``, whose instances change and have no hash. What the class itself defines of
    ``__repr__``, ``__eq__`` and ``__hash__`` stays."""
    own = dict(cls.__dict__)
    made, _ = _declared(cls, own)
    if own.get("__hash__") is None:
        setattr(made, "__hash__", None)  # noqa: B010 # else pyright takes it for a method
    return made


def _declared(cls: type[T], own: Mapping[str, Any]) -> tuple[type[T], Sequence[Field[Any]]]:
    """The class with its fields, initialiser, repr and comparison; and the fields. ``own`` is what
    it defines itself."""
    cls.__doc__ = cls.__doc__ or cls.__name__  # else dataclass writes one from the signature
    made = dataclass(init=False, repr=False, eq=False)(cls)
    found = fields(made)  # pyright: ignore[reportArgumentType]
    methods: dict[str, Callable[..., Any]] = {
        "__repr__": _repr([f.name for f in found if f.repr]),
        "__eq__": _eq(_getter([f.name for f in found if f.compare])),
    }
    for name, method in methods.items():
        if own.get(name) is None:
            _put(made, name, method)
    setattr(made, "__init__", _Initialiser(made, found))  # noqa: B010 # else it is an error of types
    return made, found


class _Initialiser:
    """The ``__init__`` of a class until it is first asked for: most classes that a process loads it
    makes nothing of."""

    def __init__(self, cls: type, found: Sequence[Field[Any]]) -> None:
        self._cls, self._found = cls, found

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        init: Any = _init(self._cls, self._found)
        _put(self._cls, "__init__", init)
        return init if instance is None else init.__get__(instance)


def _put(cls: type, name: str, method: Callable[..., Any]) -> None:
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    setattr(cls, name, method)


def _init(cls: type, found: Sequence[Field[Any]]) -> Callable[..., None]:
    """The initialiser, with a default that is made anew where a field has a factory."""
    # Its frame is one of RLX, not the user's, to whom an error in __post_init__ is to point.
    names: dict[str, Any] = {
        "__name__": __name__, "_set": object.__setattr__, "_MISSING": MISSING,
    }  # fmt: skip
    args, named, body = ["self"], list[str](), ["pass"]
    for f in found:
        if not f.init:
            continue
        value, listed = f.name, named if f.kw_only else args
        if f.default_factory is not MISSING:
            names[f"_make_{f.name}"] = f.default_factory
            listed.append(f"{f.name}=_MISSING")
            value = f"_make_{f.name}() if {f.name} is _MISSING else {f.name}"
        elif f.default is not MISSING:
            names[f"_default_{f.name}"] = f.default
            listed.append(f"{f.name}=_default_{f.name}")
        else:
            listed.append(f.name)
        body.append(f"_set(self, {f.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    args += ["*", *named] if named else []
    exec(f"def __init__({', '.join(args)}):\n " + "\n ".join(body), names)
    init: Callable[..., None] = names["__init__"]
    init.__annotations__ = {f.name: f.type for f in found} | {"return": None}
    return init


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The fields of an instance as a tuple."""
    if not names:
        return lambda self: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda self: (get(self),)


def _repr(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        listed = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({listed})"

    return __repr__


def _eq(get: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:
        return get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(get: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(get(self))

    return __hash__


def _refusal(
    cls: type, names: frozenset[str], doing: str, otherwise: Callable[..., None]
) -> Callable[..., None]:
    """Refuses to change a field, and an attribute of an instance of the class itself."""

    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot {doing} field {name!r}")
        otherwise(self, name, *value)

    return refuse
