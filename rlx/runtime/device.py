"""Running a GPU program through a driver: params bound, runs made, faults told."""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from rlx.errors import FaultError, GraphError, UnsupportedError
from rlx.graph import Graph
from rlx.ops.base import caller
from rlx.records import frozen
from rlx.runtime.artifact import Artifact, Signature, Variant
from rlx.runtime.calls import check_params
from rlx.runtime.device_array import DeviceArray, accepted, put
from rlx.targets import best_features, find_target
from rlx.targets.gpu.driver import Driver
from rlx.targets.gpu.drivers import shared_driver
from rlx.targets.gpu.loop_limit import check_rounds, most_rounds
from rlx.targets.gpu.program import Branch, Dispatch, For, GpuProgram, Repeat, Step
from rlx.targets.gpu.work import Buffer, Launch, Recording

__all__ = ["DeviceBackend", "DeviceExecutable"]

Array = np.ndarray[Any, Any]

_RUNS = 8
"""Of a program, for how many sets of memories recorded launches are kept."""

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

        features, chosen = best_features(self.name, self.driver.features).name, Options.of(options)
        chosen = replace(chosen, most_rounds=most_rounds(str(self.driver)))
        artifact, report = find_or_compile(
            graph, (self.name, features), chosen, lambda: find_target(f"{self.name}:{features}")
        )
        return self.loaded(artifact, report, chosen.donate)

    def loaded(
        self, artifact: Artifact, report: Any = None, donate: Sequence[tuple[int, int]] = ()
    ) -> DeviceExecutable:
        """An artifact in the memory of the device; ArtifactError if it has nothing for it."""
        driver = self.driver
        variant = artifact.fitting(self.name, driver.features, str(driver))
        assert not isinstance(variant, Variant)
        check_rounds(variant.program, str(driver))
        made = DeviceExecutable(variant.program, driver, report, donate)
        for name, value in artifact.values.items():
            made.set_param(name, value)
        return made

    def put(self, value: Any) -> DeviceArray:
        """A copy of an array in the memory of the device."""
        return put(self.driver, value)

    def set_threads(self, n: int) -> None:
        """The host only waits for the device; any number is accepted."""


@frozen
class _Signatures:
    inputs: list[Signature]
    outputs: list[Signature]


