"""Runs of an executable that has nothing but ``run_slots``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["BySlots"]

Array = np.ndarray[Any, Any]


class BySlots(ABC):
    """Writes the results of ``run_slots`` where they are wanted. ``donate`` gives for inputs, by
    number, the outputs that are written over them."""

    donate: Mapping[int, int]

    @abstractmethod
    def run_slots(self, *inputs: Any) -> tuple[Array, ...]:
        """Run on inputs in declared order; the results are new arrays."""

    def run_into(self, inputs: Sequence[Any], outputs: Sequence[Array]) -> None:
        """Run and copy the results into ``outputs``."""
        for out, value in zip(outputs, self.run_slots(*inputs), strict=True):
            out[...] = value

    def run_in_place(self, inputs: Sequence[Array]) -> list[Array]:
        """Run, write donated outputs over their inputs, and return the others."""
        found = self.run_slots(*inputs)
        for i, o in self.donate.items():
            inputs[i][...] = found[o]
        taken = set(self.donate.values())
        return [a for o, a in enumerate(found) if o not in taken]
