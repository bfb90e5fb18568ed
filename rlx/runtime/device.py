"""Running a GPU program through a driver: params bound, runs made, faults told."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rlx.errors import FaultError, GraphError, UnsupportedError
from rlx.graph import Graph
from rlx.ops.base import caller
from rlx.runtime.artifact import Artifact, Signature, Variant
from rlx.runtime.executable import as_array
from rlx.targets import best_features, find_target
from rlx.targets.gpu.driver import Driver
from rlx.targets.gpu.drivers import shared_driver
from rlx.targets.gpu.program import Branch, Dispatch, For, GpuProgram, Repeat, Step
from rlx.targets.gpu.work import Buffer, Launch, Recording
from rlx.types import DTYPES

__all__ = ["DeviceBackend", "DeviceExecutable"]

Array = np.ndarray[Any, Any]

_COUNTER = struct.Struct("<q")
_ERROR = struct.Struct("<ii")


class DeviceBackend:
    """A GPU as a device: compiles for the target of an API, and runs by its driver, the one that
    the process has open unless another is given. DeviceError if there is no such device here."""

    def __init__(self, api: str, driver: Driver | None = None) -> None:
        self.name, self.driver = api, driver or shared_driver(api)

    def load(self, graph: Graph, options: Mapping[str, Any], shared: Sequence[Any]) -> Any:
        """A graph with all dims bound, compiled for what the device has, in its memory."""
        from rlx.lowering.compilation import Options
        from rlx.runtime.cache.artifacts import find_or_compile

        features = best_features(self.name, self.driver.features).name
        artifact, report = find_or_compile(
            graph,
            (self.name, features),
            Options.of(options),
            lambda: find_target(f"{self.name}:{features}"),
        )
        return self.loaded(artifact, report)

    def loaded(self, artifact: Artifact, report: Any = None) -> DeviceExecutable:
        """An artifact in the memory of the device; ArtifactError if it has nothing for it."""
        driver = self.driver
        variant = artifact.fitting(self.name, driver.features, str(driver))
        assert not isinstance(variant, Variant)
        made = DeviceExecutable(variant.program, driver, report)
        for name, value in artifact.values.items():
            made.set_param(name, value)
        return made

    def set_threads(self, n: int) -> None:
        """The host only waits for the device; any number is accepted."""


@dataclass(frozen=True)
class _Signatures:
    inputs: list[Signature]
    outputs: list[Signature]


class DeviceExecutable:
    """One program in the memory of a device. Safe to call from many threads: calls take turns.

    ``report`` is what its compile said of itself.
    """

    def __init__(self, program: GpuProgram, driver: Driver, report: Any = None) -> None:
        self.program, self.driver, self.report = program, driver, report
        self.artifact = _Signatures(program.inputs, program.outputs)
        self.weights = self
        self._lock = threading.Lock()
        self._handles = [driver.load(k) for k in program.kernels]
        self._buffers = [driver.allocate(m.nbytes) for m in program.memories]
        self._of = {
            (m.role, m.index): b for m, b in zip(program.memories, self._buffers, strict=True)
        }
        self._names = {name: n for n, (name, _, _) in enumerate(program.params)}
        self._changed = set(range(len(program.params)))
        self._started = False
        for n, constant in enumerate(program.constants):
            self._write(self._of["constant", n], constant)

    def set_param(self, name: str, value: Array) -> None:
        """Copy a param of its declared type and shape to the device."""
        number = self._names[name]
        with self._lock:
            self._write(self._of["param", number], value)
            self._changed.add(number)

    def run_slots(self, *inputs: Array) -> tuple[Array, ...]:
        """Run on inputs in declared order; the results are new arrays."""
        expected = self.program.inputs
        if len(inputs) != len(expected):
            names = ", ".join(repr(name) for name, _, _ in expected) or "none"
            raise GraphError(
                f"found {len(inputs)} inputs, expected {len(expected)}: {names}", caller()
            )
        given = [as_array(a, s, "input") for a, s in zip(inputs, expected, strict=True)]
        with self._lock:
            for n, a in enumerate(given):
                self._write(self._of["input", n], a)
            self._write(self._of["error", 0], np.zeros(2, np.int32))
            self._prologue()
            self._main.run(())
            self._check_faults()
            return tuple(self._output(n, s) for n, s in enumerate(self.program.outputs))

    def run_into(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run and copy the results into ``outputs``."""
        for out, value in zip(outputs, self.run_slots(*inputs), strict=True):
            out[...] = value

    def profile(self, inputs: Sequence[Array], runs: int) -> Any:
        """UnsupportedError: the launches of a device are not timed."""
        raise UnsupportedError(
            f"launches on {self.driver} cannot be timed one by one; compile for 'cpu'", caller()
        )

    # -- memory ----------------------------------------------------------------------------

    def _write(self, buffer: Buffer, a: Array) -> None:
        if a.size:
            self.driver.write(buffer, 0, np.ascontiguousarray(a).reshape(-1).view(np.uint8))

    def _output(self, number: int, signature: Signature) -> Array:
        _, dt, shape = signature
        out = np.empty(shape, DTYPES[dt].numpy)
        if out.size:
            self.driver.read_into(self._of["output", number], 0, out.reshape(-1).view(np.uint8))
        return out

    # -- runs ------------------------------------------------------------------------------

    @cached_property
    def _main(self) -> _Steps:
        return _Steps(self, self.program.main)

    @cached_property
    def _prologues(self) -> list[tuple[_Steps, tuple[int, ...]]]:
        return [(_Steps(self, (step,)), follows) for step, follows in self.program.prologue]

    def _prologue(self) -> None:
        if self._started and not self._changed:
            return
        for steps, follows in self._prologues:
            if self._changed.intersection(follows) or (not follows and not self._started):
                steps.run(())
        self._changed.clear()
        self._started = True

    def launch(self, step: Dispatch, rounds: Sequence[int] = ()) -> Launch:
        """A step as its driver takes it, in the given rounds of the loops around it."""
        kernel = self.program.kernels[step.kernel]
        offsets, params = step.bind(kernel, self.driver.limits.alignment, rounds)
        buffers = [self._buffers[p.memory] for p in step.places]
        ranges = tuple((b, at, b.nbytes - at) for b, at in zip(buffers, offsets, strict=True))
        return Launch(self._handles[step.kernel], step.groups, ranges, params)

    def read(self, memory: int, offset: int, nbytes: int) -> bytes:
        """Bytes of one of the program's memories."""
        return self.driver.read(self._buffers[memory], offset, nbytes)

    def write(self, memory: int, offset: int, data: bytes) -> None:
        """Write bytes of one of the program's memories."""
        self.driver.write(self._buffers[memory], offset, data)

    def faulted(self) -> bool:
        """Whether a kernel of this run has recorded a fault."""
        return self._error()[0] != 0

    def fault(self, code: int, site: int) -> None:
        """Record a fault of the host's own, unless there is one already."""
        if not self.faulted():
            self.driver.write(self._of["error", 0], 0, _ERROR.pack(code, site))

    def _error(self) -> tuple[int, int]:
        return _ERROR.unpack(self.driver.read(self._of["error", 0], 0, _ERROR.size))

    def _check_faults(self) -> None:
        if not self.program.sites:
            return
        code, site = self._error()
        if code == 0:
            return
        # A kernel with several messages has as many sites in a row; its codes count from 1.
        if not 0 <= site + code - 1 < len(self.program.sites):
            raise FaultError(f"a kernel reported fault {code} at the unknown site {site}")
        message, file, line = self.program.sites[site + code - 1]
        raise FaultError(message, (file, line))


