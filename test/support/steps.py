"""Steps for the native runtime, whose launches name the address of a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rlx.schedule.codec import main_words, prologue_words
from rlx.schedule.steps import Launch, Place, Step

__all__ = ["launch", "main_of", "prologue_of"]


def launch(
    address: int,
    places: Iterable[Place | tuple[int, int]],
    *,
    range: int = 1,
    grain: int = 1,
    scratch: int = 0,
    sizes: Sequence[int] = (),
) -> Launch[Place]:
    """A launch of the kernel at an address; a place may be given as (memory, offset)."""
    where = tuple(p if isinstance(p, Place) else Place(*p) for p in places)
    return Launch(address, (range, grain, scratch), where, tuple(sizes))


def main_of(steps: Iterable[Step[Place]]) -> dict[str, Any]:
    """The arguments ``main`` and ``kernels`` of a Program."""
    numbers = _Numbers()
    return {"main": main_words([numbers.of(s) for s in steps]), "kernels": numbers.kernels}


def prologue_of(steps: Iterable[tuple[Step[Place], Sequence[int]]]) -> dict[str, Any]:
    """The arguments ``prologue`` and ``kernels`` of Weights."""
    numbers = _Numbers()
    words = prologue_words([(numbers.of(s), tuple(follows)) for s, follows in steps])
    return {"prologue": words, "kernels": numbers.kernels}


class _Numbers:
    """Numbers for the addresses of kernels."""

    def __init__(self) -> None:
        self.kernels: list[int] = []

    def of(self, step: Step[Place]) -> Step[Place]:
        return step.map(self._launch, lambda p: p)

    def _launch(self, step: Launch[Place]) -> Launch[Place]:
        if step.kernel not in self.kernels:
            self.kernels.append(step.kernel)
        return replace(step, kernel=self.kernels.index(step.kernel))
