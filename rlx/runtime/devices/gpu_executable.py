"""Running a GPU program through a driver: params bound, runs made, faults told."""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx import knobs
from rlx.base.cached import cached_property
from rlx.base.frozen import frozen
from rlx.errors import FaultError, GraphError
from rlx.ir.graph import Graph
from rlx.ir.op import caller
from rlx.runtime import _native
from rlx.runtime.artifact import Artifact, Variant
from rlx.runtime.backend import Backend
from rlx.runtime.calls import check_params
from rlx.runtime.devices.device_array import DeviceArray, accepted, put
from rlx.runtime.devices.gpu_meetings import GpuMeetings
from rlx.runtime.devices.gpu_steps import StepsOn
from rlx.runtime.executable import wrong_count
from rlx.runtime.interrupts import Held, held
from rlx.schedule.plan import Signature
from rlx.targets import best_features, find_target
from rlx.targets.gpu.driver import Driver
from rlx.targets.gpu.drivers import shared_driver
from rlx.targets.gpu.loop_limit import check_rounds, most_rounds
from rlx.targets.gpu.program import GpuProgram
from rlx.targets.gpu.work import Buffer, Handle

if TYPE_CHECKING:
    from rlx.runtime.sized import Variants
    from rlx.runtime.sized_variant import ArtifactVariants
    from rlx.targets.base import Target

__all__ = ["DeviceBackend", "DeviceCode", "DeviceExecutable", "DeviceWeights"]

Array = np.ndarray[Any, Any]

_RUNS = 8
"""Of a program, for how many sets of memories recorded launches are kept."""

_ERROR = struct.Struct("<ii")


class DeviceBackend(Backend):
    """A GPU as a device: compiles for the target of an API, and runs by its driver, the one that
    the process has open unless another is given. DeviceError if there is no such device here."""

    def __init__(self, api: str, driver: Driver | None = None) -> None:
        self.name, self.driver = api, driver or shared_driver(api)

    def load(self, graph: Graph, options: Mapping[str, Any], shared: Sequence[Any]) -> Any:
        """A graph with all dims bound, compiled for what the device has, in its memory."""
        from rlx.lowering.compilation import Options
        from rlx.runtime.cache.artifacts import find_or_compile

        chosen = replace(Options.of(options), most_rounds=most_rounds(str(self.driver)))
        target, make_target = self._target()
        artifact, report = find_or_compile(graph, target, chosen, make_target)
        return self.loaded(artifact, report, chosen.donate)

    def _target(self) -> tuple[tuple[str, str], Callable[[], Target]]:
        """The name and the features of what is compiled for, and what makes it."""
        features = best_features(self.name, self.driver.features).name
        return (self.name, features), lambda: find_target(f"{self.name}:{features}")

    def variants(self, graph: Graph, options: Mapping[str, Any]) -> Variants | None:
        """What compiles a graph with symbolic dims for many sizes at once, if that is wanted."""
        if knobs.sizes.get() != "symbolic":
            return None
        from rlx.lowering.compilation import Options
        from rlx.runtime.sized import Variants

        chosen = replace(Options.of(options), most_rounds=most_rounds(str(self.driver)))
        return Variants(graph, *self._target(), chosen, self._code)

    def loaded_variants(self, artifact: Artifact) -> ArtifactVariants:
        """The variants of an artifact for many sizes; as ``loaded``."""
        from rlx.runtime.sized_variant import ArtifactVariants

        driver = self.driver
        return ArtifactVariants(
            artifact, artifact.all_fitting(self.name, driver.features, str(driver)), self._code
        )

    def _code(self, *given: Any) -> DeviceCode:
        return DeviceCode(self.driver, *given)

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


@frozen
class _Signatures:
    inputs: list[Signature]
    outputs: list[Signature]


