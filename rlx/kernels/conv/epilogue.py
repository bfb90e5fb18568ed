"""Epilogues of convolutions: the pointwise ops behind the sums, on the way to the result.

They read operands and write the result once an element, so that the result may be the very buffer
of a "full" operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlx.codegen.builder import Kernel
from rlx.codegen.probe import step_cost
from rlx.codegen.program import Program
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.conv.plan import OperandKind
from rlx.kernels.elementwise.emit import walk

__all__ = ["ConvEpilogue"]

SHORT = 6
"""About the instructions of a program whose constants are few."""


class ConvEpilogue:
    """The epilogue of a kernel; making it declares the buffers of the operands and the result."""

    def __init__(self, k: Kernel, program: Program, kinds: Sequence[OperandKind]) -> None:
        self.k, self.program, self.kinds = k, program, kinds
        self.operands = [k.buffer(f"operand{i}", dt) for i, dt in enumerate(program.inputs[1:])]
        self.c = k.buffer("c", program.results[0])

    def apart(
        self, buffers: Sequence[Buffer], given: Sequence[Reg], body: Callable[..., None]
    ) -> None:
        """``body(*given)``, which ends sums that lie in ``buffers``. With a long program it is a
        function: LLVM would have the program's constants in registers throughout the kernel, and
        some of the sums of a tile in memory."""
        if sum(map(step_cost, self.program.steps)) > SHORT:
            self.k.outline("finish", [*buffers, *self.operands, self.c], given, body)
        else:
            body(*given)

    def request(self, at: Reg, count: int) -> None:
        """Ask for the lines of ``count`` neighbouring results at ``at``, and of what they read."""
        full = [b for b, kind in zip(self.operands, self.kinds, strict=True) if kind == "full"]
        for buffer in (self.c, *full):
            for n in sorted({0, count - 1}):
                self.k.prefetch(buffer, at + n)

    def numbers(self, channel: Reg) -> dict[int, Reg]:
        """The operands that are one number in an output channel."""
        return {
            i: self.k.load(self.operands[i], channel if kind == "channel" else 0)
            for i, kind in enumerate(self.kinds)
            if kind != "full"
        }

    def part(
        self, total: Reg, numbers: Mapping[int, Reg], c: Reg, lanes: int, mask: Reg | None = None
    ) -> None:
        """The results at ``c`` from their sums: ``lanes`` of them, or those in the mask, or one."""
        k = self.k
        values = [
            numbers[i] if i in numbers else k.load(operand, c, lanes, mask)
            for i, operand in enumerate(self.operands)
        ]
        total = k.round_to(total, self.program.inputs[0])
        result = self.program.emit(k, [total, *values])[0]
        k.store(k.splat(result, lanes) if lanes else result, self.c, c, lanes, mask)

    def stretch(self, count: Reg, sums: Buffer, at: Reg, c: Reg, channel: Reg, lanes: int) -> None:
        """``count`` results of an output channel, from the sums at ``at`` on, to ``c`` on."""
        k, numbers = self.k, self.numbers(channel)

        def part(j: Reg, lanes: int, mask: Reg | None = None) -> None:
            self.part(k.load(sums, at + j, lanes, mask), numbers, c + j, lanes, mask)

        if lanes and k.target.masks:
            walk(k, k.index(0), count, part, lanes=lanes, vectors=1, masked=True)
        else:
            k.halving_loop(count, max(1, lanes), part)
