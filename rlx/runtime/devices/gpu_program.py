"""Programs of devices in artifacts: what is written of one, and read again.

docs/artifact.md lists the words. What is refused is decided in ``native/artifact.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from rlx.base.digest import digest
from rlx.runtime.encoding import (
    Parts,
    read_constants,
    read_facts,
    read_sizes,
    write_constants,
    write_facts,
    write_sizes,
)
from rlx.schedule.codec import main_words, prologue_words, read_main, read_prologue
from rlx.schedule.plan import ROLES, LaunchInfo, Signature, Site
from rlx.schedule.sizes import SizeProgram
from rlx.schedule.words import Reader, Writer
from rlx.targets.gpu.program import GpuProgram, Memory
from rlx.targets.gpu.work import Access, Binding, Kernel

__all__ = ["DeviceVariant", "read_program", "write_program"]

_ACCESS: tuple[Access, ...] = get_args(Access)


@dataclass(frozen=True, eq=False)
class DeviceVariant:
    """A program for devices that have what ``requires`` names, in the words of their drivers.

    ``machine`` is the API that its code is for. With ``sizes``, which are for sizes of symbols, the
    program is one without sizes (``GpuProgram.at``).
    """

    features: str
    machine: str
    requires: tuple[str, ...]
    program: GpuProgram
    sizes: SizeProgram | None = None

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
        w.words(ROLES.index(m.role), m.index, m.nbytes)
    w.words(len(objects), *(part(f"objects/{name}", code) for name, code in objects.items()))
    numbers = {code: n for n, code in enumerate(objects.values())}
    w.words(len(p.kernels))
    for kernel in p.kernels:
        w.words(numbers[kernel.code])
        w.text(kernel.name)
        w.words(*kernel.workgroup)
        w.each(kernel.bindings, _write_binding)
        w.words(kernel.params, kernel.shared, kernel.spare)
    w.block(prologue_words(p.prologue))
    w.block(main_words(p.main))
    write_facts(w, p.launches, p.sites)
    w.each(p.rounds, lambda w, n: w.words(-1 if n is None else n))
    if variant.sizes is not None:
        write_sizes(w, variant.sizes)


def _write_binding(w: Writer, binding: Binding) -> None:
    w.text(binding.dtype)
    w.words(_ACCESS.index(binding.access))


# -- reading -------------------------------------------------------------------------------


def read_program(
    r: Reader, parts: Parts, target: str, signatures: Sequence[list[Signature]], many: bool
) -> tuple[GpuProgram, SizeProgram | None]:
    """The program of a part, and what makes it for sizes if it is for ``many``; ``signatures`` are
    those of params, inputs and outputs."""
    constants = read_constants(r, parts)
    memories = tuple(r.each(lambda r: Memory(ROLES[r.word()], *r.words(2))))
    codes = [bytes(parts[n][1]) for n in r.list()]
    kernels = tuple(r.each(lambda r: _read_kernel(r, codes)))
    prologue, words = read_prologue(r.block()), r.block()
    params, inputs, outputs = signatures
    program = GpuProgram(
        target, kernels, memories, params, inputs, outputs, constants,
        prologue, read_main(words), *read_facts(r),
        tuple(None if n < 0 else n for n in r.list()),
    )  # fmt: skip
    return program, read_sizes(r, words) if many else None


def _read_kernel(r: Reader, codes: Sequence[bytes]) -> Kernel:
    code, name, size = codes[r.word()], r.text(), r.words(3)
    bindings = tuple(r.each(lambda r: Binding(r.text(), _ACCESS[r.word()])))
    return Kernel(name, code, (size[0], size[1], size[2]), bindings, *r.words(3))