class DeviceWeights:
    """The kernels of a program in a device, and the memories that its calls do not change: params,
    constants, and what the prologue makes of them. Programs for other sizes share them."""

    def __init__(self, program: GpuProgram, driver: Driver) -> None:
        self.driver = driver
        self.lock = threading.Lock()  # of the call that has its turn
        self.handles = [driver.load(k) for k in program.kernels]
        self.buffers = {
            n: driver.allocate(m.nbytes)
            for n, m in enumerate(program.memories)
            if m.role in ("packed", "error", "param", "constant")
        }
        numbers = {(m.role, m.index): n for n, m in enumerate(program.memories)}
        self.of = {place: self.buffers[n] for place, n in numbers.items() if n in self.buffers}
        self.names = {name: n for n, (name, _, _) in enumerate(program.params)}
        self.set: set[str] = set()  # params whose memory holds a value
        self.changed = set(range(len(program.params)))
        self.started = False
        for n, constant in enumerate(program.constants):
            write_array(driver, self.of["constant", n], constant)

    def set_param(self, name: str, value: Array) -> None:
        """Copy a param of its declared type and shape to the device."""
        number = self.names[name]
        with self.turn():
            self.set.discard(name)  # a write that fails may leave a part of it
            write_array(self.driver, self.of["param", number], value)
            self.set.add(name)
            self.changed.add(number)

    @contextmanager
    def turn(self, wait: bool = True) -> Generator[Held]:
        """Exclusive use of the device. Ctrl-C is handled between launches only, since a driver
        cannot resume half-done work. In a process that was forked off, what another thread held is
        held for ever. GraphError if another thread has its turn, and this one is not to ``wait``.
        """
        self.driver.check_process()
        if not self.lock.acquire(blocking=wait):
            raise GraphError(
                "a graph with collectives runs on a device already, and its ranks wait for each"
                " other; compile it once for each rank",
                caller(),
            )
        try:
            with held() as waiting:
                yield waiting
        finally:
            self.lock.release()


def write_array(driver: Driver, buffer: Buffer, a: Array) -> None:
    """Write an array to the beginning of a buffer."""
    if a.size:
        driver.write(buffer, 0, np.ascontiguousarray(a).reshape(-1).view(np.uint8))


