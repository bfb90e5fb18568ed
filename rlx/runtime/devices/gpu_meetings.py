"""Collectives in programs of GPUs.

Ranks on CUDA and ROCm GPUs are connected by NCCL and RCCL. On the others, and where ``RLX_NCCL``
asks for it, what a rank has is copied to memory of the host, exchanged and copied back.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rlx import knobs
from rlx.errors import FaultError, GraphError
from rlx.ir.op import caller
from rlx.runtime import _native
from rlx.schedule.codec import main_words
from rlx.schedule.steps import Collective, Place, bytes_at, collectives
from rlx.targets.gpu.connections import CONNECTIONS, Connection
from rlx.targets.gpu.driver import Driver
from rlx.targets.gpu.program import GpuProgram
from rlx.targets.gpu.streams import StreamDriver
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
        self._on_gpu: StreamDriver | None = None
        if steps:
            words = main_words(program.main)
            self._native = _native.DeviceMeetings(words, len(program.kernels))
            if isinstance(driver, StreamDriver) and knobs.nccl.get() != "host":
                self._on_gpu, connection = driver, CONNECTIONS[driver.api]
                self._native.use(
                    connection.name, _libraries(connection), _hint(connection), *driver.addresses()
                )

    def __bool__(self) -> bool:
        return self._native is not None

    @contextmanager
    def together(self) -> Generator[None]:
        """A run, in which its ranks meet. GraphError if there is no group of them, or they have
        other graphs."""
        if self._native is None:
            yield
            return
        try:
            if self._on_gpu is not None:
                self._on_gpu.addresses()  # of this thread
            self._native.begin(self._asked)
        except _native.Error as error:
            raise GraphError(str(error), caller()) from None
        try:
            yield
        finally:
            self._native.end()

    def run(
        self, step: Collective[Place], buffers: Sequence[Buffer], rounds: Sequence[int]
    ) -> None:
        """Carry out a collective. FaultError where it fails."""
        if self._on_gpu is None:
            self._by_the_host(step, buffers, rounds)
            return
        source, target = (
            0 if place is None else buffers[place.base].raw[0] + place.at(rounds)
            for place in (step.source, step.target)
        )
        self._meet(step, source, target)

    def _by_the_host(
        self, step: Collective[Place], buffers: Sequence[Buffer], rounds: Sequence[int]
    ) -> None:
        source = np.empty(0 if step.source is None else bytes_at(step, "source"), np.uint8)
        target = np.empty(bytes_at(step, "target"), np.uint8)
        if step.source is not None:
            self._driver.read_into(buffers[step.source.base], step.source.at(rounds), source)
        self._meet(step, source.ctypes.data, target.ctypes.data)
        self._driver.write(buffers[step.target.base], step.target.at(rounds), target)

    def _meet(self, step: Collective[Place], source: int, target: int) -> None:
        assert self._native is not None
        why = self._native.run(self._numbers[id(step)], source, target, self._asked)
        if why:
            raise FaultError.at_site(self._sites, 1, step.site, why)


def _libraries(connection: Connection) -> list[str]:
    """Where the library may be, the likeliest first."""
    if knobs.nccl.get():
        return [knobs.nccl.get()]
    packaged = Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "nccl" / "lib" / connection.file
    return [*([str(packaged)] if packaged.exists() else []), connection.file]


def _hint(connection: Connection) -> str:
    install = f", as by `pip install {connection.package}`" if connection.package else ""
    return (
        f"install one{install}, name it in RLX_NCCL, or set RLX_NCCL=host, which has tensors go by"
        " way of the host"
    )