class DeviceExecutable:
    """One program in the memory of a device. Safe to call from many threads: calls take turns.

    Params are copied to the device when they are set. A run copies inputs of the host there, and
    outputs back unless they are to stay. ``report`` is what its compile said of itself, ``donate``
    pairs the inputs and the outputs that share memory.
    """

    def __init__(
        self,
        program: GpuProgram,
        driver: Driver,
        report: Any = None,
        donate: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.program, self.driver, self.report = program, driver, report
        self.donate = dict(donate)
        self.artifact = _Signatures(program.inputs, program.outputs)
        self.weights = self
        self._lock = threading.Lock()
        self._handles = [driver.load(k) for k in program.kernels]
        self._buffers = [driver.allocate(m.nbytes) for m in program.memories]
        self._number = {(m.role, m.index): n for n, m in enumerate(program.memories)}
        self._of = {place: self._buffers[n] for place, n in self._number.items()}
        self._runs: OrderedDict[tuple[int, ...], _Run] = OrderedDict()
        self._spare = [deque[Buffer]() for _ in program.outputs]
        self._names = {name: n for n, (name, _, _) in enumerate(program.params)}
        self._set: set[str] = set()  # params whose memory holds a value
        self._changed = set(range(len(program.params)))
        self._started = False
        for n, constant in enumerate(program.constants):
            self._write(self._of["constant", n], constant)

    def set_param(self, name: str, value: Array) -> None:
        """Copy a param of its declared type and shape to the device."""
        number = self._names[name]
        with self._turn():
            self._set.discard(name)  # a write that fails may leave a part of it
            self._write(self._of["param", number], value)
            self._set.add(name)
            self._changed.add(number)

    def accept(self, value: Any, signature: Signature) -> Array | DeviceArray:
        """What was given for an input; see ``accepted``."""
        return accepted(self.driver, value, signature)

    def run_slots(self, *inputs: Any) -> tuple[Array, ...]:
        """Run on inputs in declared order; the results are new arrays."""
        with self._turn():
            buffers = self._bound(inputs, in_place=False)
            self._execute(buffers)
            return tuple(self._output(buffers, n) for n in range(len(self.program.outputs)))

    def run_into(self, inputs: Sequence[Any], outputs: Sequence[Array]) -> None:
        """Run and copy the results into ``outputs``."""
        for out, value in zip(outputs, self.run_slots(*inputs), strict=True):
            out[...] = value

    def run_on_device(self, inputs: Sequence[Any]) -> list[DeviceArray]:
        """Run, with results that stay in the memory of the device."""
        outputs = self.program.outputs
        with self._turn():
            buffers = self._bound(inputs, in_place=False)
            made: list[DeviceArray] = []
            for n, (_, dt, shape) in enumerate(outputs):
                memory, spare = self._number["output", n], self._spare[n]
                new = spare.pop() if spare else self.driver.allocate(self._buffers[memory].nbytes)
                if n in self.donate.values():
                    self._copy(buffers[memory], new)
                buffers[memory] = new
                made.append(DeviceArray(new, dt, shape, spare))
            for i, o in self.donate.items():
                buffers[self._number["input", i]] = made[o].buffer
            self._execute(buffers)
            return made

    def run_in_place(self, inputs: Sequence[Any]) -> list[Array]:
        """Run with donated outputs written over their inputs; the others are new arrays."""
        with self._turn():
            buffers = self._bound(inputs, in_place=True)
            self._execute(buffers)
            for i, o in self.donate.items():
                if isinstance(inputs[i], np.ndarray):
                    inputs[i][...] = self._output(buffers, o)
            others = set(range(len(self.program.outputs))) - set(self.donate.values())
            return [self._output(buffers, n) for n in sorted(others)]

    def _bound(self, inputs: Sequence[Any], *, in_place: bool) -> list[Buffer]:
        """The memories of a run: inputs of the host are copied to the device, and a donated output
        lies over its input, or over a copy unless it is to be written ``in_place``. NameError if a
        param has no value: its memory holds what was there before."""
        check_params(self._names, self._set)
        expected = self.program.inputs
        if len(inputs) != len(expected):
            names = ", ".join(repr(name) for name, _, _ in expected) or "none"
            raise GraphError(
                f"found {len(inputs)} inputs, expected {len(expected)}: {names}", caller()
            )
        given = [self.accept(a, s) for a, s in zip(inputs, expected, strict=True)]
        buffers = list(self._buffers)
        for n, a in enumerate(given):
            memory = self._number["input", n]
            if isinstance(a, np.ndarray):
                self._write(buffers[memory], a)
            elif n in self.donate and not in_place:
                self._copy(a.buffer, buffers[memory])
            else:
                buffers[memory] = a.buffer
            if n in self.donate:
                buffers[self._number["output", self.donate[n]]] = buffers[memory]
        return buffers

    def _execute(self, buffers: Sequence[Buffer]) -> None:
        if self.program.sites:
            self._write(self._of["error", 0], np.zeros(2, np.int32))
        self._prologue()
        self._main(buffers).steps.run(())
        self._check_faults()

    @contextmanager
    def _turn(self) -> Generator[None]:
        """Alone. In a process that was forked off, what another thread held is held for ever."""
        self.driver.check_process()
        with self._lock:
            yield

    def profile(self, inputs: Sequence[Array], runs: int) -> Any:
        """UnsupportedError: the launches of a device are not timed."""
        raise UnsupportedError(
            f"launches on {self.driver} cannot be timed one by one; compile for 'cpu'", caller()
        )

    # -- memory ----------------------------------------------------------------------------

    def _write(self, buffer: Buffer, a: Array) -> None:
        if a.size:
            self.driver.write(buffer, 0, np.ascontiguousarray(a).reshape(-1).view(np.uint8))

    def _copy(self, source: Buffer, target: Buffer) -> None:
        """Copy a buffer by way of the host, which drivers of all APIs can."""
        if source is not target and source.nbytes:
            self.driver.write(target, 0, self.driver.read(source, 0, source.nbytes))

    def _output(self, buffers: Sequence[Buffer], number: int) -> Array:
        _, dt, shape = self.program.outputs[number]
        return DeviceArray(buffers[self._number["output", number]], dt, shape).numpy()

    # -- runs ------------------------------------------------------------------------------

    def _main(self, buffers: Sequence[Buffer]) -> _Run:
        """The main steps on these memories; what was recorded for some is kept for the next time
        that they come."""
        key = tuple(map(id, buffers))  # a run keeps its buffers, so that no other has their numbers
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = _Run(self, buffers, self.program.main)
            while len(self._runs) > _RUNS:
                self._runs.popitem(last=False)
        self._runs.move_to_end(key)
        return run

    @cached_property
    def _prologues(self) -> list[tuple[_Run, tuple[int, ...]]]:
        return [(_Run(self, self._buffers, (s,)), follows) for s, follows in self.program.prologue]

    def _prologue(self) -> None:
        if self._started and not self._changed:
            return
        for run, follows in self._prologues:
            if self._changed.intersection(follows) or (not follows and not self._started):
                run.steps.run(())
        self._check_faults()  # what it made with one is of no use: the next run makes it again
        self._changed.clear()
        self._started = True

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


class _Run:
    """Steps on the memories of one run."""

    def __init__(
        self, owner: DeviceExecutable, buffers: Sequence[Buffer], steps: Sequence[Step]
    ) -> None:
        self.owner, self.buffers = owner, list(buffers)
        self.steps = _Steps(self, steps)

    def launch(self, step: Dispatch, rounds: Sequence[int] = ()) -> Launch:
        """A step as its driver takes it, in the given rounds of the loops around it."""
        kernel = self.owner.program.kernels[step.kernel]
        offsets, params = step.bind(kernel, self.owner.driver.limits.alignment, rounds)
        buffers = [self.buffers[p.memory] for p in step.places]
        ranges = tuple((b, at, b.nbytes - at) for b, at in zip(buffers, offsets, strict=True))
        return Launch(self.owner._handles[step.kernel], step.groups, ranges, params)

    def read(self, memory: int, offset: int, nbytes: int) -> bytes:
        """Bytes of one of the program's memories."""
        return self.owner.driver.read(self.buffers[memory], offset, nbytes)

    def write(self, memory: int, offset: int, data: bytes) -> None:
        """Write bytes of one of the program's memories."""
        self.owner.driver.write(self.buffers[memory], offset, data)


class _Steps:
    """Steps ready to run: launches side by side, which differ in no round, are recorded once."""

    def __init__(self, owner: _Run, steps: Sequence[Step]) -> None:
        self.owner, self.driver = owner, owner.owner.driver
        self.parts: list[Recording | Dispatch | _Control] = list(self._made(steps))

    def _made(self, steps: Sequence[Step]) -> Iterator[Recording | Dispatch | _Control]:
        still: list[Launch] = []
        for step in steps:
            if isinstance(step, Dispatch) and not step.moves:
                still.append(self.owner.launch(step))
                continue
            if still:
                yield self.driver.record(still)
                still = []
            yield step if isinstance(step, Dispatch) else _Control(self.owner, step)
        if still:
            yield self.driver.record(still)

    def run(self, rounds: tuple[int, ...]) -> None:
        """Run in the given rounds of the loops around."""
        for part in self.parts:
            if isinstance(part, Recording):
                self.driver.run(part)
            elif isinstance(part, Dispatch):
                self.driver.run([self.owner.launch(part, rounds)])
            else:
                part.run(rounds)


class _Control:
    """A branch or a loop: the host reads what decides it."""

    def __init__(self, owner: _Run, step: Branch | Repeat | For) -> None:
        self.owner, self.program, self.step = owner, owner.owner, step
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
            if not self._flag(rounds) or (self.program.program.sites and self.program.faulted()):
                return
            if done == step.limit:
                self.program.fault(1, step.site)
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
