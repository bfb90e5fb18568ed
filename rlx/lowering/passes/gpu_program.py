"""From a schedule to a GPU program: kernels with their bindings, and a buffer for every memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rlx.base.dims import SymDim, bind_dim, ceil_div, is_known, maximum
from rlx.base.guards import Guard
from rlx.codegen.builder import KernelText
from rlx.codegen.control import ROUNDS_SITE
from rlx.errors import UnsupportedError
from rlx.kernels.registry import emit_kernel
from rlx.schedule.arena import ALIGN, plan_slots
from rlx.schedule.bind import bind_schedule, unplaced
from rlx.schedule.codec import read_main
from rlx.schedule.plan import ROLES, Buffer, PrologueStep, Role, Schedule
from rlx.schedule.size_program import dims_of, steps_program
from rlx.schedule.sizes import SizeProgram
from rlx.schedule.steps import Launch, Place, Size, Step, launches, map_each
from rlx.targets.base import Target
from rlx.targets.gpu.program import GpuProgram, Memory, groups
from rlx.targets.gpu.rounds import Rounds
from rlx.targets.gpu.work import Binding, Kernel
from rlx.targets.triton.compile import compile_kernel
from rlx.types import DTYPES

__all__ = ["gpu_program", "without_sizes"]


def gpu_program(
    schedule: Schedule,
    target: Target,
    symbols: dict[str, str],
    most_rounds: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> GpuProgram:
    """The program of a schedule. ``symbols`` are the names that the kernels have in their code. If
    the device ends loops after ``most_rounds``, kernels whose rounds depend on data record a fault
    when they are cut. A schedule of symbolic sizes gives a program of symbolic sizes; ``sizes`` are
    those at hand, for which the arena's buffers are given memories.

    Raises UnsupportedError for a kernel that the target's language cannot say.
    """
    named = {symbols[k.name]: k for k in schedule.kernels}  # equal kernels have one name
    numbered = {name: n for n, name in enumerate(named)}
    numbers = [numbered[symbols[k.name]] for k in schedule.kernels]

    def emitted(watched: Container[int]) -> list[KernelText]:
        plain, watching = target.kernels, replace(target.kernels, watches=True)
        texts: list[KernelText] = []
        for n, (name, k) in enumerate(named.items()):
            with _at_launch(k.name, schedule):
                machine = watching if n in watched else plain
                texts.append(emit_kernel(k.family, name, k.config, machine))
        return texts

    texts = emitted(())
    if target.kernels.serial:
        builder = _RangeBuilder(schedule, numbers, texts, sizes=sizes)
    else:
        builder = _Builder(schedule, numbers, texts, most_rounds, sizes)
    if most_rounds is not None and builder.unsure:
        texts = emitted(builder.unsure)
        builder = _Builder(schedule, numbers, texts, most_rounds, sizes)
    # One file for all but Triton's: a driver's compiler takes longer to start than for a kernel.
    own = [text for text in texts if text.frame != "triton"]
    code = target.emitter.emit(own, target.stages[-1]) if own else b""
    kernels = tuple(_kernel(text, code, target) for text in texts)
    facts = schedule if sizes is None else bind_schedule(schedule, sizes)
    return GpuProgram(
        schedule.target, kernels, tuple(builder.memories),
        schedule.params, schedule.inputs, schedule.outputs, schedule.constants,
        builder.prologue, builder.main, facts.launches, builder.sites, tuple(builder.rounds),
    )  # fmt: skip


def without_sizes(
    program: GpuProgram, guards: Sequence[Guard], symbols: Iterable[str]
) -> tuple[GpuProgram, SizeProgram]:
    """A program with 0 for each symbolic size, and what computes them for the sizes of a call
    (``GpuProgram.at``)."""
    signatures = (*program.inputs, *program.outputs)
    results = [m.nbytes for m in program.memories] + dims_of(signatures)
    later = steps_program(program.main, results, guards, symbols)
    memories = [replace(m, nbytes=m.nbytes if is_known(m.nbytes) else 0) for m in program.memories]
    main = read_main(later.words)
    return replace(program, memories=tuple(memories), main=main), later


@contextmanager
def _at_launch(kernel: str, schedule: Schedule) -> Generator[None]:
    """Refusals of a kernel name the ops that it is first launched for, at the user's line."""
    try:
        yield
    except UnsupportedError as e:
        if e.location:
            raise
        names = [schedule.kernels[s.kernel].name for s in launches(_all_steps(schedule))]
        ops, file, line, *_ = schedule.launches[names.index(kernel)]
        raise UnsupportedError(f"{ops}: {e.message}", (file, line)) from None


def _all_steps(schedule: Schedule) -> list[Step[Place]]:
    return [*(step for step, _ in schedule.prologue), *schedule.main]


def _kernel(text: KernelText, code: bytes, target: Target) -> Kernel:
    bindings = tuple(
        Binding(dt.name, "read_write" if n in text.written else "read")
        for n, dt in enumerate(text.buffers)
    )
    params = len(text.sizes) + len(text.buffers)
    if text.frame != "triton":
        return Kernel(text.name, code, (text.block, 1, 1), bindings, params)
    machine = target.kernels.triton
    assert machine is not None, "TTIR is built for a machine"
    made = compile_kernel(text, machine)
    group = (made.threads, 1, 1)
    return Kernel(text.name, made.code, group, bindings, params, made.shared, made.spare)


