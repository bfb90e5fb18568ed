"""Names of op classes: which there can be, and what becomes of one that is declared again."""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING

from rlx.errors import GraphError

if TYPE_CHECKING:
    from rlx.ir.op import Op

__all__ = ["OWN_DIALECTS", "check_name", "enter", "is_foreign", "outside"]

OWN_DIALECTS = ("hir", "mir", "lir", "control")
"""What the names of RLX's own ops begin with."""

_TAKEN = frozenset({
    *OWN_DIALECTS, "arith", "builtin", "cf", "func", "gpu", "linalg", "llvm", "math", "memref",
    "scf", "spirv", "tensor", "vector",
})  # fmt: skip
_NAME = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")


outside: dict[str, type[Op]] = {}
"""The loaded op classes that are declared outside RLX, by name."""


def is_foreign(cls: type[Op]) -> bool:
    """Whether an op is declared outside RLX: what its code does is known to no key."""
    return cls.__module__.partition(".")[0] != "rlx"


def check_name(registry: dict[str, type[Op]], cls: type[Op], name: str) -> None:
    """GraphError for a name that no op can have, or that an op declared elsewhere has."""
    known = registry.get(name)
    if known is not None and not _is_again(known, cls):
        raise GraphError(
            f"op {name!r} is declared twice: as {_place(known)} and as {_place(cls)}; give one of"
            " them another name (one that is declared again in the same place takes the place of"
            " the first)"
        )
    if _NAME.fullmatch(name) is None:
        raise GraphError(
            f"an op cannot be called {name!r}: its name is a prefix of your own, a dot, and small"
            " letters, digits and underscores, such as 'mine.saxpy'"
        )
    prefix = name.partition(".")[0]
    if prefix in _TAKEN and cls.__module__.partition(".")[0] not in ("rlx", "__main__"):
        raise GraphError(f"op {name!r}: ops from outside need another prefix than {prefix!r}")


def enter(registry: dict[str, type[Op]], cls: type[Op], name: str) -> None:
    """Make an op known under its name. One that had the name goes on under another, so that graphs
    which were built with it mean what they meant: a cell of a notebook is run twice."""
    before = registry.get(name)
    if before is not None:
        before.name = next(n for i in count(1) if (n := f"{name}_before{i}") not in registry)
        registry[before.name] = before
        outside[before.name] = before
    registry[name] = cls
    if is_foreign(cls):
        outside[name] = cls


def _is_again(known: type[Op], cls: type[Op]) -> bool:
    return is_foreign(cls) and _place(known) == _place(cls)


def _place(cls: type[Op]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
