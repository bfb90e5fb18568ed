"""Programs of devices in artifacts: what is written of one, and read again.

docs/artifact.md lists the words. What is refused is decided in ``native/artifact.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from rlx.digest import digest
from rlx.runtime.encoding import (
    LaunchInfo,
    Parts,
    Reader,
    Signature,
    Site,
    Writer,
    read_constants,
    read_facts,
    read_step,
    write_constants,
    write_facts,
    write_step,
)
from rlx.targets.gpu.program import (
    Branch,
    Dispatch,
    For,
    GpuProgram,
    Memory,
    Place,
    Repeat,
    Role,
    Step,
)
from rlx.targets.gpu.work import Access, Binding, Kernel

__all__ = ["DeviceVariant", "read_program", "write_program"]

_ROLES: tuple[Role, ...] = get_args(Role)
_ACCESS: tuple[Access, ...] = get_args(Access)


@dataclass(frozen=True, eq=False)
class DeviceVariant:
    """A program for devices that have what ``requires`` names, in the words of their drivers.

    ``machine`` is the API that its code is for.
    """

    features: str
    machine: str
    requires: tuple[str, ...]
    program: GpuProgram

    @property
    def launches(self) -> list[LaunchInfo]:
        """What each dispatch is for."""
        return self.program.launches

    @property
    def sites(self) -> list[Site]:
        """The messages of faults."""
        return self.program.sites

    @property
    def objects(self) -> dict[str, bytes]:
        """The files of code, by their digests."""
        return {digest(code): code for code in dict.fromkeys(k.code for k in self.program.kernels)}

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """None: a device runs no functions of this process."""
        return {}

    def with_facts(self, launches: list[LaunchInfo], sites: list[Site]) -> DeviceVariant:
        """The same with other places."""
        return replace(self, program=replace(self.program, launches=launches, sites=sites))


# -- writing -------------------------------------------------------------------------------


def write_program(w: Writer, variant: DeviceVariant, part: Callable[[str, Any], int]) -> None:
    """Add a program; ``part`` keeps bytes under a name, and numbers them."""
    p, objects = variant.program, variant.objects
    write_constants(w, p.constants, part)
    w.words(len(p.memories))
    for m in p.memories:
        w.words(_ROLES.index(m.role), m.index, m.nbytes)
    w.words(len(objects), *(part(f"objects/{name}", code) for name, code in objects.items()))
    numbers = {code: n for n, code in enumerate(objects.values())}
    w.words(len(p.kernels))
    for kernel in p.kernels:
        w.words(numbers[kernel.code])
        w.text(kernel.name)
        w.words(*kernel.workgroup)
        w.each(kernel.bindings, _write_binding)
        w.words(kernel.params, kernel.shared, kernel.spare)
    w.words(len(p.prologue))
    kernels = {str(n): n for n in range(len(p.kernels))}
    for step, follows in p.prologue:
        w.each(follows, lambda w, n: w.words(n))
        write_step(w, _plain(step), kernels)
    w.each(p.main, lambda w, s: write_step(w, _plain(s), kernels))
    write_facts(w, p.launches, p.sites)
    w.each(p.rounds, lambda w, n: w.words(-1 if n is None else n))


def _write_binding(w: Writer, binding: Binding) -> None:
    w.text(binding.dtype)
    w.words(_ACCESS.index(binding.access))


def _plain(step: Step) -> tuple[Any, ...]:
    """A step in the form of those for CPUs, with groups in the place of range, grain, scratch."""
    match step:
        case Dispatch():
            groups = step.groups if 0 not in step.groups else (0, 1, 1)
            return ("launch", str(step.kernel), *groups, tuple(map(_ref, step.places)), step.params)
        case Branch():
            return ("if", _ref(step.flag), _each(step.then), _each(step.otherwise))
        case Repeat():
            test, body = _each(step.test), _each(step.body)
            return ("while", test, _ref(step.flag), body, step.limit, step.site)
        case For():
            counter = None if step.counter is None else _ref(step.counter)
            return ("for", step.rounds, _each(step.body), counter, step.reverse)


def _each(steps: Sequence[Step]) -> list[tuple[Any, ...]]:
    return [_plain(s) for s in steps]


def _ref(place: Place) -> tuple[Any, ...]:
    return (place.memory, place.offset, *place.moves)


# -- reading -------------------------------------------------------------------------------


def read_program(
    r: Reader, parts: Parts, target: str, signatures: Sequence[list[Signature]]
) -> GpuProgram:
    """The program of a part; ``signatures`` are those of params, inputs and outputs."""
    constants = read_constants(r, parts)
    memories = tuple(r.each(lambda r: Memory(_ROLES[r.word()], *r.words(2))))
    codes = [bytes(parts[n][1]) for n in r.list()]
    kernels = tuple(r.each(lambda r: _read_kernel(r, codes)))
    names = [str(n) for n in range(len(kernels))]
    prologue = [(r.list(), _step(read_step(r, names))) for _ in range(r.word())]
    main = tuple(r.each(lambda r: _step(read_step(r, names))))
    params, inputs, outputs = signatures
    return GpuProgram(
        target, kernels, memories, params, inputs, outputs, constants,
        tuple((step, follows) for follows, step in prologue), main, *read_facts(r),
        tuple(None if n < 0 else n for n in r.list()),
    )  # fmt: skip


def _read_kernel(r: Reader, codes: Sequence[bytes]) -> Kernel:
    code, name, size = codes[r.word()], r.text(), r.words(3)
    bindings = tuple(r.each(lambda r: Binding(r.text(), _ACCESS[r.word()])))
    return Kernel(name, code, (size[0], size[1], size[2]), bindings, *r.words(3))


def _step(step: tuple[Any, ...]) -> Step:
    match step:
        case ("launch", kernel, x, y, z, refs, params):
            return Dispatch(int(kernel), (x, y, z), tuple(map(_place, refs)), params)
        case ("if", flag, then, otherwise):
            return Branch(_place(flag), _steps(then), _steps(otherwise))
        case ("while", test, flag, body, limit, site):
            return Repeat(_steps(test), _place(flag), _steps(body), limit, site)
        case (_, rounds, body, counter, reverse):
            place = None if counter is None else _place(counter)
            return For(rounds, _steps(body), place, reverse)
        case _:
            raise AssertionError(f"no step of an artifact is {step!r}")


def _steps(steps: Sequence[tuple[Any, ...]]) -> tuple[Step, ...]:
    return tuple(map(_step, steps))


def _place(ref: Sequence[Any]) -> Place:
    return Place(ref[0], ref[1], tuple(ref[2:]))