class _Builder:
    """Numbers the memories, and reads the steps.

    ``rounds`` are those of the launches in order; ``unsure`` are the kernels of which data decides
    whether they make more than ``most_rounds``.
    """

    def __init__(
        self,
        schedule: Schedule,
        kernels: Sequence[int],
        texts: Sequence[KernelText],
        most_rounds: int | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.kernels, self.texts, self.most_rounds = kernels, texts, most_rounds
        self.counts = [Rounds(text) for text in texts]
        self.rounds: list[int | None] = []
        self.unsure: set[int] = set()
        self.infos, self.sites = schedule.launches, list(schedule.sites)
        self.memories: list[Memory] = []
        # For each base of the schedule, the first of its memories, and where its slots begin.
        self.bases: list[tuple[int, list[int]]] = []
        # The memories of the arena's buffers, by the symbols of their offsets.
        self.planned: dict[str, int] = {}
        constants = [("", c.dtype, c.shape) for c in schedule.constants]
        declared: dict[Role, Sequence[Any]] = {
            "param": schedule.params, "constant": constants, "input": schedule.inputs,
            "output": schedule.outputs,
        }  # fmt: skip
        totals: dict[Role, int] = {
            "arena": schedule.arena_bytes, "packed": schedule.packed_bytes, "error": 8,
        }  # fmt: skip
        for role in ROLES:
            if role == "arena" and sizes is not None:
                self._add(role, self._shared(schedule.buffers, sizes))
            elif role in totals:
                starts = schedule.slots.get(role, [0])
                ends = [*starts[1:], totals[role]]
                self._add(role, [end - at for at, end in zip(starts, ends, strict=True)], starts)
            for n, (_, dt, shape) in enumerate(declared.get(role, ())):
                self._add(role, [_bytes(dt, shape)], index=n)
        self.prologue: tuple[PrologueStep, ...] = tuple(
            [(step.map(self.launch, self.place), follows) for step, follows in schedule.prologue]
        )
        self.main = map_each(schedule.main, self.launch, self.place)

    def _shared(self, buffers: Sequence[Buffer], sizes: Mapping[str, int]) -> list[Size]:
        """The sizes of memories for the arena's buffers, which share those that are best for the
        sizes at hand: each is as large as the largest of its buffers, whatever the sizes."""
        placed = unplaced(buffers, sizes)
        _, starts = plan_slots(placed)
        shared: list[Size] = [ALIGN] * len(starts)
        for n, (b, own) in enumerate(zip(buffers, placed, strict=True)):
            memory = self.planned[f"arena.{n}"] = starts.index(own.offset)
            shared[memory] = maximum(shared[memory], ceil_div(b.size, ALIGN) * ALIGN)
        return shared

    def _add(
        self, role: Role, sizes: Sequence[Size], starts: Sequence[int] = (0,), index: int = 0
    ) -> None:
        self.bases.append((len(self.memories), list(starts)))
        self.memories += [Memory(role, index + n, size) for n, size in enumerate(sizes)]

    def place(self, place: Place) -> Place:
        """A place in the memories of a GPU, where every buffer has one of its own."""
        first, starts = self.bases[place.base]
        if isinstance(place.offset, SymDim):
            for name in self.planned.keys() & place.offset.symbols:
                offset: Any = bind_dim(place.offset, {name: 0})
                return Place(first + self.planned[name], offset, place.moves)
        slot = bisect_right(starts, place.offset) - 1
        return Place(first + slot, place.offset - starts[slot], place.moves)

    def launch(self, step: Launch[Place]) -> Launch[Place]:
        """A launch on a grid of work groups, with the further sizes and buffers that only GPU
        kernels take."""
        number, given = self.kernels[step.kernel], iter(step.sizes)
        text, count = self.texts[number], step.grid[0]
        grid, places = groups(count, text.points), [self.place(p) for p in step.places]
        known = {"range": count}
        if ROUNDS_SITE in text.sizes:
            self.rounds.append(0)
            known[ROUNDS_SITE] = self.site()
            if len(places) < len(text.buffers):
                places.append(Place([m.role for m in self.memories].index("error"), 0))
        params = tuple(known[n] if n in known else next(given) for n in text.sizes)
        if ROUNDS_SITE not in text.sizes:
            most, sure = self.counts[number].of(grid, params)
            self.rounds.append(most)
            if not sure and (most is None or most > (self.most_rounds or most)):
                self.unsure.add(number)
        return Launch(number, grid, tuple(places), params)

    def site(self) -> int:
        """The number of a new fault site: a loop of the launch at hand was cut."""
        ops, file, line, *_ = self.infos[len(self.rounds) - 1]
        message = (
            f"{ops}: its loops take more rounds than the {self.most_rounds} after which the driver"
            " ends all loops; run it on smaller tensors, or on another device (cpu, opencl)"
        )
        self.sites.append((message, file, line))
        return len(self.sites) - 1


class _RangeBuilder(_Builder):
    """The same for kernels that take a range, as CPUs' do: launches stay as they are."""

    def launch(self, step: Launch[Place]) -> Launch[Place]:
        """The launch with the memory of its program: its grid is a range, a grain, and the bytes of
        scratch."""
        self.rounds.append(None)
        places = tuple([self.place(p) for p in step.places])
        return Launch(self.kernels[step.kernel], step.grid, places, step.sizes)


def _bytes(dt: Any, shape: Sequence[int]) -> int:
    total = DTYPES[dt].bytes if isinstance(dt, str) else dt.itemsize
    for n in shape:
        total *= n
    return total