class DeviceExecutable:
    """One program in the memory of a device. Safe to call from many threads: calls of all that
    share ``weights`` take turns.

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
        weights: DeviceWeights | None = None,
    ) -> None:
        self.program, self.driver, self.report = program, driver, report
        self.donate = dict(donate)
        self.artifact = _Signatures(program.inputs, program.outputs)
        self.weights = weights or DeviceWeights(program, driver)
        self._held = Held()  # of the call that has its turn
        self.meetings = GpuMeetings(program, driver, self.end_if_asked)
        self._patience, self._half = 0, list[Buffer]()  # of a run in place
        shared = self.weights.buffers
        own = {n: m.nbytes for n, m in enumerate(program.memories) if n not in shared}
        self.held_bytes = sum(own.values())
        made = {n: driver.allocate(nbytes) for n, nbytes in own.items()}
        self._buffers = [shared.get(n) or made[n] for n in range(len(program.memories))]
        self._number = {(m.role, m.index): n for n, m in enumerate(program.memories)}
        self._runs: OrderedDict[tuple[int, ...], StepsOn] = OrderedDict()
        self._spare = [deque[Buffer]() for _ in program.outputs]

    def set_param(self, name: str, value: Array) -> None:
        """See ``DeviceWeights.set_param``."""
        self.weights.set_param(name, value)

    @property
    def handles(self) -> Sequence[Handle]:
        """The kernels, by their numbers."""
        return self.weights.handles

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
            self._in_place(buffers, [inputs[i] for i in self.donate])
            for i, o in self.donate.items():
                if isinstance(inputs[i], np.ndarray):
                    inputs[i][...] = self._output(buffers, o)
            others = set(range(len(self.program.outputs))) - set(self.donate.values())
            return [self._output(buffers, n) for n in sorted(others)]

    def _bound(self, inputs: Sequence[Any], *, in_place: bool) -> list[Buffer]:
        """The memories of a run: inputs of the host are copied to the device, and a donated output
        lies over its input, or over a copy unless it is to be written ``in_place``. NameError if a
        param has no value: its memory holds what was there before."""
        check_params(self.weights.names, self.weights.set)
        expected = self.program.inputs
        if len(inputs) != len(expected):
            raise wrong_count(len(inputs), [name for name, _, _ in expected])
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
        with self.meetings.together():
            if self.program.sites:
                self._write(self.weights.of["error", 0], np.zeros(2, np.int32))
            self._prologue()
            self._main(buffers).steps.run(())
            self._check_faults()

    def _in_place(self, buffers: Sequence[Buffer], state: Sequence[Any]) -> None:
        """Run over what is donated. A first Ctrl-C waits for the end; at a second, what is half
        written in the memory of the device becomes all ones: nan, or -1."""
        self._patience = 1
        self._half = [a.buffer for a in state if isinstance(a, DeviceArray)]
        try:
            self._execute(buffers)
        finally:
            self._patience, self._half = 0, []

    def end_if_asked(self) -> None:
        """End the run by what the handler of Ctrl-C raises, if that was pressed."""
        try:
            self._held.let_through(self._patience)
        except BaseException:
            for buffer in self._half:
                self._write(buffer, np.full(buffer.nbytes, 255, np.uint8))
            raise

    @contextmanager
    def _turn(self) -> Generator[None]:
        with self.weights.turn(wait=not self.meetings) as self._held:
            yield

    def profile(self, inputs: Sequence[Array], runs: int) -> Any:
        """Time so many runs as wholes, with what they copy to and from the device, after one that
        does not count."""
        from rlx.runtime.profile import measure

        self.run_slots(*inputs)  # the prologue, and what is recorded
        found = measure(lambda: self.run_slots(*inputs), lambda: (), (), runs, 1)
        return replace(found, whole=str(self.driver))

    # -- memory ----------------------------------------------------------------------------

    def _write(self, buffer: Buffer, a: Array) -> None:
        write_array(self.driver, buffer, a)

    def _copy(self, source: Buffer, target: Buffer) -> None:
        """Copy a buffer by way of the host, which drivers of all APIs can."""
        if source is not target and source.nbytes:
            self.driver.write(target, 0, self.driver.read(source, 0, source.nbytes))

    def _output(self, buffers: Sequence[Buffer], number: int) -> Array:
        _, dt, shape = self.program.outputs[number]
        return DeviceArray(buffers[self._number["output", number]], dt, shape).numpy()

    # -- runs ------------------------------------------------------------------------------

    def _main(self, buffers: Sequence[Buffer]) -> StepsOn:
        """The main steps on these memories; what was recorded for some is kept for the next time
        that they come."""
        key = tuple(map(id, buffers))  # a run keeps its buffers, so that no other has their numbers
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = StepsOn(self, buffers, self.program.main)
            while len(self._runs) > _RUNS:
                self._runs.popitem(last=False)
        self._runs.move_to_end(key)
        return run

    @cached_property
    def _prologues(self) -> list[tuple[StepsOn, tuple[int, ...]]]:
        return [
            (StepsOn(self, self._buffers, (s,)), follows) for s, follows in self.program.prologue
        ]

    def _prologue(self) -> None:
        known = self.weights
        if known.started and not known.changed:
            return
        for run, follows in self._prologues:
            if known.changed.intersection(follows) or (not follows and not known.started):
                run.steps.run(())
        self._check_faults()  # what it made with one is of no use: the next run makes it again
        known.changed.clear()
        known.started = True

    def faulted(self) -> bool:
        """Whether a kernel of this run has recorded a fault."""
        return self._error()[0] != 0

    def fault(self, code: int, site: int) -> None:
        """Record a fault of the host's own, unless there is one already."""
        if not self.faulted():
            self.driver.write(self.weights.of["error", 0], 0, _ERROR.pack(code, site))

    def _error(self) -> tuple[int, int]:
        return _ERROR.unpack(self.driver.read(self.weights.of["error", 0], 0, _ERROR.size))

    def _check_faults(self) -> None:
        if not self.program.sites:
            return
        code, site = self._error()
        if code != 0:
            raise FaultError.at_site(self.program.sites, code, site)


class DeviceCode:
    """A program for many sizes in the memory of a device, which ``sizes`` evaluates; ``shared`` are
    weights of others, of which it takes none. As ``SizedCode``.
    """

    short = False

    def __init__(
        self,
        driver: Driver,
        artifact: Artifact,
        sizes: _native.SizeProgram,
        report: Any,
        shared: Sequence[Any],
        donate: Sequence[tuple[int, int]],
    ) -> None:
        (variant,) = artifact.variants
        assert not isinstance(variant, Variant), "it is for a device"
        check_rounds(variant.program, str(driver))
        self.driver, self.report = driver, report
        self._program, self._sizes, self._donate = variant.program, sizes, donate
        self.weights = DeviceWeights(variant.program, driver)
        for name, value in artifact.values.items():
            self.weights.set_param(name, value)

    def bound(self, sizes: Sequence[int]) -> DeviceExecutable | None:
        """The executable for sizes by the order of names; None where they do not meet its guards.
        ``_native.Error`` where they are too large."""
        found = self._sizes.bind(sizes)
        if found is None:
            return None
        words, numbers = found
        kernels = [(len(k.bindings), k.params) for k in self._program.kernels]
        _native.check_device_steps(words, kernels, numbers[: len(self._program.memories)])
        program = self._program.at(words, numbers)
        return DeviceExecutable(program, self.driver, self.report, self._donate, self.weights)
