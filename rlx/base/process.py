"""The process that the code runs in: locks that a fork leaves free, and which interpreter it is.

Only the thread that forked lives on in a child, and a lock that another one held would be held for
ever.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import weakref
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

__all__ = ["Lock", "is_main_interpreter", "lock_of"]

Lock: TypeAlias = AbstractContextManager[Any]

_owners: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def lock_of(owner: Any) -> Lock:
    """A new RLock for ``owner._lock``, which gets another in every process that is forked off."""
    _owners[id(owner)] = owner
    return threading.RLock()


def is_main_interpreter() -> bool:
    """Whether this is the interpreter that the process began with."""
    module = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    try:
        known: Any = importlib.import_module(module)
    except ImportError:  # a Python without them
        return True
    return known.get_current() == known.get_main()


def _renew() -> None:
    for owner in list(_owners.values()):
        owner._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
