"""Locations in the user's code: where a node is made, or a call goes wrong."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np

__all__ = ["Location", "NamedLocation", "caller", "located"]

Location = tuple[str, int]
"""A file and a line in it."""


class NamedLocation(tuple[str, int]):
    """A location with the name of the node there, in the model that was imported."""

    name: str

    @classmethod
    def of(cls, location: Location, name: str) -> NamedLocation:
        """The location of the node ``name``."""
        made = cls(location)
        made.name = name
        return made


_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + "/"
_USER_SIDE = _PACKAGE + "models/"
_INSIDE = (
    _PACKAGE,
    os.path.dirname(os.path.realpath(np.__file__)) + "/",
    contextmanager.__code__.co_filename,
)
"""RLX, NumPy, whose functions call a Value's methods, and what enters blocks of ``with``."""


class _Place(threading.local):
    location: Location | None = None


_place = _Place()


@contextmanager
def located(location: Location) -> Generator[None]:
    """Nodes that this thread makes in the block are placed at ``location``: those of an expansion
    stand where the composite does."""
    before, _place.location = _place.location, location
    try:
        yield
    finally:
        _place.location = before


def caller() -> Location:
    """File and line of the nearest frame outside RLX, NumPy and contextlib. Model builders count as
    outside, and methods that dataclasses generate as inside."""
    if _place.location is not None:
        return _place.location
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        generated = name == "<string>" and frame.f_globals.get("__name__", "").startswith("rlx.")
        if not (generated or name.startswith(_INSIDE)) or name.startswith(_USER_SIDE):
            return (name, frame.f_lineno)
        frame = frame.f_back
    return ("<unknown>", 0)
