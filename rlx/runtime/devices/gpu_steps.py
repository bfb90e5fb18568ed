"""The steps of a GPU program on the memories of one run."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from rlx.schedule.steps import Await, Collective, For, If, Launch, Place, Step, While
from rlx.targets.gpu.program import bind
from rlx.targets.gpu.work import Buffer, DeviceLaunch, Recording

if TYPE_CHECKING:
    from rlx.runtime.devices.gpu_executable import DeviceExecutable

__all__ = ["StepsOn"]

_COUNTER = struct.Struct("<q")


class StepsOn:
    """Steps on the memories of one run."""

    def __init__(
        self, owner: DeviceExecutable, buffers: Sequence[Buffer], steps: Sequence[Step[Place]]
    ) -> None:
        self.owner, self.buffers = owner, list(buffers)
        self.steps = _Steps(self, steps)

    def launch(self, step: Launch[Place], rounds: Sequence[int] = ()) -> DeviceLaunch:
        """A step as its driver takes it, in the given rounds of the loops around it."""
        kernel = self.owner.program.kernels[step.kernel]
        offsets, params = bind(step, kernel, self.owner.driver.limits.alignment, rounds)
        buffers = [self.buffers[p.base] for p in step.places]
        ranges = tuple((b, at, b.nbytes - at) for b, at in zip(buffers, offsets, strict=True))
        return DeviceLaunch(self.owner.handles[step.kernel], step.grid, ranges, params)

    def read(self, place: Place, rounds: Sequence[int], nbytes: int) -> bytes:
        """Bytes at a place."""
        return self.owner.driver.read(self.buffers[place.base], place.at(rounds), nbytes)

    def write(self, place: Place, rounds: Sequence[int], data: bytes) -> None:
        """Write bytes at a place."""
        self.owner.driver.write(self.buffers[place.base], place.at(rounds), data)


class _Steps:
    """Steps ready to run: launches side by side, which differ in no round, are recorded once."""

    def __init__(self, owner: StepsOn, steps: Sequence[Step[Place]]) -> None:
        self.owner, self.driver = owner, owner.owner.driver
        self.parts: list[_Part] = list(self._made(steps))

    def _made(self, steps: Sequence[Step[Place]]) -> Iterator[_Part]:
        fixed: list[DeviceLaunch] = []
        for step in steps:
            if isinstance(step, Launch) and not any(p.moves for p in step.places):
                fixed.append(self.owner.launch(step))
                continue
            if fixed:
                yield self.driver.record(fixed)
                fixed = []
            if not isinstance(step, Await):  # a collective ends before what comes next
                yield step if isinstance(step, (Launch, Collective)) else _Control(self.owner, step)
        if fixed:
            yield self.driver.record(fixed)

    def run(self, rounds: tuple[int, ...]) -> None:
        """Run in the given rounds of the loops around."""
        for part in self.parts:
            self.owner.owner.end_if_asked()
            if isinstance(part, Recording):
                self.driver.run(part)
            elif isinstance(part, Launch):
                self.driver.run([self.owner.launch(part, rounds)])
            elif isinstance(part, Collective):
                self.owner.owner.meetings.run(part, self.owner.buffers, rounds)
            else:
                part.run(rounds)


class _Control:
    """A branch or a loop: the host reads what decides it."""

    def __init__(self, owner: StepsOn, step: If[Place] | While[Place] | For[Place]) -> None:
        self.owner, self.program, self.step = owner, owner.owner, step
        match step:
            case If():
                lists = [step.then, step.otherwise]
            case While():
                lists = [step.test, step.body]
            case For():
                lists = [step.body]
        self.lists = [_Steps(owner, steps) for steps in lists]

    def run(self, rounds: tuple[int, ...]) -> None:
        """Run in the given rounds of the loops around."""
        match self.step:
            case If(flag):
                self.lists[0 if self._flag(flag, rounds) else 1].run(rounds)
            case While():
                self._repeat(self.step, rounds)
            case For():
                self._loop(self.step, rounds)

    def _flag(self, flag: Place, rounds: tuple[int, ...]) -> bool:
        return self.owner.read(flag, rounds, 1) != b"\0"

    def _repeat(self, step: While[Place], rounds: tuple[int, ...]) -> None:
        test, body = self.lists
        sites, done = self.program.program.sites, 0
        while True:
            self.program.end_if_asked()  # its steps need not launch anything
            test.run(rounds)
            if not self._flag(step.flag, rounds) or (sites and self.program.faulted()):
                return
            if done == step.limit:
                self.program.fault(1, step.site)
                return
            body.run(rounds)
            done += 1

    def _loop(self, step: For[Place], rounds: tuple[int, ...]) -> None:
        numbers = range(step.rounds)
        for n in reversed(numbers) if step.reverse else numbers:
            if step.counter is not None:
                self.owner.write(step.counter, rounds, _COUNTER.pack(n))
            self.lists[0].run((*rounds, n))


_Part: TypeAlias = Recording | Launch[Place] | Collective[Place] | _Control