class _Steps:
    """Steps ready to run: launches side by side, which differ in no round, are recorded once."""

    def __init__(self, owner: DeviceExecutable, steps: Sequence[Step]) -> None:
        self.owner = owner
        self.parts: list[Recording | Dispatch | _Control] = list(self._made(steps))

    def _made(self, steps: Sequence[Step]) -> Iterator[Recording | Dispatch | _Control]:
        still: list[Launch] = []
        for step in steps:
            if isinstance(step, Dispatch) and not step.moves:
                still.append(self.owner.launch(step))
                continue
            if still:
                yield self.owner.driver.record(still)
                still = []
            yield step if isinstance(step, Dispatch) else _Control(self.owner, step)
        if still:
            yield self.owner.driver.record(still)

    def run(self, rounds: tuple[int, ...]) -> None:
        """Run in the given rounds of the loops around."""
        for part in self.parts:
            if isinstance(part, Recording):
                self.owner.driver.run(part)
            elif isinstance(part, Dispatch):
                self.owner.driver.run([self.owner.launch(part, rounds)])
            else:
                part.run(rounds)


class _Control:
    """A branch or a loop: the host reads what decides it."""

    def __init__(self, owner: DeviceExecutable, step: Branch | Repeat | For) -> None:
        self.owner, self.step = owner, step
        lists = {
            Branch: lambda s: (s.then, s.otherwise),
            Repeat: lambda s: (s.test, s.body),
            For: lambda s: (s.body,),
        }[type(step)](step)
        self.lists = [_Steps(owner, steps) for steps in lists]

    def run(self, rounds: tuple[int, ...]) -> None:
        """Run in the given rounds of the loops around."""
        match self.step:
            case Branch():
                self.lists[0 if self._flag(rounds) else 1].run(rounds)
            case Repeat():
                self._repeat(self.step, rounds)
            case For():
                self._loop(self.step, rounds)

    def _flag(self, rounds: tuple[int, ...]) -> bool:
        assert not isinstance(self.step, For)
        place = self.step.flag
        return self.owner.read(place.memory, place.at(rounds), 1) != b"\0"

    def _repeat(self, step: Repeat, rounds: tuple[int, ...]) -> None:
        test, body = self.lists
        done = 0
        while True:
            test.run(rounds)
            if not self._flag(rounds) or (self.owner.program.sites and self.owner.faulted()):
                return
            if done == step.limit:
                self.owner.fault(1, step.site)
                return
            body.run(rounds)
            done += 1

    def _loop(self, step: For, rounds: tuple[int, ...]) -> None:
        numbers = range(step.rounds)
        for n in reversed(numbers) if step.reverse else numbers:
            if step.counter is not None:
                at = step.counter.at(rounds)
                self.owner.write(step.counter.memory, at, _COUNTER.pack(n))
            self.lists[0].run((*rounds, n))
