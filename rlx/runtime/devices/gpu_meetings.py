"""Collectives in programs of GPUs: what a rank has goes through memory of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx.errors import FaultError, GraphError
from rlx.ir.op import caller
from rlx.runtime import _native
from rlx.schedule.codec import main_words
from rlx.schedule.steps import Collective, Place, bytes_at, collectives
from rlx.targets.gpu.driver import Driver
from rlx.targets.gpu.program import GpuProgram
from rlx.targets.gpu.work import Buffer

__all__ = ["GpuMeetings"]


class GpuMeetings:
    """The collectives of a program. ``asked`` is called while a rank waits for others, and ends the
    run by what it raises."""

    def __init__(self, program: GpuProgram, driver: Driver, asked: Callable[[], None]) -> None:
        self._driver, self._sites, self._asked = driver, program.sites, asked
        steps = list(collectives(program.main))
        self._numbers = {id(step): n for n, step in enumerate(steps)}
        self._native: _native.DeviceMeetings | None = None
        if steps:
            words = main_words(program.main)
            self._native = _native.DeviceMeetings(words, len(program.kernels))

    def __bool__(self) -> bool:
        return self._native is not None

    def begin(self) -> None:
        """Begin a run. GraphError if there is no group of ranks, or they have other graphs."""
        if self._native is None:
            return
        try:
            self._native.begin(self._asked)
        except _native.Error as error:
            raise GraphError(str(error), caller()) from None

    def run(
        self, step: Collective[Place], buffers: Sequence[Buffer], rounds: Sequence[int]
    ) -> None:
        """Carry out a collective: copied out, exchanged, copied in. FaultError where it fails."""
        assert self._native is not None
        source = np.empty(0 if step.source is None else bytes_at(step, "source"), np.uint8)
        target = np.empty(bytes_at(step, "target"), np.uint8)
        if step.source is not None:
            self._driver.read_into(buffers[step.source.base], step.source.at(rounds), source)
        number = self._numbers[id(step)]
        why = self._native.run(number, source.ctypes.data, target.ctypes.data, self._asked)
        if why:
            raise FaultError.at_site(self._sites, 1, step.site, why)
        self._driver.write(buffers[step.target.base], step.target.at(rounds), target)
