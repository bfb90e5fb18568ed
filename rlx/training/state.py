"""The state of a training run: named arrays, side by side in one region of memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlx.types import TensorType

__all__ = ["State"]

Array = np.ndarray[Any, Any]

ALIGN = 64
"""Bytes: a line of the cache, and the widest vector."""


class State(Mapping[str, Array]):
    """Arrays by name, all zero at first. They are views of one region, which steps write in
    place; an array that was taken from here shows the state as it goes on."""

    def __init__(self, types: Mapping[str, TensorType]) -> None:
        places: dict[str, int] = {}
        end = 0
        sizes = {n: math.prod(t.static_shape) * t.dtype.bytes for n, t in types.items()}
        for name, size in sizes.items():
            places[name] = end
            end += -(-size // ALIGN) * ALIGN
        region = np.zeros(end + ALIGN, np.uint8)
        start = -region.ctypes.data % ALIGN
        self.bytes = end
        self._arrays = {
            name: region[start + at : start + at + sizes[name]]
            .view(types[name].dtype.numpy)
            .reshape(types[name].static_shape)
            for name, at in places.items()
        }

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def part(self, prefix: str) -> dict[str, Array]:
        """The arrays whose names begin with ``prefix/``, by the rest of their names."""
        return {
            name.removeprefix(f"{prefix}/"): a
            for name, a in self._arrays.items()
            if name.startswith(f"{prefix}/")
        }
