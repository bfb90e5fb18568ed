"""A property that is computed once, as ``functools.cached_property`` does from Python 3.12 on.

Before that, a lock of all instances is held while a value is computed: in a process that another
thread forks meanwhile it is never let go, and what asks for the property waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING:
    from functools import cached_property  # noqa: TID251
else:

    class cached_property:
        """A method whose result is kept in its instance; threads that ask at once get the same."""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._compute, self.__doc__ = compute, compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            return vars(instance).setdefault(self._name, self._compute(instance))
