"""From a schedule to a GPU program: kernels with their bindings, and a buffer for every memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from rlx.kernels.builder import KernelText
from rlx.kernels.emit import emit_kernel
from rlx.lowering.schedule import Schedule
from rlx.targets.base import Target
from rlx.targets.gpu.program import (
    Branch,
    Dispatch,
    For,
    GpuProgram,
    Memory,
    Place,
    Repeat,
    Step,
    groups,
)
from rlx.targets.gpu.work import Binding, Kernel
from rlx.targets.triton.compile import compile_kernel
from rlx.types import DTYPES

__all__ = ["gpu_program"]


def gpu_program(schedule: Schedule, target: Target, symbols: dict[str, str]) -> GpuProgram:
    """The program of a schedule. ``symbols`` are the names that the kernels have in their code.

    Raises UnsupportedError for a kernel that the target's language cannot say.
    """
    named = {symbols[k.name]: k for k in schedule.kernels}  # equal kernels have one name
    texts = [emit_kernel(k.family, name, k.config, target.kernels) for name, k in named.items()]
    # One file for all but Triton's: a driver's compiler takes longer to start than for a kernel.
    own = [text for text in texts if text.frame != "triton"]
    code = target.emitter.emit(own, target.stages[-1]) if own else b""
    kernels = tuple(_kernel(text, code, target) for text in texts)
    numbers = {name: n for n, name in enumerate(named)}
    builder = _Builder(schedule, {k: numbers[name] for k, name in symbols.items()}, texts)
    return GpuProgram(
        schedule.target, kernels, tuple(builder.memories),
        schedule.params, schedule.inputs, schedule.outputs, schedule.constants,
        tuple((builder.step(step), follows) for step, follows in schedule.prologue),
        builder.steps(schedule.main), schedule.launches, schedule.sites,
    )  # fmt: skip


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
    """Numbers the memories, and reads the steps."""

    def __init__(
        self, schedule: Schedule, kernels: dict[str, int], texts: Sequence[KernelText]
    ) -> None:
        self.kernels, self.texts = kernels, texts
        self.memories: list[Memory] = []
        # For each base of the schedule, the first of its memories, and where its slots begin.
        self.bases: list[tuple[int, list[int]]] = []
        for role, total in (("arena", schedule.arena_bytes), ("packed", schedule.packed_bytes)):
            starts = schedule.slots.get(role, [0])
            ends = [*starts[1:], total]
            self._add(role, [end - at for at, end in zip(starts, ends, strict=True)], starts)
        self._add("error", [8])
        constants = [("", c.dtype, c.shape) for c in schedule.constants]
        for role, found in (
            ("param", schedule.params), ("constant", constants),
            ("input", schedule.inputs), ("output", schedule.outputs),
        ):  # fmt: skip
            for n, (_, dt, shape) in enumerate(found):
                self._add(role, [_bytes(dt, shape)], index=n)

    def _add(
        self, role: Any, sizes: Sequence[int], starts: Sequence[int] = (0,), index: int = 0
    ) -> None:
        self.bases.append((len(self.memories), list(starts)))
        self.memories += [Memory(role, index + n, size) for n, size in enumerate(sizes)]

    def place(self, ref: Sequence[Any]) -> Place:
        base, offset, *moves = ref
        first, starts = self.bases[base]
        slot = bisect_right(starts, offset) - 1
        return Place(first + slot, offset - starts[slot], tuple(moves))

    def steps(self, steps: Sequence[Any]) -> tuple[Step, ...]:
        return tuple(self.step(s) for s in steps)

    def step(self, step: Any) -> Step:
        return _STEPS[step[0]](self, step)

    def dispatch(self, step: Any) -> Step:
        _, name, count, _, _, refs, sizes = step
        number, given = self.kernels[name], iter(sizes)
        text = self.texts[number]
        params = tuple(count if n == "range" else next(given) for n in text.sizes)
        places = tuple(self.place(r) for r in refs)
        return Dispatch(number, groups(count, text.points), places, params)

    def branch(self, step: Any) -> Step:
        _, flag, then, otherwise = step
        return Branch(self.place(flag), self.steps(then), self.steps(otherwise))

    def repeat(self, step: Any) -> Step:
        _, test, flag, body, limit, site = step
        return Repeat(self.steps(test), self.place(flag), self.steps(body), limit, site)

    def loop(self, step: Any) -> Step:
        _, rounds, body, counter, reverse = step
        place = None if counter is None else self.place(counter)
        return For(rounds, self.steps(body), place, reverse)


_STEPS: dict[str, Callable[[_Builder, Any], Step]] = {
    "launch": _Builder.dispatch,
    "if": _Builder.branch,
    "while": _Builder.repeat,
    "for": _Builder.loop,
}


def _bytes(dt: Any, shape: Sequence[int]) -> int:
    total = DTYPES[dt].bytes if isinstance(dt, str) else dt.itemsize
    for n in shape:
        total *= n
    return total
