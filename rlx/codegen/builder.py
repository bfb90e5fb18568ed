"""The builder of one kernel's text: scf, arith, math, memref and vector ops on flat buffers.

A kernel computes the indices ``[begin, end)`` of a parallel range. Constants are hoisted to the
top and kept once. 16-bit floats are memory formats: ``load`` widens them to f32 and ``store``
rounds once, so that an op written in f32 has the result that IEEE rounding of the exact value
gives. What differs between targets (vector widths, math functions, the frame of the function)
is in the ``KernelTarget``.

``Kernel`` is built up in layers, a module each: emitter (lines, constants, conversions),
arithmetic, memory, control.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from rlx.base.frozen import frozen
from rlx.codegen.control import Control
from rlx.codegen.function import Function
from rlx.codegen.memory import start_of
from rlx.codegen.reg import Reg
from rlx.types import DType, f32

if TYPE_CHECKING:
    from rlx.codegen.triton.machine import TritonMachine

__all__ = ["Frame", "Kernel", "KernelTarget", "KernelText"]

Frame = Literal["cpu", "gpu", "graph"]
"""What a kernel is: a function over a range, or what a GPU's thread does at an index. A target that
takes whole graphs has none."""


@frozen
class KernelTarget:
    """What kernels may know of the machine.

    ``math`` maps a function's name ("exp") to an emitter over registers; ``frame`` is "cpu" (a
    function over a range), "gpu" (a gpu.func, one thread an index) or "graph" (no kernels: formulas
    are on whole tensors). ``lacks`` holds the element
    types that the machine cannot compute with, each with what would provide it; ``index_bits`` is
    the width of an index, which bounds the elements of a buffer. ``has`` names the instructions
    beyond the common ones that a kernel may use, as CPUID does. ``fused`` says that a multiply-add
    rounds once, in every type of floats, and ``rounded_quotients`` that a division rounds right;
    several languages leave that to the device.

    The rest is for the GPU frame: ``block`` threads a block, where nothing asks for more, and at
    most ``most_threads``, which share at most ``shared_bytes``; ``buffer_space`` and
    ``stack_space`` are put into the memref types of arguments and of stack arrays, and
    ``shared_space`` into those of memory that a block shares (None: there is none yet); ``logical``
    says that memory is addressed through typed arrays, not pointers: then buffers have a run-time
    length. Numbers come in a buffer of their own, after all others, since every argument may take
    one of few bindings: it is one of the ``most_buffers`` that a kernel may have (None: any
    number). As a binding must start at a round address, they include the element of
    each buffer at which its view starts. ``triton`` is the machine as Triton's compiler is told of
    it, where that makes kernels too. ``watches`` says that the machine may end a loop before its
    time: then a kernel records that as a fault, at the site of its size ``ROUNDS_SITE``.
    """

    name: str
    vector_bytes: int
    registers: int
    math: dict[str, Callable[..., Reg]] = field(repr=False)
    frame: Frame = "cpu"
    buffer_space: str = ""
    stack_space: str = ""
    logical: bool = False
    block: int = 128
    most_threads: int = 128
    shared_bytes: int = 16 << 10
    most_buffers: int | None = None
    index_bits: int = 64
    shared_space: str | None = None
    lacks: Mapping[DType, str] = field(default_factory=dict[DType, str])
    has: frozenset[str] = frozenset()
    fused: bool = True
    rounded_quotients: bool = True
    triton: TritonMachine | None = None
    watches: bool = False

    @property
    def serial(self) -> bool:
        """Whether a worker runs points one after another, with scratch of its own; a GPU has a
        thread for each."""
        return self.frame == "cpu"

    @property
    def binds(self) -> bool:
        """Whether memory is reached through buffers that are bound, each with elements of one type
        and a view's start beside it, and not by addresses."""
        return self.frame == "gpu"

    @property
    def rebinds(self) -> bool:
        """Whether a kernel may write a buffer that it has bound for reading too; many devices let
        none."""
        return not self.binds

    @property
    def interrupts(self) -> bool:
        """Whether the runtime can end a loop of a kernel: the native one, whose record of faults
        has an address of 64 bits for that (``Kernel.rounds``)."""
        return self.serial and self.index_bits == 64

    @property
    def word_bits(self) -> int:
        """Bits of a number among a launch's sizes."""
        return 32 if self.binds else self.index_bits

    @property
    def masks(self) -> bool:
        """Whether loads and stores of any element take a mask at no cost."""
        return not self.has.isdisjoint(("avx512bw", "sve"))

    def too_many(self, views: int) -> str | None:
        """What to say of a kernel with so many buffers, its numbers not counted, if it cannot bind
        them; else None."""
        found = views + self.binds
        if self.most_buffers is None or found <= self.most_buffers:
            return None
        return f"it binds {found} buffers, and a kernel of {self.name} {self.most_buffers} at most"

    def lanes(self, dt: DType = f32) -> int:
        """Lanes of one vector register for elements as they are computed with (16 bit as f32; of
        a complex type one of its parts)."""
        width = 4 if dt.is_float and dt.bits == 16 else dt.part.bytes
        return max(1, self.vector_bytes // width) if self.vector_bytes else 1


@frozen
class KernelText:
    """A finished kernel: MLIR text of one function, and the arguments after begin and end.

    ``buffers`` then ``sizes`` is the order of the arguments; ``scratch`` says whether a scratch
    pointer follows them. ``written`` are the numbers of the buffers that it stores to, as far as
    the builder made it; ``starts`` says that the sizes are followed by the first element of each
    buffer. On a GPU a block has ``block`` threads, and takes ``points`` of the parallel range.
    Text of the frame "triton" is TTIR (``rlx.codegen.triton``); in its loops ``stages`` loads of an
    operand are on their way at once. The text has all functions, those that are ``shared`` with
    other kernels among them.
    """

    name: str
    text: str
    buffers: tuple[DType, ...]
    sizes: tuple[str, ...]
    scratch: bool
    frame: str
    written: tuple[int, ...] = ()
    starts: bool = False
    block: int = 0
    points: int = 0
    stages: int = 0
    shared: tuple[Function, ...] = ()


class Kernel(Control):
    """Builds one kernel. Declare buffers and sizes first, then call ``parallel`` once."""

    def text(self) -> KernelText:
        """The finished function."""
        self._close_watch()
        args = [f"{b.name}: {b.mlir}" for b in self._buffers]
        if self.target.binds:
            sizes, casts = self._gpu_sizes()
            args += sizes
            start = f"  gpu.func @{self.name}({', '.join(args)}){self._workgroup()} kernel"
            start += f" attributes {{known_block_size = array<i32: {self._block}, 1, 1>}} {{"
            body = [start, *casts, *self._head, *self._lines, "    gpu.return", "  }"]
        else:
            args = ["%begin: index", "%end: index", *args]
            args += [f"{s}: index" for s in (*(s.name for s in self._sizes), *self._words)]
            if self._scratch:
                args.append(f"{self._scratch.name}: {self._scratch.mlir}")
            start = f"  func.func @{self.name}({', '.join(args)}) {{"
            body = [start, *self._head, *self._lines, "    return", "  }"]
            body += [f.text for f in self._functions.values()]
        return KernelText(
            self.name,
            "\n".join(body),
            tuple(b.dtype for b in self._buffers),
            tuple(name[1:] for name in (*(s.name for s in self._sizes), *self._words)),
            self._scratch is not None,
            self.target.frame,
            tuple(n for n, b in enumerate(self._buffers) if b.name in self._written),
            self.target.binds,
            self._block,
            self._points,
            shared=tuple(f for f in self._functions.values() if f.shared),
        )

    def _gpu_sizes(self) -> tuple[list[str], list[str]]:
        """The argument that brings the numbers, as i32, and the lines that make indices of those
        which are no words of literals."""
        sizes, starts = [s.name for s in self._sizes], [start_of(b) for b in self._buffers]
        names = [*sizes, *self._words, *starts]
        kind = f"memref<{len(names)}xi32{self._space()}>"
        lines: list[str] = []
        for n, name in enumerate(names):
            word = f"{name}_i32"
            lines.append(f"    {word}_at = arith.constant {n} : index")
            lines.append(f"    {word} = memref.load %sizes[{word}_at] : {kind}")
            if name not in self._words:
                lines.append(f"    {name} = arith.index_cast {word} : i32 to index")
        return [f"%sizes: {kind}"], lines
